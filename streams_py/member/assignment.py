"""Reads the tasks and host maps of an assignment.

The consumer protocol carries a list of partitions. The user data carries a list of tasks, one per partition. The two
lists match by position once the partitions are sorted. Kafka Streams' ``StreamsPartitionAssignor.onAssignment``.
"""

from __future__ import annotations

from collections.abc import Collection

from streams_protocol import AssignmentInfo, partitions_by_task
from streams_protocol.types import TopicPartition
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
