"""Find the records that a broker refuses, under both processing guarantees.

A broker accepts or refuses a batch as a whole, so its answer alone does not tell which records of a refused batch are
bad. For some errors, newer brokers name the bad records of a batch (KIP-467). librdkafka then reports the others with
the code ``_INVALID_DIFFERENT_RECORD``.

* If a record was alone in its batch, that record is the bad one. The production exception handler decides about it.
* Otherwise all tasks of the producer go back to their last commit, and the topic is *isolated* for a while. Without
  transactions, the records of an isolated topic are sent one by one, so each answer concerns one record. In a
  transaction they are still sent in batches, as long as the broker names the bad records. Delivery reports of isolated
  records carry the whole record.
* A transaction with a refused record cannot be committed. If the handler skips the record, it is *left out*: the tasks
  go back to the last commit, and the record is not sent when they produce it again.

librdkafka does not keep the timestamp and headers of a failed record, so records cannot be resent from here.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from confluent_kafka import KafkaError, Message

from streams_py.adapters.confluent.failures import is_refusal
from streams_py.errors import ProductionError, RefusedRecord, StreamsError

Known: TypeAlias = "tuple[int, Sequence[tuple[str, bytes | None]] | None]"
"""Timestamp (ms) and headers of a record, which librdkafka's report of a failed record lacks."""

_ISOLATED_S: Final = 60.0
"""Time that a topic stays isolated after its last refused record, in seconds."""
_BATCHES_MAX: Final = 10
"""Limit of consecutive refused batches of one topic. After each of them, the tasks go back to the last commit."""
_UNMATCHED_ROUNDS_MAX: Final = 20
"""Number of times that tasks may go back for a refused record that they then don't produce again."""
_LEFT_OUT_S: Final = 300.0
"""Time that a record stays left out, in seconds. An equal record that is produced later is sent and refused again."""


class Failure(NamedTuple):
    """A record that was not written.

    ``record`` is set for refused records only, to limit memory: 100,000 records may expire at the same time.
    """

    error: KafkaError
    topic: str
    partition: int | None
    record: RefusedRecord | None = None
    is_batch: bool = False
    was_sent: bool = True
    raised: ProductionError | None = None
    """The error, if a client other than librdkafka sent the record."""


class Refusals:
    """Failed records of one producer.

    Args:
        batch_limit: Returns the largest batch size of a topic; None without a limit.
        all_alone: Whether the producer sends each record in a separate batch.
    """

    def __init__(self, batch_limit: Callable[[str], int | None], *, all_alone: bool = False) -> None:
        self._batch_limit = batch_limit
        self._all_alone = all_alone
        self.failures: deque[Failure] = deque()
        """Failures to raise to the caller. Failures of the same partition are in the order of its records."""
        self.reported: list[Failure] = []
        """Failures reported since the last :meth:`sort`."""
        self.isolated: dict[str, float] = {}
        """Isolated topics, each with the end of its isolation (monotonic seconds)."""
        self._batches: dict[str, int] = {}

    def note(self, error: KafkaError, message: Message, known: Known | None) -> None:
        """Add the report of a failed record."""
        topic, partition = message.topic() or "?", message.partition()
        record = None
        if is_refusal(error):
            timestamp_ms, headers = known or (-1, None)
            key, value = message.key(), message.value()
            record = RefusedRecord(topic, partition, key, value, timestamp_ms, tuple(headers or ()))
        self.reported.append(Failure(error, topic, partition, record))

    def has_refused_batch(self) -> bool:
        """Whether a batch was refused whose bad records are unknown."""
        return any(not self._is_alone(topic, group) for (topic, _), group in self._groups().items())

    def sort(
        self, *, bad_records: Callable[[str, Sequence[Failure]], Sequence[Failure] | None] | None = None
    ) -> list[str]:
        """Sort the reported failures into failures of single records and refused batches.

        Args:
            bad_records: Returns the bad records of a batch, or None when they are unknown.

        Returns:
            The topics of refused batches. They are isolated from now on.
        """
        bad_records = bad_records or self._bad_records
        groups = self._groups()
        others = [failure for failure in self.reported if failure.record is None]
        self.reported.clear()
        refused: dict[str, Failure] = {}
        for (topic, _), group in groups.items():
            bad = bad_records(topic, group)
            if bad is None:
                refused.setdefault(topic, next((one for one in group if not _is_neighbour(one)), group[0]))
                continue
            self.failures.extend(bad)
            if topic in self.isolated:
                self.isolated[topic] = time.monotonic() + _ISOLATED_S
        self.failures.extend(others)  # in a transaction, the refusals are their cause
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
        # The tasks will produce the records of this topic again.
        others = [one for one in self.failures if one.record is None or one.topic != topic]
        self.failures.clear()
        self.failures.append(failure._replace(record=None, is_batch=True))
        self.failures.extend(others)

    def release(self) -> None:
        """End the isolation of topics without a recent refusal. Called when all records are written."""
        now_s = time.monotonic()
        for topic in [topic for topic, until_s in self.isolated.items() if now_s > until_s]:
            del self.isolated[topic]
            self._batches.pop(topic, None)

    def forget(self) -> None:
        """Forget all failures. Called when all tasks are at their last commit."""
        self.failures.clear()
        self.reported.clear()

    def _groups(self) -> dict[tuple[str, int | None], list[Failure]]:
        """Group refused records by partition. librdkafka reports the records of a batch together."""
        groups = defaultdict(list)
        for failure in self.reported:
            if failure.record is not None:
                groups[failure.topic, failure.partition].append(failure)
        return groups

    def _bad_records(self, topic: str, group: Sequence[Failure]) -> Sequence[Failure] | None:
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
    """Return the bad records of a batch of an isolated topic; None when the broker has not named them."""
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
    """Records that are not sent when they are produced again, and the records that are sent instead of them.

    ``waiting`` has the records that are still to be left out. A record is left out once for each refusal.
    """

    def __init__(self) -> None:
        self.waiting: dict[_Identity, deque[_LeftOut]] = {}
        self._new: list[_LeftOut] = []  # of this round
        self._met: list[_LeftOut] = []  # in this transaction
        self._round = 0

    def add(self, record: RefusedRecord, instead: Iterable[tuple[object, ...]], cause: Exception) -> None:
        """Leave this record out from the next round on.

        Args:
            record: The refused record.
            instead: Arguments of ``produce`` for each record to send instead (dead letters).
            cause: The error with which the record was refused.

        Raises:
            StreamsError: The tasks went back too often without producing an equal record again.
        """
        missed = {one.round for of_one in self.waiting.values() for one in of_one}
        if len(missed) >= _UNMATCHED_ROUNDS_MAX:
            raise StreamsError(
                f"{cause}; the tasks went back to their last commit {len(missed)} times in order to leave out such "
                f"records, but produced different records each time: make the records for {record.topic} depend only "
                "on their input, or fix the cause of the broker's error"
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
        """Return the records to send instead of this record; None when this record has to be sent."""
        found = self.waiting.get((topic, key, value, timestamp_ms, tuple(headers or ())))
        if found is None:
            return None
        one = found.popleft()
        if not found:
            del self.waiting[one.identity]
        self._met.append(one)
        return one.instead

    def go_back(self) -> None:
        """Start the next round: all tasks are at their last commit and produce their records again."""
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
        """Forget the records left out so far: after a commit, tasks don't produce them again."""
        self._met.clear()
