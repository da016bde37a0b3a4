"""What the group leader wants done, the only thing that ever leaves it. The shell does it.

An effect that is answered is an :class:`Ask` of its answer's type: the event to hand back to the leader. The others are
notices, or end the request: exactly one PublishAssignments or FailAssign does. Effects of one answer are to be carried
out in order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeAlias, TypeVar, cast

from streams_protocol.types import TopicPartition
from streams_py.assignment.api import ApplicationState, AssignmentError, GroupAssignment, GroupSubscription
from streams_py.assignment.problem import AssignmentProblem, BuiltInAssignor
from streams_py.errors import IllegalStateError, StreamsError
from streams_py.leader.events import (
    AssignorFailed,
    AssignorReturned,
    CommittedOffsetsFetched,
    EndOffsetsListed,
    Event,
    StepEntered,
    TopicsCreated,
    TopicsDescribed,
    WaitEnded,
)
from streams_py.leader.observation import AssignStep, Fact
from streams_py.ports import MemberAssignment, TopicSpec

__all__ = [
    "Answering",
    "Ask",
    "CreateTopics",
    "DescribeTopics",
    "Effect",
    "EnterStep",
    "FailAssign",
    "FetchCommittedOffsets",
    "ListEndOffsets",
    "Log",
    "Notice",
    "NotifyAssignor",
    "Observe",
    "Outcome",
    "PublishAssignments",
    "Question",
    "Remember",
    "ReportError",
    "RunAssignor",
    "Steps",
    "Wait",
    "ask",
]

A = TypeVar("A", bound=Event)
T = TypeVar("T")


class Answering(Protocol):
    """Answers every effect that is to be answered, each with an event of its type."""

    def describe_topics(self, names: tuple[str, ...]) -> TopicsDescribed: ...
    def create_topics(self, specs: tuple[TopicSpec, ...]) -> TopicsCreated: ...
    def wait(self, duration_ms: int) -> WaitEnded: ...
    def list_end_offsets(self, partitions: tuple[TopicPartition, ...]) -> EndOffsetsListed: ...
    def fetch_committed_offsets(self, partitions: tuple[TopicPartition, ...]) -> CommittedOffsetsFetched: ...
    def run_assignor(self, effect: RunAssignor) -> AssignorReturned | AssignorFailed: ...
    def enter_step(self, step: AssignStep) -> StepEntered: ...


class Ask(ABC, Generic[A]):
    """An effect that is answered by an ``A``."""

    __slots__ = ()
    answers: ClassVar[tuple[type[Event], ...]]

    @abstractmethod
    def asked_of(self, shell: Answering) -> A:
        """Have ``shell`` carry the effect out; its answer."""

    def answered_by(self, event: Event) -> A:
        """The event as the answer; IllegalStateError when it is another one."""
        if not isinstance(event, self.answers):
            names = " or ".join(kind.__name__ for kind in self.answers)
            raise IllegalStateError(f"the leader waits for {names}, but got {type(event).__name__}")
        return cast("A", event)


@dataclass(frozen=True, slots=True)
class DescribeTopics(Ask[TopicsDescribed]):
    """Describe these topics. A request that fails as a whole gives its error for each."""

    names: tuple[str, ...]
    answers = (TopicsDescribed,)

    def asked_of(self, shell: Answering) -> TopicsDescribed:
        """As in the base class."""
        return shell.describe_topics(self.names)


@dataclass(frozen=True, slots=True)
class CreateTopics(Ask[TopicsCreated]):
    """Create these topics."""

    specs: tuple[TopicSpec, ...]
    answers = (TopicsCreated,)

    def asked_of(self, shell: Answering) -> TopicsCreated:
        """As in the base class."""
        return shell.create_topics(self.specs)


@dataclass(frozen=True, slots=True)
class Wait(Ask[WaitEnded]):
    """Let this time pass."""

    duration_ms: int
    answers = (WaitEnded,)

    def asked_of(self, shell: Answering) -> WaitEnded:
        """As in the base class."""
        return shell.wait(self.duration_ms)


@dataclass(frozen=True, slots=True)
class ListEndOffsets(Ask[EndOffsetsListed]):
    """List the end offsets (read uncommitted) of these partitions."""

    partitions: tuple[TopicPartition, ...]
    answers = (EndOffsetsListed,)

    def asked_of(self, shell: Answering) -> EndOffsetsListed:
        """As in the base class."""
        return shell.list_end_offsets(self.partitions)


@dataclass(frozen=True, slots=True)
class FetchCommittedOffsets(Ask[CommittedOffsetsFetched]):
    """Fetch the group's own committed offsets of these partitions."""

    partitions: tuple[TopicPartition, ...]
    answers = (CommittedOffsetsFetched,)

    def asked_of(self, shell: Answering) -> CommittedOffsetsFetched:
        """As in the base class."""
        return shell.fetch_committed_offsets(self.partitions)


@dataclass(frozen=True, slots=True)
class RunAssignor(Ask[AssignorReturned | AssignorFailed]):
    """Make a new instance of the application's task assignor, configure it, run it under a time limit.

    ``assignor`` is what ``task.assignor.class`` says: a class or ``"package.module:Class"``. ``configs`` goes to its
    ``configure``, ``application_state`` to its ``assign``. Keep the instance for a NotifyAssignor.
    """

    assignor: object
    configs: Mapping[str, object]
    application_state: ApplicationState
    answers = (AssignorReturned, AssignorFailed)

    def asked_of(self, shell: Answering) -> AssignorReturned | AssignorFailed:
        """As in the base class."""
        return shell.run_assignor(self)


@dataclass(frozen=True, slots=True)
class EnterStep(Ask[StepEntered]):
    """The next part of the assign step begins now."""

    step: AssignStep
    answers = (StepEntered,)

    def asked_of(self, shell: Answering) -> StepEntered:
        """As in the base class."""
        return shell.enter_step(self.step)


@dataclass(frozen=True, slots=True)
class Observe:
    """Something is known or decided: for records of what happens."""

    fact: Fact


@dataclass(frozen=True, slots=True)
class Remember:
    """Keep what a built-in assignor was asked: it decides the same again when somebody asks why."""

    decided_at_ms: int
    problem: AssignmentProblem
    assignor: BuiltInAssignor


@dataclass(frozen=True, slots=True)
class NotifyAssignor:
    """Call ``on_assignment_computed`` on the instance of the last RunAssignor. Report what it raises."""

    assignment: GroupAssignment
    subscription: GroupSubscription
    error: AssignmentError


@dataclass(frozen=True, slots=True)
class ReportError:
    """Tell the application about an error that stops nothing: log it, put it into the thread's queue."""

    error: StreamsError


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line at a level of the standard library's ``logging``."""

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


Question: TypeAlias = (
    DescribeTopics | CreateTopics | Wait | ListEndOffsets | FetchCommittedOffsets | RunAssignor | EnterStep
)
Notice: TypeAlias = NotifyAssignor | ReportError | Log | Observe | Remember
Outcome: TypeAlias = PublishAssignments | FailAssign
Effect: TypeAlias = Question | Notice | Outcome
Steps: TypeAlias = Generator[tuple[Effect, ...], Event, T]
"""A part of the assign step: yields effects, is sent the events that answer them, returns its result."""


def ask(effect: Ask[A]) -> Steps[A]:
    """The answer to one effect."""
    event = yield (cast("Question", effect),)  # the union that the base stands for
    return effect.answered_by(event)
