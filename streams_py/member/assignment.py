"""What an assignment says, in the member's terms.

The consumer protocol carries partitions, the user data carries the task of each; both lists belong together by
position, after the partitions are sorted. Kafka Streams' ``StreamsPartitionAssignor.onAssignment``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from streams_protocol import AssignmentInfo, partitions_by_task
from streams_protocol.types import HostInfo, TaskId, TopicPartition

__all__ = ["HostView", "Tasks", "host_view", "tasks_of"]


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks a member is to have, with their input partitions. A task is in one of the two maps at most."""

    active: Mapping[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    standby: Mapping[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostView:
    """Which end point has which input partitions, as active and as standby, for interactive queries.

    It shows where tasks are *going*: while a task moves, its new host appears a little too early. A key can be looked
    up in the partitions of the active map only.
    """

    active: Mapping[HostInfo, AbstractSet[TopicPartition]] = field(default_factory=dict)
    standby: Mapping[HostInfo, AbstractSet[TopicPartition]] = field(default_factory=dict)


def tasks_of(partitions: Collection[TopicPartition], info: AssignmentInfo) -> Tasks:
    """Pair the assigned partitions, in any order, with the tasks of ``info``.

    ``streams_protocol``'s TaskAssignmentDecodeError when the lists do not fit together.
    """
    return Tasks(
        active=partitions_by_task(partitions, info.active_tasks),
        standby={task: frozenset(parts) for task, parts in info.standby_tasks.items()},
    )


def host_view(info: AssignmentInfo) -> HostView:
    """The host maps of an assignment; empty for versions that have none."""
    return HostView(dict(info.partitions_by_host), dict(info.standby_partitions_by_host))
