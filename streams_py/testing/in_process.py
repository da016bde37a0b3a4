"""Real tasks in one process: no broker, no threads, no files, and a manual clock.

Used by the test driver and by the comparison with recorded runs. The tasks are the runtime's tasks, and their stores
come from :mod:`streams_py.state`, in memory. If a task writes a record to a topic that another task reads, the record
is delivered to that task, as a broker would do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import UnknownStateStoreError
from streams_py.runtime.offline.executor import TaskEnvironment, TaskExecutor, exact_topics
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.asynchronous.event_loop import Background, EventLoop
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.runtime.tasks.task import TaskNodes
from streams_py.state.caching.cache import RecordCache
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.opening.stores import Store, changelog_topic
from streams_py.state.reading.write_protected import write_protected
from streams_py.testing.memory_clients import ManualClock, MemoryProducer, MemoryRecord
from streams_py.topology.declare.names import internal_topics
from streams_py.topology.declare.nodes import SourceNode


class InProcessTasks:
    """Tasks of ``units`` (sub-topologies), one for each partition number. Every topic has ``partitions`` partitions.

    ``on_sent`` is called for every record that a task writes, including changelog records. A topic that matches a
    source's pattern is read from the first write to it.
    """

    def __init__(
        self,
        units: Sequence[TaskNodes],
        settings: TaskSettings,
        *,
        clock: ManualClock,
        partitions: int = 1,
        cache_max_bytes: int = 0,
        on_sent: Callable[[MemoryRecord], None] | None = None,
    ) -> None:
        self.clock = clock
        self.settings = settings
        self.partitions = partitions
        self._units = units
        self._on_sent = on_sent
        self.ties = 0
        """Number of steps in which the oldest records of two input queues of a task had equal timestamps.

        Either record could have been processed first."""
        self._looped: deque[MemoryRecord] = deque()
        self._readers: dict[str, tuple[int, ...]] = {}
        self.producer = MemoryProducer(_SameForAll(partitions), on_record=self._sent, clock=clock)
        self.producer.track(
            {
                changelog_topic(store, settings.application_id)
                for unit in units
                for store in unit.stores
                if store.logging
            }
        )
        self._background = Background(EventLoop("test-AsyncCalls"))
        self._environment = TaskEnvironment(
            settings=settings,
            producer=self.producer,
            clock=clock,
            # Not persistent: no file is read or written, and all stores are in memory.
            directory=StateDirectory("unused", settings.application_id, persistent=False),
            cache=RecordCache(cache_max_bytes, clock.monotonic_ms),
            background=self._background,
            task_ids=self._task_ids,
            owner="test",
        )
        self._globals = {
            unit: self._started(self._executor(unit, range(partitions), {}))
            for unit, nodes in enumerate(units)
            if nodes.is_global
        }
        global_stores = {
            builder.name: write_protected(executor.store(builder.name))
            for executor in self._globals.values()
            for builder in executor.task.nodes.stores
        }
        self._executors = {
            (unit, partition): self._executor(unit, [partition], global_stores)
            for unit in range(len(units))
            if unit not in self._globals
            for partition in range(partitions)
        }
        for executor in self._executors.values():
            self._started(executor)

    @staticmethod
    def _started(executor: TaskExecutor) -> TaskExecutor:
        executor.start()
        return executor

    def _executor(self, unit: int, partitions: Sequence[int], global_stores: Mapping[str, Any]) -> TaskExecutor:
        nodes = self._units[unit]
        topics = exact_topics(nodes.nodes, self.settings.application_id)
        return TaskExecutor(
            TaskId(unit, partitions[0]),
            nodes,
            [TopicPartition(topic, partition) for topic in topics for partition in partitions],
            replace(self._environment, cache=None) if nodes.is_global else self._environment,
            global_stores=global_stores,
        )

    @property
    def tasks(self) -> dict[tuple[int, int], ActiveTask]:
        """The tasks by (unit, partition number)."""
        return {at: executor.task for at, executor in self._executors.items()}

    def _task_ids(self) -> list[TaskId]:
        return [executor.task.id for executor in self._executors.values()]

    # -- topics --------------------------------------------------------------------------------------------------------

    def readers_of(self, topic: str) -> tuple[int, ...]:
        """Return the numbers of the units that read a topic."""
        found = self._readers.get(topic)
        if found is None:
            found = self._readers[topic] = tuple(
                unit for unit, nodes in enumerate(self._units) if self._reads(unit, nodes, topic)
            )
        return found

    def _reads(self, unit: int, nodes: TaskNodes, topic: str) -> bool:
        if topic in exact_topics(nodes.nodes, self.settings.application_id):
            return True
        if internal_topics(self.settings.application_id).fullmatch(topic):
            return False
        patterns = [node.pattern for node in nodes.nodes if isinstance(node, SourceNode) and node.pattern is not None]
        if not any(pattern.fullmatch(topic) for pattern in patterns):
            return False
        for partition in range(self.partitions):
            task = self._executors[unit, partition].task
            task.update_input_partitions({*task.input_partitions, TopicPartition(topic, partition)})
        return True

    def source_names(self) -> list[str]:
        """Return topic names and patterns of all sources."""
        sources = [node for unit in self._units for node in unit.nodes if isinstance(node, SourceNode)]
        named = {topic for unit in self._units for topic in exact_topics(unit.nodes, self.settings.application_id)}
        return sorted(named | {source.pattern.pattern for source in sources if source.pattern is not None})

    def _sent(self, record: MemoryRecord) -> None:
        if self._on_sent is not None:
            self._on_sent(record)
        if self.readers_of(record.topic()):
            self._looped.append(record)

    def write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: list[tuple[str, bytes | None]] | None,
        partition: int,
    ) -> None:
        """Add an input record to the queues of the tasks that read its topic."""
        log = self.producer.records.setdefault(TopicPartition(topic, partition), [])
        record = MemoryRecord(topic, partition, len(log), key, value, timestamp_ms=timestamp_ms, headers=headers)
        log.append(record)
        self._deliver(record)

    def _deliver(self, record: MemoryRecord) -> None:
        partition = TopicPartition(record.topic(), record.partition())
        for unit in self.readers_of(record.topic()):
            if unit in self._globals:
                self._globals[unit].add(partition, [record])
                self._globals[unit].task.process(1)
            else:
                self._executors[unit, partition.partition].add(partition, [record])
        self._environment.inputs.next_offsets[partition] = record.offset() + 1

    # -- work -------------------------------------------------------------------------------------------------

    def drain(self, *, commit: bool) -> int:
        """Process until no record is left; return the number of records. ``commit``: commit after each record."""
        total = 0
        while True:
            self._deliver_looped()
            processed = sum(self._step(executor, commit=commit) for executor in self._executors.values())
            if not processed and not self._looped:
                return total
            total += processed

    def _step(self, executor: TaskExecutor, *, commit: bool) -> int:
        self.ties += executor.task.records.is_tied()
        if not executor.step():
            return 0
        if commit:
            executor.commit()
        self._deliver_looped()
        return 1

    def _deliver_looped(self) -> None:
        while self._looped:
            self._deliver(self._looped.popleft())

    def commit(self) -> None:
        """Commit all tasks. Records that this forwards are processed by the next :meth:`drain`."""
        for executor in self._executors.values():
            executor.commit()

    def advance(self, duration_ms: int) -> None:
        """Advance the clock and run the wall-clock punctuators that are due."""
        self.clock.advance(duration_ms)
        for executor in self._executors.values():
            task = executor.task
            task.punctuators.fire_wall_clock()
            task.await_answers()

    def store(self, name: str, partition: int) -> Store:
        """Return a store of the task with that partition number. Raises UnknownStateStoreError."""
        everywhere = [((unit, partition), executor) for unit, executor in self._globals.items()]
        for (_, number), executor in (*self._executors.items(), *everywhere):
            if number == partition and any(builder.name == name for builder in executor.task.nodes.stores):
                return executor.store(name)
        known = ", ".join(self.store_names()) or "none"
        raise UnknownStateStoreError(f"store {name!r} does not exist; the topology has {known}")

    def store_names(self) -> list[str]:
        """Names of all stores, of every unit."""
        return sorted({builder.name for unit in self._units for builder in unit.stores})

    def close(self) -> None:
        """Suspend and close all tasks, then raise the first error of a processor's ``close``, if any."""
        failed = [executor.close() for executor in (*self._executors.values(), *self._globals.values())]
        self._background.loop.close()
        for error in failed:
            if error is not None:
                raise error


class _SameForAll(dict[str, int]):
    """Returns the same partition count for every topic."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def get(self, key: str, default: Any = None) -> Any:
        return self._number
