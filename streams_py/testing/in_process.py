"""Real tasks in one process: no broker, no threads, no files, and a clock that stands still.

What the test driver and the comparison with recorded runs share. Tasks are those of the runtime, their stores those of
:mod:`streams_py.state` with memory below. Whatever a task writes to a topic that some task reads comes back to it, as
it would through a broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import UnknownStateStoreError
from streams_py.runtime.event_loop import Background, EventLoop
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.binding import Node
from streams_py.runtime.tasks.collector import RecordCollector
from streams_py.runtime.tasks.task import TaskNodes
from streams_py.runtime.tasks.task_settings import TaskSettings
from streams_py.state.cache import RecordCache
from streams_py.state.directory import StateDirectory
from streams_py.state.open import Store, StoreDefaults, changelog_topic
from streams_py.state.task_state import TaskState
from streams_py.state.write_protected import WriteProtectedStore
from streams_py.testing.memory_clients import ManualClock, MemoryProducer, MemoryRecord
from streams_py.topology.names import internal_topics, topic_on_broker
from streams_py.topology.nodes import SourceNode
from streams_py.topology.stores import StoreBuilder
from streams_py.topology.topology import Topology

__all__ = ["InProcessTasks", "WholeTopology"]

_NEVER_WAIT = -1


@dataclass(frozen=True, slots=True)
class WholeTopology:
    """All nodes and stores of a topology, as if they were one sub-topology."""

    nodes: Sequence[Node]
    stores: Sequence[StoreBuilder]
    is_global: bool = False

    @classmethod
    def units_of(cls, topology: Topology) -> list[TaskNodes]:
        """What has tasks as one unit, and the global stores."""
        subs = topology.subtopologies()
        with_tasks = [sub for sub in subs if not sub.is_global]
        whole = cls(
            [node for node in topology.nodes if any(node in sub.nodes for sub in with_tasks)],
            [store for sub in with_tasks for store in sub.stores],
        )
        return [whole, *(sub for sub in subs if sub.is_global)]


@dataclass(slots=True)
class _Inputs:
    """What the tasks' consumer would know: everything was delivered."""

    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)

    def position(self, partition: TopicPartition) -> int | None:
        return self.next_offsets.get(partition)

    def lag(self, partition: TopicPartition) -> int | None:
        return 0


class InProcessTasks:
    """Tasks of ``units`` (sub-topologies), one for each of ``partitions`` partition numbers; every topic has so many.

    ``on_sent`` sees every record that a task writes, changelog records included. Topics that match a source's pattern
    are read once somebody wrote to them.
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
        self.settings = replace(settings, max_task_idle_ms=_NEVER_WAIT)
        self.partitions = partitions
        self._units = units
        self._on_sent = on_sent
        self._inputs = _Inputs()
        self.ties = 0
        """How often two input queues of a task had equally old heads, so that either could be taken first."""
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
        # Not persistent: no file is touched, and all stores are in memory.
        self._directory = StateDirectory("unused", settings.application_id, persistent=False)
        cache = RecordCache(cache_max_bytes)
        self._globals = {
            unit: self._started(self._task(unit, range(partitions), cache, {}))
            for unit, nodes in enumerate(units)
            if nodes.is_global
        }
        global_stores = {
            builder.name: WriteProtectedStore(task.store(builder.name))
            for task in self._globals.values()
            for builder in task.nodes.stores
        }
        self.tasks = {
            (unit, partition): self._task(unit, [partition], cache, global_stores)
            for unit in range(len(units))
            if unit not in self._globals
            for partition in range(partitions)
        }
        for task in self.tasks.values():
            self._started(task)

    @staticmethod
    def _started(task: ActiveTask) -> ActiveTask:
        task.initialize()
        task.complete_restoration({})
        return task

    def _task(
        self, unit: int, partitions: Sequence[int], cache: RecordCache, global_stores: Mapping[str, WriteProtectedStore]
    ) -> ActiveTask:
        nodes, task_id = self._units[unit], TaskId(unit, partitions[0])
        stores = TaskState(
            task_id,
            nodes.stores,
            application_id=self.settings.application_id,
            directory=self._directory,
            owner="test",
            defaults=StoreDefaults(
                self.settings.default_key_serde, self.settings.default_value_serde, persistent=False
            ),
            cache=cache,
        )
        return ActiveTask(
            task_id,
            nodes,
            [TopicPartition(topic, partition) for topic in self._exact_topics(nodes) for partition in partitions],
            stores,
            collector=RecordCollector(task_id, self.producer, self.settings, sharing=self._task_ids),
            clock=self.clock,
            inputs=self._inputs,
            settings=self.settings,
            global_stores=global_stores,
            background=self._background,
        )

    def _task_ids(self) -> list[TaskId]:
        return [task.id for task in self.tasks.values()]

    def _exact_topics(self, nodes: TaskNodes) -> list[str]:
        return [
            topic_on_broker(self.settings.application_id, topic, is_internal=node.is_internal)
            for node in nodes.nodes
            if isinstance(node, SourceNode)
            for topic in node.topics
        ]

    # -- topics --------------------------------------------------------------------------------------------------------

    def readers_of(self, topic: str) -> tuple[int, ...]:
        """Units that read a topic."""
        found = self._readers.get(topic)
        if found is None:
            found = self._readers[topic] = tuple(
                unit for unit, nodes in enumerate(self._units) if self._reads(unit, nodes, topic)
            )
        return found

    def _reads(self, unit: int, nodes: TaskNodes, topic: str) -> bool:
        if topic in self._exact_topics(nodes):
            return True
        if internal_topics(self.settings.application_id).fullmatch(topic):
            return False
        patterns = [node.pattern for node in nodes.nodes if isinstance(node, SourceNode) and node.pattern is not None]
        if not any(pattern.fullmatch(topic) for pattern in patterns):
            return False
        for partition in range(self.partitions):
            task = self.tasks[unit, partition]
            task.update_input_partitions({*task.input_partitions, TopicPartition(topic, partition)})
        return True

    def source_names(self) -> list[str]:
        """What the sources read: topic names and patterns."""
        sources = [node for unit in self._units for node in unit.nodes if isinstance(node, SourceNode)]
        named = {topic for unit in self._units for topic in self._exact_topics(unit)}
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
        """Put an input record into the queues of those who read its topic."""
        log = self.producer.records.setdefault(TopicPartition(topic, partition), [])
        record = MemoryRecord(topic, partition, len(log), key, value, timestamp_ms=timestamp_ms, headers=headers)
        log.append(record)
        self._deliver(record)

    def _deliver(self, record: MemoryRecord) -> None:
        partition = TopicPartition(record.topic(), record.partition())
        for unit in self.readers_of(record.topic()):
            if unit in self._globals:
                self._globals[unit].add_records(partition, [record])
                self._globals[unit].process(1)
            else:
                self.tasks[unit, partition.partition].add_records(partition, [record])
        self._inputs.next_offsets[partition] = record.offset() + 1

    # -- work -------------------------------------------------------------------------------------------------

    def drain(self, *, commit: bool) -> int:
        """Process until nothing is left to process; how many records. ``commit``: after every one of them."""
        total = 0
        while True:
            self._deliver_looped()
            processed = sum(self._step(task, commit=commit) for task in self.tasks.values())
            if not processed and not self._looped:
                return total
            total += processed

    def _step(self, task: ActiveTask, *, commit: bool) -> int:
        self.ties += task.next_record_is_tied
        if not task.process(1):
            return 0
        task.await_answers()
        task.punctuate_stream_time()
        task.await_answers()
        if commit:
            self._commit_task(task)
        self._deliver_looped()
        return 1

    def _deliver_looped(self) -> None:
        while self._looped:
            self._deliver(self._looped.popleft())

    def commit(self) -> None:
        """Commit all tasks; what that forwards waits for :meth:`drain`."""
        for task in self.tasks.values():
            self._commit_task(task)

    def _commit_task(self, task: ActiveTask) -> None:
        if task.commit_needed:
            task.flush_caches()
            while task.await_answers():
                task.flush_caches()
            self.producer.check()
            task.post_commit(enforce_checkpoint=False, acked=self.producer.acked_offsets())

    def advance(self, duration_ms: int) -> None:
        """Move the clock and call the punctuators that are due by it."""
        self.clock.advance(duration_ms)
        for task in self.tasks.values():
            task.punctuate_wall_clock()
            task.await_answers()

    def store(self, name: str, partition: int) -> Store:
        """A store of the task with that partition number."""
        everywhere = [((unit, partition), task) for unit, task in self._globals.items()]
        for (_, number), task in (*self.tasks.items(), *everywhere):
            if number == partition and any(builder.name == name for builder in task.nodes.stores):
                found: Store = task.store(name)
                return found
        known = sorted({builder.name for unit in self._units for builder in unit.stores})
        raise UnknownStateStoreError(f"there is no store {name!r}; the topology has {', '.join(known) or 'none'}")

    def close(self) -> None:
        """Suspend and close all tasks; the first error of a processor's ``close`` is raised at the end."""
        first: Exception | None = None
        for task in (*self.tasks.values(), *self._globals.values()):
            try:
                task.suspend()
            except Exception as error:
                first = first or error
            task.close_clean()
        self._background.loop.close()
        if first is not None:
            raise first


class _SameForAll(dict[str, int]):
    """One number for every topic."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def get(self, key: str, default: Any = None) -> Any:
        return self._number
