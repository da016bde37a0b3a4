"""What is to be run over a history, in which order: stages, tasks, topics and their partitions.

A stage is a sub-topology. Stages are in the order of the data, which is not that of their numbers; whatever one writes
and another one reads (a repartition topic above all) goes from stage to stage and never through Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from streams_py.errors import ConfigError, TopologyError
from streams_py.history.kept_state import state_topics
from streams_py.leader.steps.repartition import missing_source_topics, repartition_counts
from streams_py.topology.physical.metadata import TopologyMetadata
from streams_py.topology.topology import Topology

__all__ = [
    "HistoryPlan",
    "Stage",
    "circles",
    "external_topics",
    "looped_topics",
    "plan_history",
    "sink_counts",
    "sinks_of",
    "topics_read",
]


@dataclass(frozen=True, slots=True)
class Stage:
    """One sub-topology. ``rank``: its place in the order. All topics have full names.

    ``inputs``: topic -> partitions. ``upstream``: those of them that earlier stages write. ``outputs``: topic ->
    partitions, of what it writes by name. ``changelogs``: of its stores, each with as many partitions as there are
    ``tasks``. ``stores``: store -> the changelog that it has or would have, see
    :mod:`streams_py.history.kept_state`.
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
    """All stages, and what is beyond them: ``inputs`` are topics that are read from outside, ``sinks`` those that are
    written, but for internal ones."""

    application_id: str
    stages: tuple[Stage, ...]
    inputs: Mapping[str, int]
    sinks: Mapping[str, int]

    @property
    def stores(self) -> dict[str, str]:
        """Store -> the changelog that it has or would have, of those whose state can be had."""
        return {name: topic for stage in self.stages for name, topic in sorted(stage.stores.items())}

    @property
    def changelogs(self) -> dict[str, int]:
        """Changelog topic -> partitions."""
        return {topic: stage.tasks for stage in self.stages for topic in sorted(stage.changelogs)}


def external_topics(metadata: TopologyMetadata) -> frozenset[str]:
    """The source topics that the application does not write itself."""
    written = {topic for sub in metadata.subtopologies.values() for topic in sub.sink_topics}
    return metadata.source_topics - written


def topics_read(topology: Topology, application_id: str, config: Mapping[str, object]) -> frozenset[str]:
    """All topics that have to be given: external ones, and those of global tables."""
    return external_topics(topology.metadata(application_id, config)) | topology.global_topics.keys()


def looped_topics(metadata: TopologyMetadata) -> frozenset[str]:
    """Topics that the application writes and reads, but for internal ones: a live one would read what is written there
    over a history."""
    return metadata.source_topics - external_topics(metadata) - _internal(metadata)


def sinks_of(topology: Topology, application_id: str) -> set[str]:
    """The topics that are written by name."""
    metadata = topology.metadata(application_id)
    return {topic for sub in metadata.subtopologies.values() for topic in sub.sink_topics} - _internal(metadata)


def sink_counts(
    topology: Topology, application_id: str, counts: Mapping[str, int], more: Collection[str] = ()
) -> dict[str, int]:
    """Partitions of the topics that are written: by name, and ``more``. ConfigError for one that does not exist."""
    sinks = sinks_of(topology, application_id) | set(more)
    missing = sorted(sinks - counts.keys())
    if missing:
        raise ConfigError(f"there is no topic {', '.join(missing)} to write outputs to; create it")
    return {topic: counts[topic] for topic in sorted(sinks)}


def plan_history(
    topology: Topology,
    application_id: str,
    config: Mapping[str, object],
    counts: Mapping[str, int],
    sink_counts: Mapping[str, int] | None = None,
) -> HistoryPlan:
    """The plan for external topics with ``counts`` partitions.

    ``sink_counts``: partitions of topics that are written; one that is not named has as many as its stage has tasks.
    ConfigError when nothing is said about an input, TopologyError when data goes round in a circle.
    """
    metadata = topology.metadata(application_id, config)
    inputs = external_topics(metadata)
    missing = [topic for topic in missing_source_topics(metadata, counts) if topic in inputs]
    if missing:
        raise ConfigError(f"there is no input for topic {', '.join(missing)}; this topology reads {_listed(inputs)}")
    known = dict(counts)
    given = dict(sink_counts or {})
    looped = looped_topics(metadata)
    known.update({topic: given.get(topic, max(counts.values(), default=1)) for topic in looped})
    known.update(repartition_counts(metadata, known))
    for topics in circles(metadata):
        raise TopologyError(
            f"data goes round in a circle through topics {', '.join(topics)}: no stage can be run to its end before "
            "the others; run this topology live"
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
    # What functions may choose, in any stage. Not what is read: it would not get to whoever reads it.
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
    """Sub-topologies in the direction of the data, the smaller number first where that leaves a choice."""
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
    """Topics through which data goes round in a circle; at most one list, of all of them."""
    subs = metadata.subtopologies
    left = subs.keys() - set(_ordered(metadata))
    readers = {id: {other for other in left if subs[id].sink_topics & subs[other].source_topics} for id in left}
    behind = dict(readers)  # and what reads from these; what is only behind a circle is left, too
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
