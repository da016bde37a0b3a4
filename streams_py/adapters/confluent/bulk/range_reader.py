"""Reads offsets ``start`` up to, not including, ``end`` of one partition, once, in order: as messages, or in columns.

The end is reached by *position*, never by the last record: the last offsets of a range may be transaction markers,
aborted records, or compacted away, and then no record ever comes for them. librdkafka says where it stands at the end
of a partition; that moves the position on.

What cannot be read is an error, never something else: an offset that retention has deleted, or one beyond the end of a
topic that was created anew, would make librdkafka continue somewhere else if it were allowed to. Where it goes back by
itself, when a leader changes, say, what it delivers again is left out.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.broker_log import BrokerLog
from streams_py.adapters.confluent.failures import broker_away, error_of
from streams_py.adapters.confluent.settings import Settings, rejected_setting
from streams_py.errors import BrokerUnavailableError, OffsetOutOfRangeError, StreamsError
from streams_py.ports import RawRecord
from streams_py.record_headers import headers_of_all
from streams_py.rights import TOPIC, missing_right

__all__ = ["Columns", "ReadLimits", "read_messages", "read_range"]

_log = logging.getLogger(__name__)

Headers = list[tuple[str, bytes | None]]

_WAIT_S: Final = 0.1
"""How long one call may wait for a full batch. Longer would only be felt at the end of a range with gaps."""
_WATERMARK_TIMEOUT_S: Final = 10.0
_FIRST_REQUEST: Final = 500
_FINAL: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._AUTHENTICATION,
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError._FATAL,
    }
)
_INVALID_POSITION: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_AFTER_THE_LAST: Final = object()

_error_of_message: Final = cast("Callable[[Message], KafkaError | None]", Message.error)
_offset: Final = cast("Callable[[Message], int]", Message.offset)
_key: Final = cast("Callable[[Message], bytes | None]", Message.key)
_value: Final = cast("Callable[[Message], bytes | None]", Message.value)
_timestamp: Final = cast("Callable[[Message], tuple[int, int]]", Message.timestamp)
_length: Final = cast("Callable[[Message], int]", Message.__len__)


class ReadLimits(NamedTuple):
    """``records`` and ``bytes`` bound what is given out at once. ``patience_ms``: without progress for this long, give
    up. With ``skip_gone`` a range whose beginning was deleted starts at the first offset that is left."""

    records: int = 16_384
    bytes: int = 8 << 20
    patience_ms: int = 60_000
    skip_gone: bool = False


@dataclass(slots=True)
class Columns:
    """Records of one partition in offset order. Timestamps are (type, ms) as in confluent-kafka: type 0 none, 1 create
    time, 2 log append time. ``bytes`` is the size of the values and a little more."""

    offsets: list[int] = field(default_factory=list)
    timestamps: list[tuple[int, int]] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers | None] = field(default_factory=list)
    bytes: int = 0

    def append(self, messages: list[Message], bytes: int) -> None:
        """Take over records, of so many bytes; none of them may be an error."""
        self.offsets += map(_offset, messages)
        self.timestamps += map(_timestamp, messages)
        self.keys += map(_key, messages)
        self.values += map(_value, messages)
        self.headers += headers_of_all(cast("list[RawRecord]", messages))
        self.bytes += bytes


def read_messages(
    settings: Settings, topic: str, partition: int, start: int, end: int, limits: ReadLimits
) -> Iterator[Sequence[RawRecord]]:
    """The records of a range as the client has them, in lists that are never empty; about ``limits.bytes`` at a time.
    Errors as :func:`read_range`."""
    if start >= end:
        return
    with closing(_RangeReader(settings, TopicPartition(topic, partition), start, end, limits)) as reader:
        for messages, _ in reader.messages():
            if messages:
                yield cast("list[RawRecord]", messages)


def read_range(
    settings: Settings, topic: str, partition: int, start: int, end: int, limits: ReadLimits
) -> Iterator[Columns]:
    """The records of a range, in columns that are never empty.

    OffsetOutOfRangeError when its beginning is gone (unless that may be skipped) or lies beyond the end of the topic,
    BrokerUnavailableError when nothing comes for ``patience_ms``, StreamsError when it cannot be read at all.
    """
    if start >= end:
        return
    with closing(_RangeReader(settings, TopicPartition(topic, partition), start, end, limits)) as reader:
        yield from reader.columns()


class _RangeReader:
    def __init__(self, settings: Settings, partition: TopicPartition, start: int, end: int, limits: ReadLimits) -> None:
        self._bootstrap = str(settings["bootstrap.servers"])
        self._log = BrokerLog(str(settings["client.id"]), self._bootstrap)
        try:
            self._consumer = Consumer({**settings, "error_cb": self._log.on_error}, logger=self._log)
        except KafkaException as refused:
            error = error_of(refused)
            raise rejected_setting(error.str() if error else str(refused), settings, "reader") from None
        self._partition = partition
        self._position, self._end = start, end
        self._limits = limits
        self._room = limits.records
        self._request = min(limits.records, _FIRST_REQUEST)
        self._assign(start)

    def _assign(self, start: int) -> None:
        self._consumer.assign([confluent_kafka.TopicPartition(*self._partition, start)])

    def close(self) -> None:
        self._consumer.close()

    def columns(self) -> Iterator[Columns]:
        """Columns as full as the limits allow, or as the broker has more to give at the moment."""
        limits = self._limits
        columns = Columns()
        for messages, size in self.messages():
            if messages:
                columns.append(messages, size)
            self._room = limits.records - len(columns.offsets)
            if columns.offsets and (self._room <= 0 or columns.bytes >= limits.bytes or not messages):
                yield columns
                columns = Columns()
                self._room = limits.records
        if columns.offsets:
            yield columns

    def messages(self) -> Iterator[tuple[list[Message], int]]:
        """Records with their bytes; none when there are no more at the moment."""
        patience_s = self._limits.patience_ms / 1000
        give_up_s = time.monotonic() + patience_s
        while self._position < self._end:
            before = self._position
            wanted = min(self._request, self._end - self._position, self._room)
            messages = self._consumer.consume(max(1, wanted), _WAIT_S)
            found = self._in_order(messages) if messages else ([], 0)
            if self._position > before:
                give_up_s = time.monotonic() + patience_s
            elif time.monotonic() >= give_up_s:
                raise self._stuck()
            if found[0] or not messages:
                given_s = time.monotonic()
                yield found
                # Time that whoever uses the records takes is not time without progress.
                give_up_s += time.monotonic() - given_s

    def _taken(self, records: list[Message]) -> tuple[list[Message], int]:
        records = self._new(records) if records else records
        if not records:
            return [], 0
        last = _offset(records[-1])
        if last >= self._end:
            records = records[: bisect_left(records, self._end, key=_offset)]
            self._position = self._end
        else:
            self._position = max(self._position, last + 1)
        size = sum(map(_length, records)) + 50 * len(records)
        if records:
            # So many at a time that a batch of the largest records seen lately stays within its bytes.
            average = max(1, size // len(records))
            self._request = max(1, min(self._limits.records, self._limits.bytes // average, self._request * 4))
        return records, size

    def _new(self, records: list[Message]) -> list[Message]:
        """Those that have not come before. Only what begins too early, or has more records than offsets, is looked at
        record by record."""
        first, last = _offset(records[0]), _offset(records[-1])
        if first >= self._position and last - first >= len(records) - 1:
            return records
        new, position = [], self._position
        for record in records:
            if _offset(record) >= position:
                new.append(record)
                position = _offset(record) + 1
        if len(new) < len(records):
            _log.warning(
                "%s: the consumer delivered %d of %d records (offsets %d to %d) again; they are left out",
                self._partition,
                len(records) - len(new),
                len(records),
                first,
                last,
            )
        return new

    def _in_order(self, messages: list[Message]) -> tuple[list[Message], int]:
        """Records and events as they came: an event says where the partition stands after the records before it."""
        errors = list(map(_error_of_message, messages))
        if not any(errors):
            return self._taken(messages)
        taken: list[Message] = []
        size = first = 0
        for number, error in enumerate([*errors, _AFTER_THE_LAST]):
            if error is None:
                continue
            records, bytes = self._taken(messages[first:number])
            taken += records
            size += bytes
            first = number + 1
            if isinstance(error, KafkaError):
                self._handle(error, messages[number])
        return taken, size

    def _handle(self, error: KafkaError, message: Message) -> None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            self._position = max(self._position, _offset(message))
        elif code in _INVALID_POSITION:
            self._begin_again()
        elif code in _FINAL or error.fatal():
            why = error.str()
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                why = missing_right("READ", TOPIC, [self._partition.topic])
            raise StreamsError(f"{self._partition} cannot be read at offset {self._position}: {why}")
        self._log.check()

    def _begin_again(self) -> None:
        """The position does not exist: skip what is gone if that is allowed."""
        try:
            low, high = self._consumer.get_watermark_offsets(
                confluent_kafka.TopicPartition(*self._partition), timeout=_WATERMARK_TIMEOUT_S
            )
        except KafkaException as failed:
            raise broker_away(self._bootstrap, f"looking up {self._partition}", 10_000) from failed
        if low < 0 or high < low:
            raise broker_away(self._bootstrap, f"looking up {self._partition}", 10_000, f"offsets {low} to {high}")
        if self._limits.skip_gone and self._position < low:
            _log.warning("%s: offsets %d to %d are gone and skipped", self._partition, self._position, low - 1)
            self._position = low
            self._assign(low)
            return
        raise _gone(self._partition, self._position, low, high)

    def _stuck(self) -> StreamsError:
        self._log.check()
        waited_ms = self._limits.patience_ms
        return BrokerUnavailableError(
            f"no record of {self._partition} came for {waited_ms} ms at offset {self._position}, and the range ends at "
            f"{self._end} ({self._bootstrap}); is a broker down, or was the topic deleted and created again?"
        )


def _gone(partition: TopicPartition, wanted: int, low: int, high: int) -> OffsetOutOfRangeError:
    if wanted < low:
        text = (
            f"OFFSET_GONE: offset {wanted} of {partition} was deleted, the first one left is {low}; read from "
            "there, keep records longer, or set on.gone=skip"
        )
    else:
        text = f"offset {wanted} of {partition} does not exist: the log ends at {high}; was the topic created anew?"
    return OffsetOutOfRangeError([partition], text)
