"""What the group leader wants done. The shell does it and answers with the event named in each docstring.

Effects of one answer are to be carried out in order. Exactly one PublishAssignments or FailAssign ends each request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from streams_protocol.types import TopicPartition
from streams_py.assignment.api import ApplicationState, AssignmentError, GroupAssignment, GroupSubscription
from streams_py.errors import StreamsError
from streams_py.ports import AdminError, MemberAssignment, PartitionInfo, TopicSpec

__all__ = [
    "CreateTopics",
    "DescribeNow",
    "DescribeTopics",
    "Effect",
    "FailAssign",
    "FetchCommittedOffsets",
    "ListEndOffsets",
    "Log",
    "NotifyAssignor",
    "PublishAssignments",
    "ReportError",
    "RunAssignor",
    "Wait",
]

DescribeNow: TypeAlias = Callable[[Collection[str]], Mapping[str, tuple[PartitionInfo, ...] | AdminError]]
"""Describes topics at once, blocking; an error stands in the place of a topic that could not be described."""


@dataclass(frozen=True, slots=True)
class DescribeTopics:
    """Describe these topics. A request that fails as a whole gives its error for each. Answer: TopicsDescribed."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """Create these topics. Answer: TopicsCreated."""

    specs: tuple[TopicSpec, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Let this time pass. Answer: WaitEnded."""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class ListEndOffsets:
    """List the end offsets (read uncommitted) of these partitions. Answer: EndOffsetsListed."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FetchCommittedOffsets:
    """Fetch the group's own committed offsets of these partitions. Answer: CommittedOffsetsFetched."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class RunAssignor:
    """Make a new instance of the application's task assignor, configure it, run it under a time limit.

    ``assignor`` is what ``task.assignor.class`` says: a class or ``"package.module:Class"``. ``configs`` goes to its
    ``configure``, ``application_state(describe)`` to its ``assign``; ``describe`` is called at most once, and only if
    the assignor asks for racks. Keep the instance for a NotifyAssignor. Answer: AssignorReturned or AssignorFailed.
    """

    assignor: object
    configs: Mapping[str, object]
    application_state: Callable[[DescribeNow], ApplicationState]


@dataclass(frozen=True, slots=True)
class NotifyAssignor:
    """Call ``on_assignment_computed`` on the instance of the last RunAssignor. No answer; report what it raises."""

    assignment: GroupAssignment
    subscription: GroupSubscription
    error: AssignmentError


@dataclass(frozen=True, slots=True)
class ReportError:
    """Tell the application about an error that stops nothing: log it, put it into the thread's queue. No answer."""

    error: StreamsError


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line at a level of the standard library's ``logging``. No answer."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class PublishAssignments:
    """Send these assignments, one for every member. Ends the request.

    ``stable`` is what the assignment listener is told: False when a follow-up rebalance is coming; None when it is not
    told anything, because these are error assignments. ``error`` is then the reason.
    """

    assignments: Mapping[str, MemberAssignment]
    stable: bool | None
    error: StreamsError | None = None


@dataclass(frozen=True, slots=True)
class FailAssign:
    """No assignment in this generation: raise the error from the assign call. Ends the request.

    A retriable error means: wait ``retry.backoff.ms``, then rejoin.
    """

    error: Exception


Effect: TypeAlias = (
    DescribeTopics
    | CreateTopics
    | Wait
    | ListEndOffsets
    | FetchCommittedOffsets
    | RunAssignor
    | NotifyAssignor
    | ReportError
    | Log
    | PublishAssignments
    | FailAssign
)
