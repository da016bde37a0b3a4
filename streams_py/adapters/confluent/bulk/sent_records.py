"""Find the record that a broker refused in a sequence of records that is not part of a topology.

A broker accepts or refuses a batch as a whole, so its answer may concern hundreds of records, only one of which is bad.
So the refused records are sent again, each in a separate batch, until one of them is refused again. That requires the
whole records, but librdkafka keeps neither timestamp nor headers of a failed record. So the caller provides a function
that returns its next records again, once for many records. For each record the caller only increments a counter.

The number of a record is its position in the sequence. Keys and values are not shown, because they may be secret.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from confluent_kafka import KafkaError, Message

from streams_py.adapters.confluent.failures import is_refusal, send_error
from streams_py.adapters.confluent.producer import ConfluentProducer
from streams_py.adapters.confluent.settings import Settings
from streams_py.errors import ProductionError, RefusedRecord, StreamsError
from streams_py.ports.record_headers import check_header_names

ALONE: Final[Settings] = {"batch.num.messages": 1, "linger.ms": 0}
"""Settings of a producer that sends each record in a separate batch."""
_ALONE_MAX: Final = 10_000
"""Limit of refused records that are sent again."""
_KEPT_MIN: Final = 10_000
_STEP_MS: Final = 100

Sent: TypeAlias = "tuple[str, int, bytes | None, bytes | None, int | None, Sequence[tuple[str, bytes | None]] | None]"
"""Topic, partition, value, key, timestamp (None or below 0: the time of writing) and headers."""
_NOW: Final = -1


class _Refused(NamedTuple):
    """A refused record, as librdkafka reports it. ``number`` is 0 when its position in the sequence is unknown."""

    error: KafkaError
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    number: int = 0


class SentRecords:
    """The last records of one writer. Not thread-safe.

    Args:
        name: Name of the sequence, for errors such as "record 7 of <name>".
        alone: Replaces the writer's producer with a producer with the settings of ``ALONE``, and returns it. It is
            called once, when records were refused. From then on, the writer writes no other records.
        timeout_ms: Time limit for sending the refused records one by one.
    """

    def __init__(self, name: str, alone: Callable[[], ConfluentProducer], *, timeout_ms: int) -> None:
        self._name = name
        self._alone = alone
        self._timeout_ms = timeout_ms
        self.number = 0
        """Number of the last record. The caller adds 1 before it sends a record."""
        self._kept: deque[tuple[int, Callable[[], Iterable[Sent]]]] = deque()
        """Functions that return records again, each with the number of the record before its first one."""
        self._acknowledged = 0
        self._refused: list[_Refused] = []
        self._error: StreamsError | None = None

    def begin_at(self, before: int) -> None:
        """Set the number of records of the sequence that were written earlier."""
        self.number = self._acknowledged = before

    def keep(self, records: Callable[[], Iterable[Sent]]) -> None:
        """Keep a function that returns the next records, which the caller is about to send in this order."""
        self._kept.append((self.number, records))

    def forget(self, *, but: int = 0) -> None:
        """Forget acknowledged records: all records, or all except at least the last ``but``."""
        last = self.number if but == 0 else self.number - 2 * but - _KEPT_MIN
        self._acknowledged = max(self._acknowledged, last)
        while len(self._kept) > 1 and self._kept[1][0] <= self._acknowledged:
            self._kept.popleft()

    def on_refusal(self, error: KafkaError, message: Message) -> None:
        """Add the report of a refused record."""
        if len(self._refused) < _ALONE_MAX:
            self._refused.append(_refused(error, message))

    def check(self) -> None:
        """Raise StreamsError when a record was refused. In that case, finding the bad record may take a while."""
        if self._refused:
            self._error = self._error or self._found()
            raise self._error

    def check_headers(self, topic: str, headers: Iterable[tuple[str, bytes | None]]) -> None:
        """Raise StreamsError with the number of the last record for a header that cannot be written."""
        try:
            check_header_names(topic, headers)
        except StreamsError as error:
            raise self.of_last(error) from None

    def of_last(self, error: StreamsError) -> StreamsError:
        """Add the number of the last record to its error."""
        return self._numbered(error, self.number)

    def named(self, error: ProductionError) -> StreamsError:
        """Add the number of the record to an error of the producer, if the error includes the record."""
        if (record := error.record) is None:
            return error
        wanted = (record.topic, record.partition, record.value, record.key, record.timestamp_ms, record.headers)
        number = next((number for number, sent in self._under_way() if _fields(sent) == wanted), None)
        return error if number is None else self._numbered(error, number)

    def _numbered(self, error: StreamsError, number: int) -> StreamsError:
        found = StreamsError(f"record {number:,} of {self._name}: {error}")
        found.__cause__ = error.__cause__
        return found

    def _found(self) -> StreamsError:
        bad = self._refused_alone()
        first = bad or self._refused[0]
        record = RefusedRecord(first.topic, first.partition, first.key, None, -1, ())
        error = send_error(first.error, first.topic, first.partition, record)
        if bad is not None and bad.number:
            key = "no key" if first.key is None else f"key of {len(first.key):,} bytes"
            found = StreamsError(f"record {first.number:,} of {self._name} ({key}): {error}")
        else:
            found = StreamsError(
                f"{self._name}: the broker refused {len(self._refused):,} records in batches, but none of them on its "
                f"own. If a batch was too large, lower batch.size of the producer: {error}"
            )
        found.__cause__ = error.__cause__
        return found

    def _refused_alone(self) -> _Refused | None:
        """Send the refused records again, each in a separate batch, and return the first that is refused again."""
        again: list[_Refused] = []

        def reported(number: int, error: KafkaError | None, message: Message) -> None:
            if error is not None and is_refusal(error):
                again.append(_refused(error, message, number))

        producer = self._alone()
        deadline_s = time.monotonic() + self._timeout_ms / 1000
        with contextlib.suppress(StreamsError):  # a refusal ends a transaction, and its report may come later
            for number, (topic, partition, value, key, timestamp_ms, headers) in self._as_written():
                report = partial(reported, number)
                producer.produce(topic, value, key, partition, report, _stamp(timestamp_ms), headers)
        while producer.flush(_STEP_MS) and not again and time.monotonic() < deadline_s:
            pass
        return min(again, key=lambda one: one.number, default=None)

    def _as_written(self) -> list[tuple[int, Sent]]:
        """Return the refused records with their numbers, and all equal records, which reports don't distinguish."""
        refused = {(one.topic, one.partition, one.value, one.key) for one in self._refused}
        return [(number, sent) for number, sent in self._under_way() if _identity(sent) in refused]

    def _under_way(self) -> Iterator[tuple[int, Sent]]:
        """Yield the records that were sent and may be unacknowledged, with their numbers."""
        for before, records in self._kept:
            for number, sent in enumerate(records(), before + 1):
                if self._acknowledged < number <= self.number:
                    yield number, sent


def _refused(error: KafkaError, message: Message, number: int = 0) -> _Refused:
    partition = message.partition()
    place = (message.topic() or "?", -1 if partition is None else partition)
    return _Refused(error, *place, message.key(), message.value(), number)


def _fields(sent: Sent) -> tuple[object, ...]:
    """Return the fields of a record that a producer's error includes."""
    topic, partition, value, key, timestamp_ms, headers = sent
    return topic, partition, value, key, _stamp(timestamp_ms), tuple(headers or ())


def _stamp(timestamp_ms: int | None) -> int:
    return _NOW if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms


def _identity(sent: Sent) -> tuple[str, int, bytes | None, bytes | None]:
    """Return topic, partition, value and key as in a delivery report: text as bytes."""
    topic, partition, value, key = sent[:4]
    return topic, partition, _as_bytes(value), _as_bytes(key)


def _as_bytes(given: bytes | str | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
