"""Internal topics for the group leader: names, kinds, complete configurations, co-partition groups.

A setting is taken from the most specific source: the store's ``logging_config``, otherwise the requirements of the
store (such as the retention of windows' changelogs), otherwise the application's ``topic.`` key, otherwise the
library's default (Kafka Streams' ``InternalTopicConfig`` and its subclasses).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from streams_py.topology.declare.names import changelog_topic, full_topic_name, internal_topics, topic_on_broker
from streams_py.topology.declare.nodes import SourceNode
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.physical.assembly import TopologyAssembly
from streams_py.topology.physical.metadata import InternalTopic, InternalTopicKind, SubtopologyTopics, TopologyMetadata
from streams_py.topology.physical.subtopologies import Subtopology

_TOPIC_PREFIX: Final = "topic."
_REPARTITION_CONFIG: Final = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",  # records are deleted after they were committed, never by age
    "segment.bytes": "52428800",  # 50 MiB: small segments, because only whole segments can be deleted
}
_ADDITIONAL_RETENTION: Final = "windowstore.changelog.additional.retention.ms"
_DAY_MS: Final = 86_400_000
_MAX_MS: Final = 2**63 - 1


def topology_metadata(
    assembly: TopologyAssembly,
    subtopologies: Sequence[Subtopology],
    application_id: str,
    config: Mapping[str, object],
    available_topics: Iterable[str],
) -> TopologyMetadata:
    """Return full names and configurations for one application."""
    overrides = {
        key.removeprefix(_TOPIC_PREFIX): str(value) for key, value in config.items() if key.startswith(_TOPIC_PREFIX)
    }
    topics_of = _topics_by_source(assembly, application_id, available_topics)
    additional_ms = int(str(config.get(_ADDITIONAL_RETENTION, _DAY_MS)))

    def changelog(store: StoreBuilder) -> InternalTopic:
        name = full_topic_name(application_id, changelog_topic(store.name))
        library, needed = _changelog_config(store, additional_ms)
        merged = {**library, **overrides, **needed, **store.logging_config}
        return InternalTopic(name, InternalTopicKind.CHANGELOG, None, merged)

    def repartition(topic: str) -> InternalTopic:
        partitions = assembly.repartition_topics[topic]
        merged = {**_REPARTITION_CONFIG, **overrides}
        return InternalTopic(full_topic_name(application_id, topic), InternalTopicKind.REPARTITION, partitions, merged)

    def topics(sub: Subtopology) -> SubtopologyTopics:
        repartitions = [repartition(topic) for source in sub.sources if source.is_internal for topic in source.topics]
        changelogs = [changelog(store) for store in sub.stores if store.logging and store.source_topic is None]
        return SubtopologyTopics(
            source_topics=frozenset(topic for source in sub.sources for topic in topics_of[source.name]),
            sink_topics=frozenset(
                topic_on_broker(application_id, sink.topic, is_internal=sink.is_internal)
                for sink in sub.sinks
                if sink.topic is not None
            ),
            repartition_sources={topic.name: topic for topic in repartitions},
            changelogs={topic.name: topic for topic in changelogs},
            source_changelogs=frozenset(store.source_topic for store in sub.stores if store.source_topic is not None),
            stores=frozenset(store.name for store in sub.stores),
        )

    with_tasks = {sub.id: topics(sub) for sub in subtopologies if not sub.is_global}
    groups = _copartition_groups(assembly, topics_of)
    return TopologyMetadata(with_tasks, groups, {group: _joins_of(assembly, topics_of, group) for group in groups})


def _changelog_config(store: StoreBuilder, additional_ms: int) -> tuple[dict[str, str], dict[str, str]]:
    """Return the library's defaults, and the settings that no ``topic.`` key may override.

    Without the latter the store could not be restored: entries that expire must be deleted some time after they
    expired, and not before; entries that are never replaced must not be compacted.
    """
    windows = store.windows
    if store.history_ms is not None:  # compaction must not remove versions that can still be read
        return _changelog("compact"), {"min.compaction.lag.ms": str(min(store.history_ms + _DAY_MS, _MAX_MS))}
    if store.ttl_ms is not None:
        return _changelog("compact,delete"), _retention(store.ttl_ms + additional_ms)
    if windows is None:
        return _changelog("compact"), {}
    retention = _retention(windows.retention_ms + additional_ms)
    if windows.keeps_duplicates:
        # No record replaces another one, even with equal keys: each new owner restarts its sequence numbers.
        return _changelog("delete"), {**retention, "cleanup.policy": "delete"}
    return _changelog("compact,delete"), retention


def _changelog(policy: str) -> dict[str, str]:
    return {"cleanup.policy": policy, "message.timestamp.type": "CreateTime"}


def _retention(retention_ms: int) -> dict[str, str]:
    return {"retention.ms": str(min(retention_ms, _MAX_MS))}


def matched_topics(
    assembly: TopologyAssembly, application_id: str, available_topics: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Map each pattern source to its topics: matched by its pattern, not read by others, sorted.

    Patterns do not match internal topics. A topic that two patterns match belongs to the source that was added first.
    """
    taken = {topic for node in assembly.nodes.values() if isinstance(node, SourceNode) for topic in node.topics}
    internal = internal_topics(application_id)
    free = sorted(topic for topic in set(available_topics) - taken if not internal.fullmatch(topic))
    matched: dict[str, tuple[str, ...]] = {}
    for name, node in assembly.nodes.items():
        if isinstance(node, SourceNode) and node.pattern is not None:
            pattern = node.pattern
            matched[name] = tuple(topic for topic in free if pattern.fullmatch(topic))
            free = [topic for topic in free if topic not in matched[name]]
    return matched


def _topics_by_source(
    assembly: TopologyAssembly, application_id: str, available_topics: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    topics = matched_topics(assembly, application_id, available_topics)
    for name, node in assembly.nodes.items():
        if isinstance(node, SourceNode) and node.pattern is None:
            topics[name] = tuple(
                topic_on_broker(application_id, topic, is_internal=node.is_internal) for topic in node.topics
            )
    return topics


def _copartition_groups(
    assembly: TopologyAssembly, topics_of: Mapping[str, tuple[str, ...]]
) -> tuple[frozenset[str], ...]:
    """Replace sources by topics, then merge declared sets that share a topic.

    Names without a source node (after a merge, or by quirks of Kafka Streams) have no topics, so they connect no sets.
    """
    merged: list[frozenset[str]] = []
    for sources in assembly.copartitions:
        group = frozenset(topic for source in sources for topic in topics_of.get(source, ()))
        if not group:
            continue
        touching = [other for other in merged if other & group]
        merged = [other for other in merged if not other & group]
        merged.append(group.union(*touching))
    return tuple(sorted(merged, key=sorted))


def _joins_of(
    assembly: TopologyAssembly, topics_of: Mapping[str, tuple[str, ...]], topics: frozenset[str]
) -> dict[str, str | None]:
    """Return the nodes that join these topics, with their lines of the program."""
    return {
        node: assembly.line_of(node)
        for sources, node in zip(assembly.copartitions, assembly.copartitioned_by, strict=True)
        if any(topics.intersection(topics_of.get(source, ())) for source in sources)
    }
