"""A new version compared with the existing internal topics of a running group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from streams_py.topology.physical.metadata import TopologyMetadata
from streams_py.topology.topic_owners import Owner, OwnerOfTopic, owners_of
from streams_py.topology.topology import Topology
from streams_py.topology.upgrade.report import Finding, Level, UpgradeReport

_NOT_COMPARED = "serdes, kinds of stores, windows, and the operator that writes each topic (topics do not record them)"


def check_running(
    partitions: Mapping[str, int], new: Topology, application_id: str, groups: Collection[str] = ()
) -> UpgradeReport:
    """Compare a version with the internal topics of the application in a cluster.

    Args:
        partitions: Partition count by name, for all topics of the cluster.
        new: The version to check.
        application_id: The application.
        groups: The consumer groups of the cluster; topics of their applications do not belong to this application.
    """
    metadata = new.metadata(application_id, available_topics=partitions)
    wanted = _partition_counts(metadata, partitions)
    inputs = metadata.source_topics - wanted.keys()
    owners = owners_of(application_id, partitions, groups=groups, own=metadata.internal_topics)
    existing = {
        topic: partitions[topic]
        for topic, found in owners.items()
        if found.owner is not Owner.OTHER and topic not in inputs
    }
    findings = [_orphan(topic, application_id, owners[topic]) for topic in sorted(existing.keys() - wanted.keys())]
    for topic, count in sorted(existing.items()):
        expected = wanted.get(topic)
        if expected is not None and expected != count:
            message = f"topic {topic} has {count} partitions, the new version needs {expected}: it does not start"
            findings.append(Finding(Level.UNSAFE, topic.removeprefix(f"{application_id}-"), message))
    missing = sorted(metadata.source_topics - partitions.keys() - wanted.keys())
    findings += [
        Finding(Level.UNSAFE, topic, f"source topic {topic} does not exist: the new version does not start")
        for topic in missing
    ]
    unknown = [_NOT_COMPARED]
    if not existing:
        unknown.append(f"everything: {application_id} has no internal topics; is that its application.id?")
    return UpgradeReport(tuple(findings), tuple(unknown))


def _orphan(topic: str, application_id: str, owner: OwnerOfTopic) -> Finding:
    short = topic.removeprefix(f"{application_id}-")
    message = f"topic {topic} is orphaned: the new version has no topic of that name, and its content is left behind"
    fix = _fix(short)
    if owner.owner is Owner.UNCERTAIN:
        message += f". If it is a topic of another application: {owner.why}"
        fix += "; or --other-application with the application.id that owns it"
    return Finding(Level.UNSAFE, short, message, fix)


def _fix(topic: str) -> str:
    if topic.endswith("-changelog"):
        return f'store="{topic.removesuffix("-changelog")}" where this state is stored now'
    return f'name="{topic.removesuffix("-repartition")}" at the operator that writes these records now'


def _partition_counts(metadata: TopologyMetadata, external: Mapping[str, int]) -> dict[str, int | None]:
    """Return the partitions of each internal topic; None if they depend on missing topics."""
    repartitions = {
        name: topic for sub in metadata.subtopologies.values() for name, topic in sub.repartition_sources.items()
    }
    counts: dict[str, int | None] = {name: topic.partitions for name, topic in repartitions.items()}

    def count(topic: str) -> int | None:
        return counts[topic] if topic in counts else external.get(topic)

    for _ in range(len(repartitions) + 1):  # the longest chain of derived counts has this length
        for name in repartitions:
            if counts[name] is None:
                feeding = [sub for sub in metadata.subtopologies.values() if name in sub.sink_topics]
                counts[name] = _largest(count(topic) for sub in feeding for topic in sub.source_topics)
        for group in metadata.copartition_groups:
            largest = _largest(count(topic) for topic in group)
            for name in group & repartitions.keys():
                if repartitions[name].partitions is None and largest is not None:
                    counts[name] = largest
    changelogs = {
        name: _largest(count(topic) for topic in sub.source_topics)
        for sub in metadata.subtopologies.values()
        for name in sub.changelogs
    }
    return {**counts, **changelogs}


def _largest(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return max(known, default=None)
