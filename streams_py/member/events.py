"""Events of a group member, as its stream thread and its consumer report them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from streams_protocol.types import TaskId, TopicPartition
from streams_py.member.tasks import Progress


@dataclass(frozen=True, slots=True)
class SubscriptionRequested:
    """A JoinGroup request is being built. Each such event is answered by a SendUserData effect.

    ``task_offset_sums`` has the tasks of the runtime and the tasks whose directories it has locked. The value is -2 for
    a running active task, otherwise the sum of the changelog offsets, in records. Tasks without a changelog are left
    out.
    """

    task_offset_sums: Mapping[TaskId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AssignmentReceived:
    """The leader's assignment arrived."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    """The consumer gives up partitions and is still a member."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsLost:
    """The member has left or was removed; other members may already own these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    """The rebalance has ended. ``added`` may be empty."""

    added: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopTurned:
    """The thread's loop ran one iteration at this wall-clock time, in ms since the epoch."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class StandbysMeasured:
    """Progress of standby and warm-up tasks at a wall-clock time, in ms since the epoch.

    Tasks whose progress is unknown are left out.
    """

    now_ms: int
    progress: Mapping[TaskId, Progress]


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """This client requests that the whole application stops."""


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """This client shall hand its tasks over to other clients and receive no more tasks."""


Event: TypeAlias = (
    SubscriptionRequested
    | AssignmentReceived
    | PartitionsRevoked
    | PartitionsLost
    | PartitionsAssigned
    | LoopTurned
    | StandbysMeasured
    | ShutdownRequested
    | DrainRequested
)
