"""Which tasks end when partitions are taken away.

A task is revoked when *all* of its input partitions are; a part of them, or partitions of no task, changes nothing.
Kafka Streams' ``TaskManager.handleRevocation``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streams_protocol.types import TaskId, TopicPartition

__all__ = ["left_over", "revoked_tasks"]


def revoked_tasks(
    active: Mapping[TaskId, frozenset[TopicPartition]], partitions: Collection[TopicPartition]
) -> tuple[TaskId, ...]:
    """Active tasks that lose all of their partitions, ascending."""
    lost = frozenset(partitions)
    return tuple(sorted(task for task, inputs in active.items() if inputs and inputs <= lost))


def left_over(
    active: Mapping[TaskId, frozenset[TopicPartition]],
    partitions: Collection[TopicPartition],
    revoked: Collection[TaskId],
) -> tuple[TopicPartition, ...]:
    """Revoked partitions that do not end a task, ascending."""
    ended = {tp for task in revoked for tp in active[task]}
    return tuple(sorted(set(partitions) - ended))
