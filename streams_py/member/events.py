"""What happens to a member of the group, as its stream thread and its consumer see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from streams_protocol.types import TaskId, TopicPartition

__all__ = [
    "AssignmentReceived",
    "DrainRequested",
    "Event",
    "LoopTurned",
    "PartitionsAssigned",
    "PartitionsLost",
    "PartitionsRevoked",
    "Progress",
    "ShutdownRequested",
    "StandbysMeasured",
    "SubscriptionRequested",
]


@dataclass(frozen=True, slots=True)
class SubscriptionRequested:
    """A JoinGroup request is being built. Answered by SendUserData, every time.

    ``task_offset_sums`` are those of runtime's tasks and locked task directories: -2 for a running active, else the sum
    of the offsets in records; tasks without changelog are left out.
    """

    task_offset_sums: Mapping[TaskId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AssignmentReceived:
    """The leader's assignment arrived."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    """The consumer gives up partitions, and is still a member."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsLost:
    """Membership is gone; other members may own these partitions already."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    """The end of a rebalance; ``added`` may be empty."""

    added: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopTurned:
    """One turn of the thread's loop at this wall-clock time, in ms since the epoch."""

    now_ms: int


class Progress(NamedTuple):
    """How far a standby or warm-up is, in offsets summed over its changelogs."""

    position: int
    end: int


@dataclass(frozen=True, slots=True)
class StandbysMeasured:
    """How far standbys and warm-ups are at this wall-clock time, in ms since the epoch; those of which it is known."""

    now_ms: int
    progress: Mapping[TaskId, Progress]


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """This client asks the whole application to stop."""


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """This client is to hand its tasks over to others, and to get no more."""


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
