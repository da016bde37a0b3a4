"""The changelogs of a warm start: what is not written to them, and whether they are as they were written. See
:mod:`streams_py.history.bootstrap` for the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from streams_protocol.types import TopicPartition
from streams_py.errors import StreamsError
from streams_py.history.bootstrap import BootstrapPlan, Step
from streams_py.history.task import TaskSummary

__all__ = ["check_written", "kept_from", "written"]


def kept_from(plan: BootstrapPlan, now_ms: int) -> dict[str, int]:
    """Changelog -> the oldest timestamp that its broker does not delete at once, of those that delete by age. A live
    application would find nothing older there, either: windows whose stream time is long ago are gone with their
    records, whatever the store itself would still keep."""
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
    """The plan after the changelogs are written. ``sums``: changelog partition -> records and hash. ``ends``: of the
    changelogs, and of the topics between stages. ``read_of_tables``: records that were read for global tables."""
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
    """StreamsError when what was read back is not what was written."""
    for partition in sorted({*plan.written, *read}):
        ours, theirs = tuple(plan.written.get(partition, (0, 0))), tuple(read.get(partition, (0, 0)))
        if ours != theirs:
            raise StreamsError(
                f"changelog partition {partition} has {theirs[0]} records where {ours[0]} were written, or other ones; "
                "was the application started, or has the topic deleted them (its retention.ms, when the whole history "
                "is old)? Nothing is committed: stop the application, and `bootstrap abort`"
            )
