"""The tasks of a topology, their input partitions and their changelog partitions.

Task p of a sub-topology reads partition p of every source topic that has one. A sub-topology has as many tasks as its
largest source topic has partitions. Kafka Streams' ``DefaultPartitionGrouper`` and the changelog part of
``ChangelogTopics``.

``tasks`` and ``stateful`` have the iteration order of the Java leader's hash maps, because the sticky assignors depend
on it (:mod:`streams_py.assignment.java_order`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from streams_protocol.types import TaskId, TopicPartition
from streams_py.assignment.java_order import HashSizing, in_hash_order, task_hash
from streams_py.errors import StreamsError
from streams_py.ports import PartitionInfo, TopicSpec
from streams_py.topology.physical.metadata import TopologyMetadata


@dataclass(frozen=True, slots=True)
class TaskTable:
    """All tasks of one assign step.

    Attributes:
        inputs: the input partitions of each task, ascending.
        task_of: the inverse of ``inputs``.
        tasks: all tasks, in Java's hash order.
        stateful: tasks with a changelog, in Java's hash order.
        changelogs: the partitions of changelog topics of each stateful task.
        source_changelogs: its partitions of source topics that are used as changelogs.
    """

    inputs: Mapping[TaskId, tuple[TopicPartition, ...]]
    task_of: Mapping[TopicPartition, TaskId]
    tasks: tuple[TaskId, ...]
    stateful: tuple[TaskId, ...]
    changelogs: Mapping[TaskId, tuple[TopicPartition, ...]]
    source_changelogs: Mapping[TaskId, tuple[TopicPartition, ...]]
    stores: Mapping[int, frozenset[str]]
    warnings: tuple[str, ...] = ()

    def is_stateful(self, task: TaskId) -> bool:
        """Whether the task has a changelog. A task with only unlogged stores is not stateful here."""
        return task in self.changelogs


def task_table(
    topology: TopologyMetadata, topics: Mapping[str, Sequence[PartitionInfo]], *, hash_sizing: HashSizing
) -> TaskTable:
    """Return the tasks of a topology.

    ``topics`` is the metadata including repartition topics.

    Raises:
        StreamsError: a sub-topology has no source topic with partitions.
    """
    by_sub = {sub: _tasks_of(topology, sub, topics) for sub in sorted(topology.subtopologies)}
    inputs = {task: parts for tasks in by_sub.values() for task, parts in tasks.items()}
    task_of = {tp: task for task, parts in inputs.items() for tp in parts}
    changelogs: dict[TaskId, tuple[TopicPartition, ...]] = {}
    source_changelogs: dict[TaskId, tuple[TopicPartition, ...]] = {}
    for sub, tasks in by_sub.items():
        logged = topology.subtopologies[sub]
        if logged.is_logged:
            own, shared = sorted(logged.changelogs), sorted(logged.source_changelogs)
            for task in tasks:
                changelogs[task] = tuple(TopicPartition(name, task.partition) for name in own)
                source_changelogs[task] = tuple(TopicPartition(name, task.partition) for name in shared)
    ordered, stateful = _in_java_order(by_sub, changelogs, hash_sizing)
    return TaskTable(
        inputs=inputs,
        task_of=task_of,
        tasks=tuple(ordered),
        stateful=tuple(stateful),
        changelogs=changelogs,
        source_changelogs=source_changelogs,
        stores={sub: topology.subtopologies[sub].stores for sub in by_sub},
        warnings=_shared_partitions(inputs, task_of),
    )


def changelog_specs(topology: TopologyMetadata, table: TaskTable, *, replication_factor: int) -> dict[str, TopicSpec]:
    """Return the specs of the changelog topics: one partition for each task up to the highest."""
    highest: dict[int, int] = {}
    for task in table.changelogs:
        highest[task.subtopology] = max(highest.get(task.subtopology, 0), task.partition)
    return {
        name: TopicSpec(name, highest[sub] + 1, replication_factor, dict(topic.config))
        for sub in sorted(highest)
        for name, topic in topology.subtopologies[sub].changelogs.items()
    }


def changelog_inputs(topology: TopologyMetadata, table: TaskTable) -> dict[str, tuple[TopicPartition, ...]]:
    """Map each changelog topic to the input partitions of the tasks whose stores it backs."""
    inputs: dict[int, list[TopicPartition]] = {}
    for task in table.changelogs:
        inputs.setdefault(task.subtopology, []).extend(table.inputs[task])
    return {name: tuple(read) for sub, read in inputs.items() for name in topology.subtopologies[sub].changelogs}


def repartition_inputs(
    topology: TopologyMetadata, topics: Mapping[str, Sequence[PartitionInfo]]
) -> dict[str, tuple[TopicPartition, ...]]:
    """Map each repartition topic to the existing partitions that its writers read.

    The writers are the sub-topologies that have the repartition topic as a sink.
    """
    return {
        name: tuple(
            TopicPartition(source, info.partition)
            for sub in topology.subtopologies.values()
            if name in sub.sink_topics
            for source in sorted(sub.source_topics)
            for info in topics.get(source, ())
        )
        for reader in topology.subtopologies.values()
        for name in reader.repartition_sources
    }


def _tasks_of(
    topology: TopologyMetadata, sub: int, topics: Mapping[str, Sequence[PartitionInfo]]
) -> dict[TaskId, tuple[TopicPartition, ...]]:
    sources = sorted(topology.subtopologies[sub].source_topics)
    counts = {name: len(topics.get(name, ())) for name in sources}
    empty = [name for name, count in counts.items() if count == 0]
    if empty:
        raise StreamsError(f"source topic {empty[0]} of sub-topology {sub} has no partitions; does it exist?")
    return {
        TaskId(sub, p): tuple(TopicPartition(name, p) for name in sources if p < counts[name])
        for p in range(max(counts.values(), default=0))
    }


def _shared_partitions(
    inputs: Mapping[TaskId, tuple[TopicPartition, ...]], task_of: Mapping[TopicPartition, TaskId]
) -> tuple[str, ...]:
    return tuple(
        f"partition {tp} is read by task {task} and by task {task_of[tp]}"
        for task, parts in inputs.items()
        for tp in parts
        if task_of[tp] != task
    )


def _in_java_order(
    by_sub: Mapping[int, Collection[TaskId]], stateful: Collection[TaskId], sizing: HashSizing
) -> tuple[list[TaskId], list[TaskId]]:
    """Return (all tasks, stateful tasks) in the order of the Java leader's containers."""
    copied = in_hash_order(by_sub, _subtopology_hash, buckets=_map_copy_buckets(len(by_sub), sizing))
    grouped = in_hash_order(copied, _subtopology_hash)
    tasks = in_hash_order((task for sub in grouped for task in sorted(by_sub[sub])), task_hash)
    of_sub: dict[int, list[TaskId]] = {}
    for task in tasks:
        of_sub.setdefault(task.subtopology, []).append(task)
    logged = [task for sub in copied for task in in_hash_order(of_sub.get(sub, ()), task_hash) if task in stateful]
    return tasks, in_hash_order(in_hash_order(logged, task_hash), task_hash)


def _subtopology_hash(sub: int) -> int:
    return (31 + sub) * 31 & 0xFFFFFFFF


def _map_copy_buckets(size: int, sizing: HashSizing) -> int:
    """Return the initial buckets of a Java hash map that receives ``size`` entries in one call."""
    if size == 0:
        return 16
    wanted = 4 * size // 3 + 1 if sizing is HashSizing.JDK_18_AND_OLDER else -(-4 * size // 3)
    return 1 << (wanted - 1).bit_length()
