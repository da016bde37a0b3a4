"""Checks of a warm start's changelogs: which records they would delete, and whether they contain what was written.

See :mod:`streams_py.history.bootstrap` for the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from streams_protocol.types import TopicPartition
from streams_py.errors import StreamsError
from streams_py.history.bootstrap import BootstrapPlan, Step
from streams_py.history.task import TaskSummary


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
