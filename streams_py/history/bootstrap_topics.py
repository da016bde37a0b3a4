"""The topics of a warm start: whether they are as the plan needs them, and the creation of the internal ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from streams_protocol.types import TopicPartition
from streams_py.history.bootstrap import BootstrapCluster, BootstrapPlan
from streams_py.history.refuse import Finding, RefusedTopologyError
from streams_py.ports import TopicSpec

START: Final = "start warm"
"""What a refused topology cannot do."""


def findings_of_topics(
    wanted: Mapping[str, int],
    changelogs: Collection[str],
    counts: Mapping[str, int],
    cluster: BootstrapCluster,
    *,
    replace: bool,
) -> list[Finding]:
    found = []
    for topic, count in sorted(wanted.items()):
        if topic in counts and counts[topic] != count:
            rule = f"it has {counts[topic]} partitions, but needs {count}"
            found.append(Finding(f"topic {topic}", rule, "reset the application (delete its internal topics)"))
    if replace:
        return found
    present = [TopicPartition(topic, p) for topic in changelogs if topic in counts for p in range(counts[topic])]
    starts, ends = cluster.starts(present), cluster.ends(present)
    full = sorted({at.topic for at, end in ends.items() if end > starts[at]})
    return found + [
        Finding(f"topic {topic}", "it is not empty", "delete it with --replace, or reset the application")
        for topic in full
    ]


def check_topics(plan: BootstrapPlan, cluster: BootstrapCluster, *, skip_gone: bool = False) -> None:
    """Raise RefusedTopologyError when topics have changed since the plan was made.

    Checked before the run, so that the error does not come after everything is written.

    Args:
        plan: the plan.
        cluster: its cluster.
        skip_gone: whether the run may skip records that were deleted since.
    """
    counts = cluster.partition_counts()
    wanted = {topic: count for topic, count, _ in plan.topics}
    found = differences(plan, cluster, {topic for topic, *_ in (*plan.ranges, *plan.tables)} | plan.topic_ids.keys())
    found += [] if skip_gone else _of_starts(plan, cluster, counts)
    found += findings_of_topics(wanted, plan.changelogs, counts, cluster, replace=plan.replace)
    if found:
        raise RefusedTopologyError(found, plan.topology, START)


def _of_starts(plan: BootstrapPlan, cluster: BootstrapCluster, counts: Mapping[str, int]) -> list[Finding]:
    planned = {
        TopicPartition(topic, p): start
        for topic, p, start, end in (*plan.ranges, *plan.tables)
        if start < end and p < counts.get(topic, 0)
    }
    return [
        Finding(
            f"topic {at}",
            f"its first {start} offsets are deleted now, but only {planned[at]} were when the plan was made",
            "plan again, or continue without these records (--option on.gone=skip)",
        )
        for at, start in sorted(cluster.starts(list(planned)).items())
        if start > planned[at]
    ]


def differences(plan: BootstrapPlan, cluster: BootstrapCluster, topics: Collection[str]) -> list[Finding]:
    """Report how ``topics`` differ from the topics for which the plan was made.

    A topic that was deleted and created again is a different topic, whatever its offsets.
    """
    counts, ids = cluster.partition_counts(), cluster.topic_ids(topics)
    planned = Counter(topic for topic, *_ in (*plan.ranges, *plan.tables) if topic in topics)
    found = [
        Finding(
            f"topic {topic}",
            f"it has {counts[topic]} partitions, but the plan has {count}" if topic in counts else "it does not exist",
            "plan again",
        )
        for topic, count in sorted(planned.items())
        if counts.get(topic) != count
    ]
    return found + [
        Finding(f"topic {topic}", "it was deleted and created again since the plan was made", "plan again")
        for topic, known in sorted(plan.topic_ids.items())
        if topic in topics and ids.get(topic, known) != known
    ]


def prepare(plan: BootstrapPlan, cluster: BootstrapCluster, replication_factor: int = -1) -> None:
    """Create the internal topics. The caller has saved the plan with step RUNNING before.

    With ``replace``, first delete the committed offsets, then the old internal topics. In this order, an application
    that is started in between starts from the beginning.
    """
    counts = cluster.partition_counts()
    if plan.replace:
        cluster.forget(plan.application_id)
        cluster.delete([topic for topic in plan.internal if topic in counts])
        counts = {topic: count for topic, count in counts.items() if topic not in plan.internal}
    missing = [
        TopicSpec(topic, count, replication_factor, config)
        for topic, count, config in plan.topics
        if topic not in counts
    ]
    cluster.create(missing)
