"""Lags of tasks and of their copies.

The input lag of a task is the number of records that it has not processed yet: end offsets minus committed offsets,
summed over its input partitions. The lag of a copy is the end of its changelogs minus the offset sum that its process
reported when it last joined. This is an upper bound, because the copy may have caught up since. An offset sum beyond
the end does not belong to this changelog, so the lag is the whole changelog, as it is for the assignor.

If the changelogs of a sub-topology are not certain (:mod:`.changelogs`), the lags of its copies remain unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from streams_protocol.types import TaskId, TopicPartition
from streams_py.assignment.problem import reported_lag
from streams_py.inspection.view import GroupView, Subtopology, Task


def with_input_lags(
    view: GroupView,
    committed: Mapping[TopicPartition, int | None],
    beginnings: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> GroupView:
    """Return the view with the input lag of each task whose offsets are all known.

    A partition without a committed offset counts from its beginning.
    """

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
    view: GroupView, changelogs: Mapping[Subtopology, Collection[str]], ends: Mapping[TopicPartition, int]
) -> GroupView:
    """Return the view with the lags of copies whose changelogs' end offsets are known."""

    def end_sum(task: TaskId) -> int | None:
        topics = changelogs.get((task.name, task.subtopology), ())
        offsets = [ends.get(TopicPartition(topic, task.partition)) for topic in topics]
        known = [offset for offset in offsets if offset is not None]
        return sum(known) if known and len(known) == len(offsets) else None

    def lagging(task: Task) -> Task:
        end = end_sum(task.id)
        if end is None:
            return task
        copies = (
            replace(copy, lag=reported_lag(copy.reported or 0, end)) if (copy.reported or 0) >= 0 else copy
            for copy in task.copies
        )
        return replace(task, copies=tuple(copies))

    return replace(view, tasks=tuple(lagging(task) for task in view.tasks))
