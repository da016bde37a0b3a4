"""A new version against the internal topics that exist: what a running group says about its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streams_py.topology.names import internal_topics
from streams_py.topology.physical.metadata import TopologyMetadata
from streams_py.topology.topology import Topology
from streams_py.topology.upgrade.report import Finding, Level, UpgradeReport

__all__ = ["check_running"]

_UNTOLD = "serdes, kinds of stores, windows, and whose state a topic holds (topics do not tell them)"


def check_running(partitions: Mapping[str, int], new: Topology, application_id: str) -> UpgradeReport:
    """Compare with the topics of a cluster: name -> number of partitions."""
    own = internal_topics(application_id)
    existing = {
        topic: count
        for topic, count in partitions.items()
        if own.fullmatch(topic) and topic.startswith(f"{application_id}-")
    }
    metadata = new.metadata(application_id, available_topics=partitions)
    wanted = _partition_counts(metadata, partitions)
    findings = [
        Finding(
            Level.UNSAFE,
            topic.removeprefix(f"{application_id}-"),
            f"topic {topic} is orphaned: the new version has none of that name, what is in it stays behind",
            _fix(topic.removeprefix(f"{application_id}-")),
        )
        for topic in sorted(existing.keys() - wanted.keys())
    ]
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
    unknown = [_UNTOLD]
    if not existing:
        unknown.append(f"everything: there are no internal topics of {application_id}; is that its application.id?")
    return UpgradeReport(tuple(findings), tuple(unknown))


def _fix(topic: str) -> str:
    if topic.endswith("-changelog"):
        return f'store="{topic.removesuffix("-changelog")}" where this state is kept now'
    return f'name="{topic.removesuffix("-repartition")}" at the operator that writes these records now'


def _partition_counts(metadata: TopologyMetadata, external: Mapping[str, int]) -> dict[str, int | None]:
    """Internal topic -> partitions, None when that depends on what does not exist yet."""
    repartitions = {
        name: topic for sub in metadata.subtopologies.values() for name, topic in sub.repartition_sources.items()
    }
    counts: dict[str, int | None] = {name: topic.partitions for name, topic in repartitions.items()}

    def count(topic: str) -> int | None:
        return counts[topic] if topic in counts else external.get(topic)

    for _ in range(len(repartitions) + 1):  # one is derived from another at most so often
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
