"""The tasks that a member loses when partitions are revoked.

A task is revoked when *all* of its input partitions are. Losing some of its partitions, or partitions that belong to no
task, changes nothing. Kafka Streams' ``TaskManager.handleRevocation``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streams_protocol.types import TaskId, TopicPartition


def revoked_tasks(
    active: Mapping[TaskId, frozenset[TopicPartition]], partitions: Collection[TopicPartition]
) -> tuple[TaskId, ...]:
    """Return the active tasks that lose all of their partitions, in ascending order."""
    lost = frozenset(partitions)
    return tuple(sorted(task for task, inputs in active.items() if inputs and inputs <= lost))


def left_over(
    active: Mapping[TaskId, frozenset[TopicPartition]],
    partitions: Collection[TopicPartition],
    revoked: Collection[TaskId],
) -> tuple[TopicPartition, ...]:
    """Return the revoked partitions that do not end a task, in ascending order."""
    ended = {tp for task in revoked for tp in active[task]}
    return tuple(sorted(set(partitions) - ended))
