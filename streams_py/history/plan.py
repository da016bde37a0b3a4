"""The plan of a run over a history: the stages and their order, tasks, topics and partitions.

A stage is a sub-topology. Stages are ordered in the direction of the data, not by their numbers. Records that one stage
writes and another reads (mostly through a repartition topic) go from stage to stage and never through Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from streams_py.errors import ConfigError, TopologyError
from streams_py.history.kept_state import state_topics
from streams_py.leader.steps.repartition import missing_source_topics, repartition_counts
from streams_py.topology.physical.metadata import TopologyMetadata
from streams_py.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Stage:
    """One sub-topology. All topics have full names.

    Attributes:
        id: number of the sub-topology.
        rank: position in the order of stages.
        tasks: number of tasks.
        inputs: input topic -> partitions.
        upstream: the inputs that earlier stages write.
        outputs: output topic -> partitions.
        changelogs: changelog topics of its stores. Each has one partition per task.
        stores: store -> the changelog that it has or would have, see :mod:`streams_py.history.kept_state`.
    """

    id: int
    rank: int
    tasks: int
    inputs: Mapping[str, int]
    upstream: frozenset[str]
    outputs: Mapping[str, int]
    changelogs: frozenset[str]
    stores: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HistoryPlan:
    """All stages of a run.

    Attributes:
        application_id: the application.
        stages: the stages, in order.
        inputs: topic -> partitions, of the topics that no stage writes.
        sinks: topic -> partitions, of the output topics that are neither internal nor inputs.
    """

    application_id: str
    stages: tuple[Stage, ...]
    inputs: Mapping[str, int]
    sinks: Mapping[str, int]

    @property
    def stores(self) -> dict[str, str]:
        """Store -> the changelog that it has or would have, for stores whose state is available."""
        return {name: topic for stage in self.stages for name, topic in sorted(stage.stores.items())}

    @property
    def changelogs(self) -> dict[str, int]:
        """Changelog topic -> partition count."""
        return {topic: stage.tasks for stage in self.stages for topic in sorted(stage.changelogs)}


def external_topics(metadata: TopologyMetadata) -> frozenset[str]:
    """Return the source topics that the application does not write itself."""
    written = {topic for sub in metadata.subtopologies.values() for topic in sub.sink_topics}
    return metadata.source_topics - written


def topics_read(topology: Topology, application_id: str, config: Mapping[str, object]) -> frozenset[str]:
    """Return all topics that a run needs as inputs: external topics and topics of global tables."""
    return external_topics(topology.metadata(application_id, config)) | topology.global_topics.keys()


def looped_topics(metadata: TopologyMetadata) -> frozenset[str]:
    """Return the topics that the application writes and also reads, without internal topics.

    A live application would read outputs again that a history has written to them.
    """
    return metadata.source_topics - external_topics(metadata) - _internal(metadata)


def sinks_of(topology: Topology, application_id: str) -> set[str]:
    """Return the output topics that sinks name, without internal topics."""
    metadata = topology.metadata(application_id)
    return {topic for sub in metadata.subtopologies.values() for topic in sub.sink_topics} - _internal(metadata)


def sink_counts(
    topology: Topology, application_id: str, counts: Mapping[str, int], more: Collection[str] = ()
) -> dict[str, int]:
    """Return partition counts of the output topics: the topics that sinks name, and ``more``.

    Raises:
        ConfigError: an output topic does not exist.
    """
    sinks = sinks_of(topology, application_id) | set(more)
    missing = sorted(sinks - counts.keys())
    if missing:
        raise ConfigError(f"output topic {', '.join(missing)} does not exist; create it")
    return {topic: counts[topic] for topic in sorted(sinks)}


def plan_history(
    topology: Topology,
    application_id: str,
    config: Mapping[str, object],
    counts: Mapping[str, int],
    sink_counts: Mapping[str, int] | None = None,
) -> HistoryPlan:
    """Plan a run.

    Args:
        topology: the topology.
        application_id: the application.
        config: settings that matter for the topology's metadata.
        counts: partition counts of the external topics.
        sink_counts: partition counts of output topics. An output topic that is missing here has one partition for each
            task of its stage.

    Raises:
        ConfigError: an input is missing in ``counts``.
        TopologyError: the data flow contains a circle.
    """
    metadata = topology.metadata(application_id, config)
    inputs = external_topics(metadata)
    missing = [topic for topic in missing_source_topics(metadata, counts) if topic in inputs]
    if missing:
        raise ConfigError(f"topic {', '.join(missing)} has no input; this topology reads {_listed(inputs)}")
    known = dict(counts)
    given = dict(sink_counts or {})
    looped = looped_topics(metadata)
    known.update({topic: given.get(topic, max(counts.values(), default=1)) for topic in looped})
    known.update(repartition_counts(metadata, known))
    for topics in circles(metadata):
        raise TopologyError(
            f"data flows in a circle through topics {', '.join(topics)}, so no stage can finish before the others "
            "start; run this topology live"
        )
    stages: list[Stage] = []
    for rank, id in enumerate(_ordered(metadata)):
        sub = metadata.subtopologies[id]
        tasks = max(known[topic] for topic in sub.source_topics)
        outputs = {topic: known.get(topic) or given.get(topic, tasks) for topic in sorted(sub.sink_topics)}
        read = {topic: known[topic] for topic in sorted(sub.source_topics)}
        upstream = frozenset(read) - inputs
        stores = state_topics(topology.subtopology(id).stores, application_id)
        stages.append(Stage(id, rank, tasks, read, upstream, outputs, frozenset(sub.changelogs), stores))
    written: dict[str, int] = {}
    for stage in stages:
        for topic, count in stage.outputs.items():
            written[topic] = max(count, written.get(topic, 0))
    # A function of any stage may choose these topics. Source topics are left out: no stage would read such outputs.
    sources = metadata.source_topics | topology.global_topics.keys()
    named = {topic: written.get(topic, count) for topic, count in given.items() if topic not in sources}
    final = tuple(
        replace(stage, outputs={**{topic: written[topic] for topic in stage.outputs}, **named}) for stage in stages
    )
    internal = _internal(metadata)
    sinks = {topic: count for topic, count in {**written, **named}.items() if topic not in {*inputs, *internal}}
    return HistoryPlan(application_id, final, {topic: counts[topic] for topic in sorted(inputs)}, sinks)


def _internal(metadata: TopologyMetadata) -> frozenset[str]:
    return frozenset(topic for sub in metadata.subtopologies.values() for topic in sub.repartition_sources)


def _ordered(metadata: TopologyMetadata) -> list[int]:
    """Return sub-topologies in the direction of the data, otherwise by number.

    Sub-topologies in a circle, or downstream of one, are missing.
    """
    subs = metadata.subtopologies
    before = {
        id: {other for other, writer in subs.items() if writer.sink_topics & sub.source_topics}
        for id, sub in subs.items()
    }
    order: list[int] = []
    while ready := [id for id in sorted(subs) if id not in order and before[id] <= set(order)]:
        order.append(ready[0])
    return order


def circles(metadata: TopologyMetadata) -> list[list[str]]:
    """Return the topics through which data flows in a circle: one list with all of them, or no list."""
    subs = metadata.subtopologies
    left = subs.keys() - set(_ordered(metadata))
    readers = {id: {other for other in left if subs[id].sink_topics & subs[other].source_topics} for id in left}
    # ``left`` also contains sub-topologies that are only downstream of a circle. So find everything downstream of each.
    behind = dict(readers)
    for _ in left:
        behind = {id: found.union(*(readers[other] for other in found)) for id, found in behind.items()}
    topics = {
        topic
        for id in left
        for other in readers[id]
        if id == other or id in behind[other]
        for topic in subs[id].sink_topics & subs[other].source_topics
    }
    return [sorted(topics)] if topics else []


def _listed(topics: frozenset[str]) -> str:
    return ", ".join(sorted(topics)) or "nothing"
