"""What happens to the group leader: the request to assign, and the answers to its effects.

Every event carries ``now_ms``, the wall clock in ms since the epoch at the moment it happened: the leader has no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from streams_protocol.types import TopicPartition
from streams_py.assignment.api import TaskAssignment
from streams_py.errors import StreamsError
from streams_py.ports import AdminError, MemberSubscription, PartitionInfo
from streams_py.topology.physical.metadata import TopologyMetadata

__all__ = [
    "AssignRequested",
    "AssignorFailed",
    "AssignorReturned",
    "CommittedOffsetsFetched",
    "EndOffsetsListed",
    "Event",
    "StepEntered",
    "TopicsCreated",
    "TopicsDescribed",
    "WaitEnded",
]


@dataclass(frozen=True, slots=True)
class AssignRequested:
    """A JoinGroup response made this member the leader.

    ``members`` are all members of the group by member id. ``topics`` is the cluster's metadata of the topics they
    subscribe to; a topic that does not exist is absent (or has no partitions). ``named_topics`` are the source topics
    that the leader's topology names (patterns aside): whoever runs the same topology subscribes to all of them. Empty
    when that is not to be looked at.
    """

    now_ms: int
    members: Mapping[str, MemberSubscription]
    topics: Mapping[str, tuple[PartitionInfo, ...]]
    topology: TopologyMetadata
    named_topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicsDescribed:
    """Answer to DescribeTopics: every topic asked for, or an error in its place."""

    now_ms: int
    topics: Mapping[str, tuple[PartitionInfo, ...] | AdminError]


@dataclass(frozen=True, slots=True)
class TopicsCreated:
    """Answer to CreateTopics: None for each topic that was created, else why it was not."""

    now_ms: int
    results: Mapping[str, AdminError | None]


@dataclass(frozen=True, slots=True)
class WaitEnded:
    """The time of a Wait is over."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class StepEntered:
    """Answer to EnterStep."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class EndOffsetsListed:
    """Answer to ListEndOffsets; ``error`` when the request failed as a whole."""

    now_ms: int
    offsets: Mapping[TopicPartition, int | AdminError] = field(default_factory=dict)
    error: AdminError | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffsetsFetched:
    """Answer to FetchCommittedOffsets: None where the group has no offset; ``error`` when the request failed."""

    now_ms: int
    offsets: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    error: AdminError | None = None


@dataclass(frozen=True, slots=True)
class AssignorReturned:
    """The application's task assignor returned; whether by the rules is for the leader to find out."""

    now_ms: int
    assignment: TaskAssignment


@dataclass(frozen=True, slots=True)
class AssignorFailed:
    """The application's task assignor could not be loaded, raised, or did not return in time.

    ``error`` is a TaskAssignmentError if the assignor raised that itself, else an AssignorError naming the class.
    """

    now_ms: int
    error: StreamsError


Event: TypeAlias = (
    AssignRequested
    | TopicsDescribed
    | TopicsCreated
    | WaitEnded
    | EndOffsetsListed
    | CommittedOffsetsFetched
    | AssignorReturned
    | AssignorFailed
    | StepEntered
)
