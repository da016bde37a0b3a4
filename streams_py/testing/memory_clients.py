"""In-memory records, producer and clock for tests without Kafka.

For tests of code that uses the ports in :mod:`streams_py.ports`. :class:`TopologyTestDriver` is built on them. Nothing
here starts a thread or waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError, ProductionError, TaskMigratedError
from streams_py.topology.partitioning import partition_for

_Headers = list[tuple[str, bytes | None]]
_CREATE_TIME = 1  # confluent-kafka's TIMESTAMP_CREATE_TIME


class ManualClock:
    """A clock that moves only when a test advances it. Wall clock and monotonic time start at ``now_ms``."""

    def __init__(self, now_ms: int = 0) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        """Return the wall-clock time in ms."""
        return self.time_ms

    def monotonic_ms(self) -> int:
        """Return the monotonic time in ms; it equals the wall-clock time."""
        return self.time_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Advance the clock; returns immediately."""
        self.time_ms += duration_ms

    advance = sleep_ms


class MemoryRecord:
    """A raw record with the accessors of confluent-kafka's ``Message``. ``timestamp_ms`` -1: no timestamp.

    ``producers_clock``: the sender set no timestamp, so the producer's clock set it.
    """

    __slots__ = ("_headers", "_key", "_offset", "_partition", "_timestamp", "_topic", "_value", "producers_clock")

    def __init__(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        key: bytes | None = None,
        value: bytes | None = None,
        *,
        timestamp_ms: int = 0,
        headers: Collection[tuple[str, bytes | None]] | None = None,
        producers_clock: bool = False,
    ) -> None:
        self.producers_clock = producers_clock
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._timestamp = (_CREATE_TIME, timestamp_ms)
        self._headers: _Headers | None = list(headers) if headers else None

    def topic(self) -> str:
        """Return the topic name."""
        return self._topic

    def partition(self) -> int:
        """Return the partition number."""
        return self._partition

    def offset(self) -> int:
        """Return the offset in the partition."""
        return self._offset

    def key(self) -> bytes | None:
        """Return the key bytes."""
        return self._key

    def value(self) -> bytes | None:
        """Return the value bytes."""
        return self._value

    def timestamp(self) -> tuple[int, int]:
        """Return (timestamp type, ms)."""
        return self._timestamp

    def headers(self) -> _Headers | None:
        """Return a new list of headers each time; None without headers."""
        return None if self._headers is None else list(self._headers)

    def __repr__(self) -> str:
        return (
            f"MemoryRecord({self._topic}-{self._partition}@{self._offset}, {self._key!r}={self._value!r}, "
            f"{self._timestamp[1]} ms)"
        )


class MemoryProducer:
    """A producer that appends records to one list per partition and acknowledges them immediately.

    Args:
        partitions: Partition count by topic; default 1 each.
        on_record: Called with every record that was written.
        refuse: Called for each record. An error that it returns is raised by a later call, as with a real broker.
        clock: Sets the timestamp of records that have none.
    """

    def __init__(
        self,
        partitions: Mapping[str, int] | None = None,
        *,
        on_record: Callable[[MemoryRecord], None] | None = None,
        refuse: Callable[[MemoryRecord], ProductionError | None] | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.records: dict[TopicPartition, list[MemoryRecord]] = {}
        self.sent: list[MemoryRecord] = []
        self.flushes = 0
        self._partitions: Mapping[str, int] = {} if partitions is None else partitions
        self._on_record = on_record
        self._refuse = refuse
        self._clock = clock or ManualClock()
        self._tracked: set[str] = set()
        self._errors: deque[ProductionError] = deque()
        self._halted: str | None = None
        self._held: str | None = None
        self._keyless = 0
        self.produce: Callable[..., None] = self._produce
        self.blocked: AbstractContextManager[None] = nullcontext()

    def _produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        on_delivery: object = None,
        timestamp_ms: int = -1,
        headers: _Headers | None = None,
    ) -> None:
        """Append a record. Raises the error of an earlier record that was refused."""
        if self._halted is not None:
            raise TaskMigratedError(self._halted)
        if self._held is not None:
            raise BrokerUnavailableError(self._held)
        self.check()
        count = self.partitions_for(topic)
        if partition < 0:
            partition = self._any_partition(count) if key is None else partition_for(key, count)
        log = self.records.setdefault(TopicPartition(topic, partition), [])
        unset = timestamp_ms < 0
        time_ms = self._clock.now_ms() if unset else timestamp_ms
        record = MemoryRecord(
            topic, partition, len(log), key, value, timestamp_ms=time_ms, headers=headers, producers_clock=unset
        )
        if self._refuse is not None and (error := self._refuse(record)) is not None:
            self._errors.append(error)
            return
        log.append(record)
        self.sent.append(record)
        if self._on_record is not None:
            self._on_record(record)

    def direct(self, topic: str, partition: int = -1) -> None:
        """Do nothing: every record goes through ``produce``."""

    def _any_partition(self, count: int) -> int:
        self._keyless += 1
        return self._keyless % count

    def poll(self, timeout_ms: int = 0) -> int:
        """Return 0: no record ever waits for an acknowledgement."""
        return 0

    def flush(self, timeout_ms: int) -> int:
        """Count the call and return 0: no record ever waits for an acknowledgement."""
        self.flushes += 1
        return 0

    def overdue(self, timeout_ms: int) -> int:
        """Return 0: every record is written immediately."""
        return 0

    def check(self) -> None:
        """Raise the oldest error of a refused record that was not raised yet, if there is one."""
        if self._errors:
            raise self._errors.popleft()

    def leave_out(self, error: ProductionError, instead: Iterable[tuple[object, ...]]) -> None:
        """Do nothing: this producer has no transactions."""

    def acked_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the last offset of every partition of the tracked topics."""
        return {
            partition: log[-1].offset()
            for partition, log in self.records.items()
            if partition.topic in self._tracked and log
        }

    def track(self, topics: Collection[str]) -> None:
        """Let :meth:`acked_offsets` also report these topics."""
        self._tracked.update(topics)

    def partitions_for(self, topic: str) -> int:
        """Return the partition count of a topic."""
        return self._partitions.get(topic, 1)

    def reset(self) -> None:
        """Accept records again after :meth:`halt`. No record is queued, so none is dropped."""
        self._halted = None

    def halt(self, reason: str) -> None:
        """Reject records with TaskMigratedError until :meth:`reset`."""
        self._halted = reason

    def hold(self, reason: str | None) -> None:
        """Reject records with BrokerUnavailableError while ``reason`` is not None."""
        self._held = reason

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
