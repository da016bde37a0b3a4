"""Events of the group leader: the request to assign, and the answers to its effects.

The leader has no clock. Every event carries ``now_ms``, the wall-clock time of the event in ms since the epoch.
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


@dataclass(frozen=True, slots=True)
class AssignRequested:
    """The JoinGroup response made this member the leader.

    Attributes:
        members: all members of the group, by member id.
        topics: the cluster's metadata of the topics that the members subscribe to. A topic that does not exist is
            absent or has no partitions.
        named_topics: the source topics that the leader's topology names, without patterns. Every member with the same
            topology subscribes to all of them. Empty disables this check.
    """

    now_ms: int
    members: Mapping[str, MemberSubscription]
    topics: Mapping[str, tuple[PartitionInfo, ...]]
    topology: TopologyMetadata
    named_topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicsDescribed:
    """Answer to DescribeTopics: metadata or an error for every requested topic."""

    now_ms: int
    topics: Mapping[str, tuple[PartitionInfo, ...] | AdminError]


@dataclass(frozen=True, slots=True)
class TopicsCreated:
    """Answer to CreateTopics, per topic: None if it was created, otherwise the error."""

    now_ms: int
    results: Mapping[str, AdminError | None]


@dataclass(frozen=True, slots=True)
class WaitEnded:
    """Answer to Wait: the time has elapsed."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class StepEntered:
    """Answer to EnterStep."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class EndOffsetsListed:
    """Answer to ListEndOffsets; ``error`` is set when the whole request failed."""

    now_ms: int
    offsets: Mapping[TopicPartition, int | AdminError] = field(default_factory=dict)
    error: AdminError | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffsetsFetched:
    """Answer to FetchCommittedOffsets: None where the group has no committed offset.

    ``error`` is set when the request failed.
    """

    now_ms: int
    offsets: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    error: AdminError | None = None


@dataclass(frozen=True, slots=True)
class AssignorReturned:
    """The application's task assignor returned. The leader validates the assignment."""

    now_ms: int
    assignment: TaskAssignment


@dataclass(frozen=True, slots=True)
class AssignorFailed:
    """The application's task assignor failed to load, raised an exception, or exceeded its time.

    ``error`` is a TaskAssignmentError that the assignor itself raised, or an AssignorError that names the class.
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
