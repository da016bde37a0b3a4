"""How far tasks and their copies are behind.

Input lag is what a task has not processed yet: end offset minus committed position, over its input partitions. A copy's
lag is what its changelogs hold beyond the offset sum that its process reported when it last joined: an upper bound, for
it may have caught up since.

Which changelogs belong to a sub-topology is not on the wire. Their names begin with the group's name; among them, the
number of partitions tells the sub-topology where only one fits. Where several fit, lags of copies stay unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from streams_protocol.types import TaskId, TopicPartition
from streams_py.inspection.view import GroupView, Task

__all__ = ["changelogs_by_subtopology", "with_copy_lags", "with_input_lags"]

_Subtopology = tuple[str | None, int]


def changelogs_by_subtopology(view: GroupView, partition_counts: Mapping[str, int]) -> dict[_Subtopology, list[str]]:
    """Sub-topology -> its changelog topics, where that is certain. ``partition_counts``: of all topics."""
    counts: defaultdict[_Subtopology, int] = defaultdict(int)
    for task in view.tasks:
        if task.is_stateful:
            counts[_subtopology(task)] = max(counts[_subtopology(task)], task.id.partition + 1)
    by_count: defaultdict[int, list[_Subtopology]] = defaultdict(list)
    for subtopology, count in counts.items():
        by_count[count].append(subtopology)
    found: defaultdict[_Subtopology, list[str]] = defaultdict(list)
    for topic, count in sorted(partition_counts.items()):
        if topic.startswith(f"{view.group}-") and topic.endswith("-changelog") and len(by_count[count]) == 1:
            found[by_count[count][0]].append(topic)
    return dict(found)


def _subtopology(task: Task) -> _Subtopology:
    return task.id.topology_name, task.id.subtopology


def with_input_lags(
    view: GroupView,
    committed: Mapping[TopicPartition, int | None],
    beginnings: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> GroupView:
    """The view with the input lag of each task all of whose offsets are known. Nothing committed: all that is there."""

    def lag(task: Task) -> int | None:
        total = 0
        for partition in task.partitions:
            if partition not in ends or partition not in committed:
                return None
            at = committed[partition]
            total += max(ends[partition] - (beginnings.get(partition, 0) if at is None else at), 0)
        return total

    return replace(view, tasks=tuple(replace(task, input_lag=lag(task)) for task in view.tasks))


def with_copy_lags(
    view: GroupView, changelogs: Mapping[_Subtopology, Collection[str]], ends: Mapping[TopicPartition, int]
) -> GroupView:
    """The view with the lags of standbys and warm-ups whose changelogs' end offsets are known."""

    def end_sum(task: TaskId) -> int | None:
        topics = changelogs.get((task.topology_name, task.subtopology), ())
        offsets = [ends.get(TopicPartition(topic, task.partition)) for topic in topics]
        known = [offset for offset in offsets if offset is not None]
        return sum(known) if known and len(known) == len(offsets) else None

    def lagging(task: Task) -> Task:
        end = end_sum(task.id)
        if end is None:
            return task
        copies = (
            replace(copy, lag=max(end - (copy.reported or 0), 0)) if (copy.reported or 0) >= 0 else copy
            for copy in task.copies
        )
        return replace(task, copies=tuple(copies))

    return replace(view, tasks=tuple(lagging(task) for task in view.tasks))
