"""The internal topics of a warm start: created before the run, filled by it, and compared with the written records.

See :mod:`streams_py.history.bootstrap` for the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from streams_protocol.types import TopicPartition
from streams_py.errors import StreamsError
from streams_py.history.bootstrap import BootstrapCluster, BootstrapPlan, Step
from streams_py.history.refuse import Finding, RefusedTopologyError
from streams_py.history.task import TaskSummary
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
    """Return the internal topics that have another partition count than ``wanted``, and changelogs with records.

    ``replace``: changelogs may have records, because the run deletes them first.
    """
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


def kept_from(plan: BootstrapPlan, now_ms: int) -> dict[str, int]:
    """Return changelog -> oldest timestamp (ms) that the broker keeps, for changelogs that delete by age.

    A live application would not find older records either: the broker deletes the records of old windows, even if the
    store itself would still keep these windows.
    """
    found = {}
    for topic, _, config in plan.topics:
        retention_ms = int(config.get("retention.ms", -1))
        if topic in plan.changelogs and "delete" in config.get("cleanup.policy", "") and retention_ms >= 0:
            found[topic] = now_ms - retention_ms
    return found


def written(
    plan: BootstrapPlan,
    sums: Mapping[str, tuple[int, int]],
    untimed: Sequence[str],
    summaries: Sequence[TaskSummary],
    ends: Mapping[TopicPartition, int],
    read_of_tables: Mapping[TopicPartition, int],
) -> BootstrapPlan:
    """Return the plan after the changelogs are written.

    Args:
        plan: the plan.
        sums: changelog partition -> record count and hash.
        untimed: changelogs whose records have the time of writing as their timestamp.
        summaries: summaries of all tasks.
        ends: end offsets of the changelogs and of the topics between stages.
        read_of_tables: number of records that were read for global tables.
    """
    texts = {(topic, done.task): text for done in summaries for topic, (_, text) in done.positions.items()}
    positions = [(topic, p, end, texts.get((topic, p), "")) for topic, p, _, end in plan.ranges]
    between = [(at, end) for at, end in sorted(ends.items()) if at.topic in plan.repartitions]
    positions += [(*at, end, texts.get((at.topic, at.partition), "")) for at, end in between]
    logs = [(*at, end) for at, end in sorted(ends.items())]
    counts = {(topic, done.task): count for done in summaries for topic, count in done.read.items()}
    counts |= {(at.topic, at.partition): count for at, count in read_of_tables.items()}
    read = [(topic, p) for topic, p, *_ in (*plan.ranges, *plan.tables)]
    return replace(
        plan,
        step=Step.WRITTEN,
        written=dict(sums),
        untimed=list(untimed),
        positions=positions,
        ends=logs,
        read=[(*at, counts.get(at, 0)) for at in read],
    )


def check_written(plan: BootstrapPlan, read: Mapping[str, tuple[int, int]]) -> None:
    """Raise StreamsError when the records that were read back differ from the written ones."""
    for partition in sorted({*plan.written, *read}):
        ours, theirs = tuple(plan.written.get(partition, (0, 0))), tuple(read.get(partition, (0, 0)))
        if ours != theirs:
            raise StreamsError(
                f"changelog partition {partition} does not contain the {ours[0]} written records (it has {theirs[0]}); "
                "was the application started, or has the topic deleted records that are older than its retention.ms? "
                "Nothing is committed: stop the application, and run `bootstrap abort`"
            )
