"""What an assignment means for a member: its tasks, the tasks that it loses, and its next rebalance.

*Tasks.* The consumer protocol carries a list of partitions. The user data carries a list of tasks, one per partition.
The two lists match by position once the partitions are sorted. Source: Kafka Streams'
``StreamsPartitionAssignor.onAssignment``.

*Next rebalance.* An assignment may tell a member to rejoin: immediately, because a task is about to move to it, or at a
given time, because the leader wants to check the placement again. There are two more reasons. The member has to change
its version. Or a static member restarted with another endpoint and received its previous assignment: it must announce
the new endpoint.

*Revocation.* A task is revoked when *all* of its input partitions are. Losing some of its partitions, or partitions
that belong to no task, changes nothing. Source: Kafka Streams' ``TaskManager.handleRevocation``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streams_protocol import FOLLOW_UP_NOW, NO_FOLLOW_UP, AssignmentInfo, partitions_by_task
from streams_protocol.types import HostInfo, TaskId, TopicPartition
from streams_py.member.tasks import HostView, Tasks


def tasks_of(partitions: Collection[TopicPartition], info: AssignmentInfo) -> Tasks:
    """Match the assigned partitions, in any order, with the tasks of ``info``.

    Raises:
        TaskAssignmentDecodeError: (of ``streams_protocol``) the two lists do not match.
    """
    return Tasks(
        active=partitions_by_task(partitions, info.active_tasks),
        standby={task: frozenset(parts) for task, parts in info.standby_tasks.items()},
    )


def host_view(info: AssignmentInfo) -> HostView:
    """Return the host maps of an assignment; both are empty for versions without host maps."""
    return HostView(dict(info.partitions_by_host), dict(info.standby_partitions_by_host))


def next_rebalance_ms(info: AssignmentInfo, *, version_changed: bool, own_host: HostInfo | None) -> int:
    """Return the time of the follow-up rebalance, in ms since the epoch.

    0 means immediately. ``NO_FOLLOW_UP`` means never, and cancels an earlier plan.
    """
    if version_changed:
        return FOLLOW_UP_NOW
    if own_host is not None and info.partitions_by_host and own_host not in info.partitions_by_host:
        return FOLLOW_UP_NOW
    return info.next_rebalance_ms


def is_due(scheduled_ms: int, now_ms: int) -> bool:
    """Whether the scheduled time has passed; 0 ("immediately") always has."""
    return scheduled_ms != NO_FOLLOW_UP and scheduled_ms < now_ms


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
