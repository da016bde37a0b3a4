"""Kafka without Kafka: records, a producer and a clock that live in memory.

For tests of whatever works with the ports in :mod:`streams_py.ports`, and the ground :class:`TopologyTestDriver` stands
on. Nothing here starts a thread or waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError, ProductionError, TaskMigratedError
from streams_py.topology.partitioning import partition_for

__all__ = ["ManualClock", "MemoryProducer", "MemoryRecord"]

_Headers = list[tuple[str, bytes | None]]
_CREATE_TIME = 1  # confluent-kafka's TIMESTAMP_CREATE_TIME


class ManualClock:
    """A clock that moves only when told to. Both of its times start at ``now_ms``."""

    def __init__(self, now_ms: int = 0) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        """Wall clock, ms."""
        return self.time_ms

    def monotonic_ms(self) -> int:
        """The same time."""
        return self.time_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Move the clock."""
        self.time_ms += duration_ms

    advance = sleep_ms


class MemoryRecord:
    """A raw record with the accessors of confluent-kafka's ``Message``. ``timestamp_ms`` -1: it has none.

    ``producers_clock``: whoever sent it left the timestamp to the producer.
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
        """Topic name."""
        return self._topic

    def partition(self) -> int:
        """Partition number."""
        return self._partition

    def offset(self) -> int:
        """Offset in the partition."""
        return self._offset

    def key(self) -> bytes | None:
        """Key bytes."""
        return self._key

    def value(self) -> bytes | None:
        """Value bytes."""
        return self._value

    def timestamp(self) -> tuple[int, int]:
        """(type, ms)."""
        return self._timestamp

    def headers(self) -> _Headers | None:
        """A new list each time, None when there are no headers."""
        return None if self._headers is None else list(self._headers)

    def __repr__(self) -> str:
        return (
            f"MemoryRecord({self._topic}-{self._partition}@{self._offset}, {self._key!r}={self._value!r}, "
            f"{self._timestamp[1]} ms)"
        )


class MemoryProducer:
    """A producer whose broker is a list per partition, acknowledging at once.

    ``partitions``: partition counts of topics (default 1 each). ``on_record`` sees every record as it arrives.
    ``refuse``: asked for each record; an error it gives is raised later, as with a real broker.
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
        """Append a record. Raises the error of an earlier one that was refused."""
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
        """Every record goes through ``produce``."""

    def _any_partition(self, count: int) -> int:
        self._keyless += 1
        return self._keyless % count

    def poll(self, timeout_ms: int = 0) -> int:
        """Nothing ever waits."""
        return 0

    def flush(self, timeout_ms: int) -> int:
        """Counts calls; nothing ever waits."""
        self.flushes += 1
        return 0

    def overdue(self, timeout_ms: int) -> int:
        """Everything is written at once."""
        return 0

    def check(self) -> None:
        """Raise the error of the first refused record whose error was not raised before."""
        if self._errors:
            raise self._errors.popleft()

    def leave_out(self, error: ProductionError, instead: Iterable[tuple[object, ...]]) -> None:
        """There are no transactions here."""

    def acked_offsets(self) -> Mapping[TopicPartition, int]:
        """Last offset of every tracked partition."""
        return {
            partition: log[-1].offset()
            for partition, log in self.records.items()
            if partition.topic in self._tracked and log
        }

    def track(self, topics: Collection[str]) -> None:
        """Topics for :meth:`acked_offsets`."""
        self._tracked.update(topics)

    def partitions_for(self, topic: str) -> int:
        """Partition count."""
        return self._partitions.get(topic, 1)

    def reset(self) -> None:
        """Nothing waits to be sent."""
        self._halted = None

    def halt(self, reason: str) -> None:
        """Take no more records until :meth:`reset`."""
        self._halted = reason

    def hold(self, reason: str | None) -> None:
        """Take no records while there is a reason."""
        self._held = reason

    def close(self) -> None:
        """Nothing to close."""
