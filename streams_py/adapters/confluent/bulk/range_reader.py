"""Reads offsets ``start`` up to, not including, ``end`` of one partition, once, in order: as messages, or in columns.

:mod:`.range_rule` decides which of the client's messages are the records of the range, and when the range is finished.
This module asks the client for messages, cuts them into pieces that fit in memory, and decides what errors mean.

An offset that cannot be read is an error, never something else: an offset that retention has deleted, or one beyond the
end of a topic that was created again. librdkafka would otherwise continue at another offset. An answer of a broker that
has just started may be wrong, so an error that may pass counts when it has come several times.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.broker_log import BrokerLog
from streams_py.adapters.confluent.bulk.range_rule import RangePosition
from streams_py.adapters.confluent.failures import error_of
from streams_py.adapters.confluent.settings import Settings, rejected_setting
from streams_py.errors import BrokerUnavailableError, OffsetOutOfRangeError, StreamsError
from streams_py.ports import RawRecord
from streams_py.ports.record_headers import headers_of_all
from streams_py.ports.rights import TOPIC, missing_right

_log = logging.getLogger(__name__)

Headers = list[tuple[str, bytes | None]]
OnRedelivered: TypeAlias = "Callable[[int], object]"

_WAIT_S: Final = 0.1
"""Time that one call waits for a record when the client has none."""
_FILL_S: Final = 0.05
"""Time that a call for many records waits until the client has all of them, because each call costs time."""
_WATERMARK_TIMEOUT_S: Final = 5.0
_FIRST_REQUEST: Final = 16
"""Records requested by the first call, before their size is known."""
_GROWTH: Final = 4
"""Factor by which one call may request more records than the call before."""
_RECORD_BYTES: Final = 50
"""Size of a record without its key, value and headers, about."""
_AGAIN_S: Final = (0.2, 0.5, 1.0)
"""Pauses after errors that may pass. The next such error without a record in between is final."""
_FINAL: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._AUTHENTICATION,
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError._FATAL,
    }
)
_UNKNOWN_PARTITION: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC}
)
"""Final when they come again: a broker that has just started does not know all partitions yet."""
_INVALID_POSITION: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)

_key: Final = cast("Callable[[Message], bytes | None]", Message.key)
_value: Final = cast("Callable[[Message], bytes | None]", Message.value)
_timestamp: Final = cast("Callable[[Message], tuple[int, int]]", Message.timestamp)


class ReadLimits(NamedTuple):
    """Bounds of a read.

    Attributes:
        records: Largest number of records given out at a time.
        bytes: Largest size of the records given out at a time, with keys and headers. A larger record comes alone.
        patience_ms: Time without progress after which the read gives up.
        skip_gone: Whether a range whose beginning was deleted starts at the first offset that is left.
    """

    records: int = 16_384
    bytes: int = 8 << 20
    patience_ms: int = 60_000
    skip_gone: bool = False


class _Piece(NamedTuple):
    """Records that fit in the limits of a read. ``bytes`` is their size."""

    messages: list[Message]
    offsets: list[int]
    keys: list[bytes | None]
    headers: list[Headers | None]
    bytes: int

    def slice(self, first: int, end: int, bytes: int) -> _Piece:
        """Some of the records, which have this size."""
        return _Piece(
            self.messages[first:end], self.offsets[first:end], self.keys[first:end], self.headers[first:end], bytes
        )


@dataclass(slots=True)
class Columns:
    """Records of one partition in offset order. Timestamps are (type, ms) as in confluent-kafka: type 0 none, 1 create
    time, 2 log append time. ``bytes`` is the size of keys, values and headers and a little more."""

    offsets: list[int] = field(default_factory=list)
    timestamps: list[tuple[int, int]] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers | None] = field(default_factory=list)
    bytes: int = 0

    def append(self, piece: _Piece) -> None:
        """Add the records of a piece."""
        self.offsets += piece.offsets
        self.timestamps += map(_timestamp, piece.messages)
        self.keys += piece.keys
        self.values += map(_value, piece.messages)
        self.headers += piece.headers
        self.bytes += piece.bytes


def read_messages(
    settings: Settings,
    topic: str,
    partition: int,
    start: int,
    end: int,
    limits: ReadLimits,
    *,
    leader_epoch: int | None = None,
    on_redelivered: OnRedelivered | None = None,
) -> Iterator[Sequence[RawRecord]]:
    """Return the records of a range as the client has them, in lists that are never empty and fit in the limits.

    Arguments and errors as for :func:`read_range`.
    """
    if start >= end:
        return
    where, of = TopicPartition(topic, partition), RangePosition(start, end)
    with closing(_RangeReader(settings, where, of, limits, leader_epoch, on_redelivered)) as reader:
        for piece in reader.pieces():
            if piece is not None:
                yield cast("list[RawRecord]", piece.messages)


def read_range(
    settings: Settings,
    topic: str,
    partition: int,
    start: int,
    end: int,
    limits: ReadLimits,
    *,
    leader_epoch: int | None = None,
    on_redelivered: OnRedelivered | None = None,
) -> Iterator[Columns]:
    """Return the records of a range, in columns that are never empty and fit in the limits.

    Args:
        settings: Of :func:`~streams_py.adapters.confluent.bulk.bulk_settings.bulk_consumer_settings`.
        topic: Name of the topic. The caller checks its id: :mod:`streams_py.adapters.confluent.bulk.same_topic`.
        partition: Number of the partition.
        start: First offset.
        end: Offset after the last one.
        limits: Bounds of the read.
        leader_epoch: Leader epoch of the partition when the range was planned, None where it is not known. A record
            with a later epoch was written after that, so the planned records are lost.
        on_redelivered: Called at the end with the number of records that the client has delivered again, if any.

    Raises:
        OffsetOutOfRangeError: The beginning is deleted (and may not be skipped), or is beyond the end of the log.
        BrokerUnavailableError: No record or event came for ``patience_ms``.
        StreamsError: The range cannot be read at all.
    """
    if start >= end:
        return
    where, of = TopicPartition(topic, partition), RangePosition(start, end)
    with closing(_RangeReader(settings, where, of, limits, leader_epoch, on_redelivered)) as reader:
        yield from reader.columns()


def first_record(settings: Settings, topic: str, partition: int, start: int, end: int, limits: ReadLimits) -> int:
    """Return the offset of the first record of a range, ``end`` when the range has no record.

    Errors as for :func:`read_range`.
    """
    one = {**settings, "queued.min.messages": 1}
    for columns in read_range(one, topic, partition, start, end, limits._replace(records=1)):
        return columns.offsets[0]
    return end


class _RangeReader:
    """A client that reads one range."""

    def __init__(
        self,
        settings: Settings,
        partition: TopicPartition,
        of: RangePosition,
        limits: ReadLimits,
        leader_epoch: int | None,
        on_redelivered: OnRedelivered | None,
    ) -> None:
        self._bootstrap = str(settings["bootstrap.servers"])
        self._log = BrokerLog(str(settings["client.id"]), self._bootstrap)
        try:
            self._consumer = Consumer({**settings, "error_cb": self._log.on_error}, logger=self._log)
        except KafkaException as refused:
            error = error_of(refused)
            raise rejected_setting(error.str() if error else str(refused), settings, "reader") from None
        self._partition = partition
        self._range = of
        self._limits = limits
        self._leader_epoch = leader_epoch
        self._on_redelivered = on_redelivered
        self._room = limits.records
        self._request = _FIRST_REQUEST
        self._doubts = 0  # errors that may pass, since the last progress
        self._assign()

    def _assign(self) -> None:
        self._consumer.assign([confluent_kafka.TopicPartition(*self._partition, self._range.position)])

    def close(self) -> None:
        """Close the client."""
        if self._range.redelivered:
            _log.info(
                "%s: the client delivered %d records again; each record is read once",
                self._partition,
                self._range.redelivered,
            )
            if self._on_redelivered is not None:
                self._on_redelivered(self._range.redelivered)
        self._consumer.close()

    def columns(self) -> Iterator[Columns]:
        """Return columns as full as the limits allow, or as the client has more records at the moment."""
        limits, columns = self._limits, Columns()
        for piece in self.pieces():
            if columns.offsets and (piece is None or columns.bytes + piece.bytes > limits.bytes):
                yield columns
                columns = Columns()
            if piece is not None:
                columns.append(piece)
                if len(columns.offsets) >= limits.records:
                    yield columns
                    columns = Columns()
            self._room = limits.records - len(columns.offsets)
        if columns.offsets:
            yield columns

    def pieces(self) -> Iterator[_Piece | None]:
        """Return records that fit in the limits; None when the client has none at the moment."""
        patience_s = self._limits.patience_ms / 1000
        give_up_s = time.monotonic() + patience_s
        while not self._range.is_finished:
            before = self._range.position
            messages = self._next_messages()
            taken = self._range.take(messages)
            if self._range.position > before:
                self._doubts = 0
                give_up_s = time.monotonic() + patience_s
            if not self._range.is_finished:
                for error in taken.errors:
                    self._handle(error)
                self._log.check()
                if self._range.position == before and time.monotonic() >= give_up_s:
                    raise self._stuck()
            given_s = time.monotonic()
            if taken.records:
                self._check_epoch(taken.records[-1])
                yield from self._cut(taken.records, taken.offsets)
            elif not messages:
                yield None
            give_up_s += time.monotonic() - given_s  # the time of the caller is not time without progress

    def _next_messages(self) -> list[Message]:
        """Return what the client has; wait for one message when it has none.

        A call that waits for a number of messages waits in vain at the end of a range, so only large requests do, and
        briefly.
        """
        wanted = max(1, min(self._request, self._room, self._range.end - self._range.position))
        messages = self._consumer.consume(wanted, _FILL_S if wanted > _FIRST_REQUEST else 0)
        if not messages:
            messages = self._consumer.consume(1, _WAIT_S)
            if messages and wanted > 1:
                messages += self._consumer.consume(wanted - 1, 0)
        return messages

    def _cut(self, messages: list[Message], offsets: list[int]) -> Iterator[_Piece]:
        keys = list(map(_key, messages))
        headers = headers_of_all(cast("list[RawRecord]", messages))
        whole = _Piece(messages, offsets, keys, headers, _size(messages, keys, headers))
        # The next call requests as many records as fit in the limit, if they are as large as these.
        fitting = self._limits.bytes // (whole.bytes // len(messages))
        self._request = max(1, min(self._limits.records, fitting, self._request * _GROWTH))
        if whole.bytes <= self._limits.bytes:
            yield whole
            return
        first = size = 0
        records = zip(messages, keys, headers, strict=True)
        sizes = (_size([message], [key], [of]) for message, key, of in records)
        for number, of_record in enumerate(sizes):
            if number > first and size + of_record > self._limits.bytes:
                yield whole.slice(first, number, size)
                first, size = number, 0
            size += of_record
        yield whole.slice(first, len(messages), size)

    def _check_epoch(self, last: Message) -> None:
        """Check the last of some records: leader epochs never decrease from offset to offset."""
        planned, found = self._leader_epoch, last.leader_epoch()
        if planned is not None and found is not None and found > planned:
            raise StreamsError(
                f"{self._partition}: the record at offset {last.offset()} was written after the range was planned "
                f"(leader epoch {found}, planned {planned}): the brokers have lost records that were there then; plan "
                "the range again"
            )

    def _handle(self, error: KafkaError) -> None:
        code = error.code()
        if code in _INVALID_POSITION:
            self._look_at_log()
        elif code in _UNKNOWN_PARTITION and self._doubts < len(_AGAIN_S):
            self._try_again()
        elif code in _FINAL or code in _UNKNOWN_PARTITION or error.fatal():
            why = error.str()
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                why = missing_right("READ", TOPIC, [self._partition.topic])
            raise StreamsError(f"{self._partition} cannot be read at offset {self._range.position}: {why}")

    def _look_at_log(self) -> None:
        """A broker refused the position: skip deleted records if that is allowed, or try again."""
        position = self._range.position
        try:
            native = confluent_kafka.TopicPartition(*self._partition)
            found = self._consumer.get_watermark_offsets(native, timeout=_WATERMARK_TIMEOUT_S)
            low, high = cast("tuple[int, int] | None", found) or (-1, -1)  # None when no broker answered
        except KafkaException:
            low, high = -1, -1
        if not 0 <= low <= high:  # no broker answers: the read gives up when it has no patience left
            self._assign()
        elif position < low and self._limits.skip_gone:
            _log.warning("%s: offsets %d to %d are gone and skipped", self._partition, position, low - 1)
            self._range.position = low
            self._assign()
        elif position < low or self._doubts >= len(_AGAIN_S):
            raise _gone(self._partition, position, low, high)
        else:
            self._try_again()

    def _try_again(self) -> None:
        time.sleep(_AGAIN_S[self._doubts])
        self._doubts += 1
        self._assign()

    def _stuck(self) -> StreamsError:
        waited_ms = self._limits.patience_ms
        return BrokerUnavailableError(
            f"no record of {self._partition} came for {waited_ms} ms at offset {self._range.position}, and the range "
            f"ends at {self._range.end} ({self._bootstrap}); is a broker down, or was the topic deleted and created "
            "again?"
        )


def _size(messages: list[Message], keys: list[bytes | None], headers: list[Headers | None]) -> int:
    # len() of a message is the length of its value. Joining the keys is twice as fast as adding up their lengths.
    size = sum(map(len, messages)) + len(b"".join(filter(None, keys))) + _RECORD_BYTES * len(messages)
    if headers.count(None) < len(headers):
        size += sum(len(name) + len(value or b"") + _RECORD_BYTES for of in headers for name, value in of or ())
    return size


def _gone(partition: TopicPartition, wanted: int, low: int, high: int) -> OffsetOutOfRangeError:
    if wanted < low:
        text = (
            f"OFFSET_GONE: offset {wanted} of {partition} was deleted, the first one left is {low}; read from "
            "there, keep records longer, or set on.gone=skip"
        )
    elif wanted > high:
        text = f"offset {wanted} of {partition} does not exist: the log ends at {high}; was the topic created again?"
    else:
        text = (
            f"the leader of {partition} refuses offset {wanted}, although its log has the offsets {low} to {high}; "
            "check the state of the partition"
        )
    return OffsetOutOfRangeError([partition], text)
