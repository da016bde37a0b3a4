"""Isolates the records that a broker refuses, under both guarantees.

A broker answers for a batch. A batch with one bad record is refused as a whole, so the answer alone does not say which
records are good. Kafka's newer brokers name the bad records of a batch for some errors (KIP-467); librdkafka then
reports the others with the code ``_INVALID_DIFFERENT_RECORD``.

* A record that was alone in its batch is refused for itself: the production handler is asked about it.
* Otherwise all tasks of the producer go back to their last commit, and the topic is *isolated* for a while. Without
  transactions the records of an isolated topic go one by one, so each answer concerns one record. In a transaction they
  stay in batches, as long as the broker names the bad records. Reports of isolated records know the whole record.
* A transaction cannot be committed once one of its records was refused. If the handler lets the record pass, the
  record is *left out*: the tasks go back to the last commit, and the record is not sent when they make it again.

librdkafka does not keep timestamp and headers of a record that failed, so records cannot be sent again from here.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from confluent_kafka import KafkaError, Message

from streams_py.adapters.confluent.failures import is_refusal
from streams_py.errors import ProductionError, RefusedRecord, StreamsError

__all__ = ["Failure", "Known", "LeftOutRecords", "Refusals", "named_by_broker"]

Known: TypeAlias = "tuple[int, Sequence[tuple[str, bytes | None]] | None]"
"""Timestamp (ms) and headers of a record: what a report of librdkafka about a failed record lacks."""

_ISOLATED_S: Final = 60.0
"""How long a topic stays isolated after the last record that was refused."""
_BATCHES_MAX: Final = 10
"""How often batches of one topic may be refused in a row, each time with a return to the last commit."""
_VAIN_ROUNDS_MAX: Final = 20
"""How often tasks may go back for a refused record that they then make differently."""
_LEFT_OUT_S: Final = 300.0
"""How long a record stays left out. An equal record that is made later is sent, and refused for itself."""


class Failure(NamedTuple):
    """A record that was not written. ``record`` is kept for refused records only: 100,000 may expire at a time."""

    error: KafkaError
    topic: str
    partition: int | None
    record: RefusedRecord | None = None
    is_batch: bool = False
    was_sent: bool = True
    raised: ProductionError | None = None
    """The error, where another client than librdkafka has written the record."""


class Refusals:
    """Failed records of one producer. ``batch_limit`` gives the size of the batches of a topic, if it is limited.
    ``all_alone``: the producer sends every record in a batch of its own."""

    def __init__(self, batch_limit: Callable[[str], int | None], *, all_alone: bool = False) -> None:
        self._batch_limit = batch_limit
        self._all_alone = all_alone
        self.failures: deque[Failure] = deque()
        """What the caller has to be told, in the order of its partitions."""
        self.reported: list[Failure] = []
        """What was reported since the last :meth:`sort`."""
        self.isolated: dict[str, float] = {}
        """Isolated topics, and until when (monotonic seconds)."""
        self._batches: dict[str, int] = {}

    def note(self, error: KafkaError, message: Message, known: Known | None) -> None:
        """Take the report of a failed record."""
        topic, partition = message.topic() or "?", message.partition()
        record = None
        if is_refusal(error):
            timestamp_ms, headers = known or (-1, None)
            key, value = message.key(), message.value()
            record = RefusedRecord(topic, partition, key, value, timestamp_ms, tuple(headers or ()))
        self.reported.append(Failure(error, topic, partition, record))

    def has_refused_batch(self) -> bool:
        """Whether :meth:`sort` would find a batch without knowing which of its records is bad."""
        return any(not self._is_alone(topic, group) for (topic, _), group in self._groups().items())

    def sort(self, *, told: Callable[[str, Sequence[Failure]], Sequence[Failure] | None] | None = None) -> list[str]:
        """Sort what was reported: failures of single records, and the topics of refused batches, which are isolated
        from now on. ``told(topic, group)`` gives the bad records of a batch when they are known, else None."""
        told = told or self._told
        groups = self._groups()
        others = [failure for failure in self.reported if failure.record is None]
        self.reported.clear()
        refused: dict[str, Failure] = {}
        for (topic, _), group in groups.items():
            bad = told(topic, group)
            if bad is None:
                refused.setdefault(topic, next((one for one in group if not _is_neighbour(one)), group[0]))
                continue
            self.failures.extend(bad)
            if topic in self.isolated:
                self.isolated[topic] = time.monotonic() + _ISOLATED_S
        self.failures.extend(others)  # in a transaction they follow from the refusals
        for topic, failure in refused.items():
            self._isolate(topic, failure)
        return list(refused)

    def _isolate(self, topic: str, failure: Failure) -> None:
        self._batches[topic] = count = self._batches.get(topic, 0) + 1
        if count > _BATCHES_MAX:
            raise StreamsError(
                f"batches of topic {topic} were refused {count} times in a row, although their records were isolated: "
                f"{failure.error.str()}"
            )
        self.isolated[topic] = time.monotonic() + _ISOLATED_S
        others = [one for one in self.failures if one.record is None or one.topic != topic]  # those are made again
        self.failures.clear()
        self.failures.append(failure._replace(record=None, is_batch=True))
        self.failures.extend(others)

    def release(self) -> None:
        """Everything was written: topics without a refusal for a while need not be isolated."""
        now_s = time.monotonic()
        for topic in [topic for topic, until_s in self.isolated.items() if now_s > until_s]:
            del self.isolated[topic]
            self._batches.pop(topic, None)

    def forget(self) -> None:
        """All tasks are at their last commit."""
        self.failures.clear()
        self.reported.clear()

    def _groups(self) -> dict[tuple[str, int | None], list[Failure]]:
        """Refused records by partition. Those of a batch are reported together."""
        groups = defaultdict(list)
        for failure in self.reported:
            if failure.record is not None:
                groups[failure.topic, failure.partition].append(failure)
        return groups

    def _told(self, topic: str, group: Sequence[Failure]) -> Sequence[Failure] | None:
        return group if self._is_alone(topic, group) else None

    def _is_alone(self, topic: str, group: Sequence[Failure]) -> bool:
        """Whether each of these records was alone in its batch."""
        if self._all_alone or topic in self.isolated:
            return True
        if len(group) == 1 and not _is_neighbour(group[0]):
            return True
        limit = self._batch_limit(topic)
        return limit is not None and all(_is_too_large(failure, limit) for failure in group)


def named_by_broker(group: Sequence[Failure]) -> Sequence[Failure] | None:
    """The bad records of a batch in an isolated topic; None when the broker has not named them."""
    bad = [failure for failure in group if not _is_neighbour(failure)]
    return bad if len(bad) == 1 or len(bad) < len(group) else None


def _is_neighbour(failure: Failure) -> bool:
    return failure.error.code() == KafkaError._INVALID_DIFFERENT_RECORD


def _is_too_large(failure: Failure, limit: int) -> bool:
    return (
        failure.error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        and failure.record is not None
        and _size_of(failure.record) > limit
    )


def _size_of(record: RefusedRecord) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(
        len(name.encode("utf-8", "surrogateescape")) + len(value or b"") for name, value in record.headers
    )


_Identity: TypeAlias = "tuple[str, bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]"


class _LeftOut(NamedTuple):
    identity: _Identity
    instead: tuple[tuple[object, ...], ...]
    until_s: float
    round: int


class LeftOutRecords:
    """Records that are not sent when they are made again, and what is sent instead.

    ``waiting`` is empty unless there are some. A record is left out once for each time that it was refused.
    """

    def __init__(self) -> None:
        self.waiting: dict[_Identity, deque[_LeftOut]] = {}
        self._new: list[_LeftOut] = []  # of this round
        self._met: list[_LeftOut] = []  # in this transaction
        self._round = 0

    def add(self, record: RefusedRecord, instead: Iterable[tuple[object, ...]], cause: Exception) -> None:
        """Leave this record out from the next round on. StreamsError when rounds do not help."""
        missed = {one.round for of_one in self.waiting.values() for one in of_one}
        if len(missed) >= _VAIN_ROUNDS_MAX:
            raise StreamsError(
                f"{cause}; the tasks went back to their last commit {len(missed)} times in order to leave out such "
                f"records, and made them differently each time: make records for {record.topic} depend on their input "
                "alone, or correct what the broker complains about"
            ) from cause
        identity = (record.topic, record.key, record.value, record.timestamp_ms, record.headers)
        self._new.append(_LeftOut(identity, tuple(instead), time.monotonic() + _LEFT_OUT_S, self._round))

    def take(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int,
        headers: Sequence[tuple[str, bytes | None]] | None,
    ) -> tuple[tuple[object, ...], ...] | None:
        """What to send instead of this record; None when it is to be sent."""
        found = self.waiting.get((topic, key, value, timestamp_ms, tuple(headers or ())))
        if found is None:
            return None
        one = found.popleft()
        if not found:
            del self.waiting[one.identity]
        self._met.append(one)
        return one.instead

    def go_back(self) -> None:
        """All tasks are at their last commit: they make all records again."""
        waiting = [one for of_one in self.waiting.values() for one in of_one]
        every = [*self._met, *waiting, *self._new]
        self.waiting.clear()
        self._met.clear()
        self._new.clear()
        self._round += 1
        now_s = time.monotonic()
        for one in every:
            if one.until_s > now_s:
                self.waiting.setdefault(one.identity, deque()).append(one)

    def committed(self) -> None:
        """What was left out so far is never made again."""
        self._met.clear()
