"""Tasks and host maps of an assignment, as a member uses them.

The consumer protocol carries a list of partitions. The user data carries a list of tasks, one per partition. The two
lists match by position once the partitions are sorted. Kafka Streams' ``StreamsPartitionAssignor.onAssignment``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from streams_protocol import AssignmentInfo, partitions_by_task
from streams_protocol.types import HostInfo, TaskId, TopicPartition


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks assigned to a member, with their input partitions.

    A task is in at most one of the two maps.
    """

    active: Mapping[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    standby: Mapping[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostView:
    """The input partitions of each endpoint, active and standby, for interactive queries.

    The maps show where tasks are *going*: while a task moves, its new host appears slightly too early. A key can be
    looked up only in the partitions of the active map.
    """

    active: Mapping[HostInfo, AbstractSet[TopicPartition]] = field(default_factory=dict)
    standby: Mapping[HostInfo, AbstractSet[TopicPartition]] = field(default_factory=dict)


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
