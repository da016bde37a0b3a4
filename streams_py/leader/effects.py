"""Effects of the group leader, its only output. The caller carries them out.

An effect that needs an answer is an :class:`Ask` with the type of its answer: an event to pass back to the leader. The
other effects are notices or end the request. A request ends with exactly one PublishAssignments or FailAssign. The
effects that one event returns must be carried out in order.
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

A = TypeVar("A", bound=Event)
T = TypeVar("T")


class Answering(Protocol):
    """Answers each effect that needs an answer with an event of its answer type."""

    def describe_topics(self, names: tuple[str, ...]) -> TopicsDescribed: ...
    def create_topics(self, specs: tuple[TopicSpec, ...]) -> TopicsCreated: ...
    def wait(self, duration_ms: int) -> WaitEnded: ...
    def list_end_offsets(self, partitions: tuple[TopicPartition, ...]) -> EndOffsetsListed: ...
    def fetch_committed_offsets(self, partitions: tuple[TopicPartition, ...]) -> CommittedOffsetsFetched: ...
    def run_assignor(self, effect: RunAssignor) -> AssignorReturned | AssignorFailed: ...
    def enter_step(self, step: AssignStep) -> StepEntered: ...


class Ask(ABC, Generic[A]):
    """An effect whose answer is an event of type ``A``."""

    __slots__ = ()
    answers: ClassVar[tuple[type[Event], ...]]

    @abstractmethod
    def asked_of(self, shell: Answering) -> A:
        """Let ``shell`` carry out the effect and return the answer."""

    def answered_by(self, event: Event) -> A:
        """Return the event as the answer. Raises IllegalStateError for an event of another type."""
        if not isinstance(event, self.answers):
            names = " or ".join(kind.__name__ for kind in self.answers)
            raise IllegalStateError(f"the leader waits for {names}, but got {type(event).__name__}")
        return cast("A", event)


@dataclass(frozen=True, slots=True)
class DescribeTopics(Ask[TopicsDescribed]):
    """Describe these topics. If the whole request fails, its error is the answer for each topic."""

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
    """Wait for this time."""

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
    """Fetch the offsets that this group has committed for these partitions."""

    partitions: tuple[TopicPartition, ...]
    answers = (CommittedOffsetsFetched,)

    def asked_of(self, shell: Answering) -> CommittedOffsetsFetched:
        """As in the base class."""
        return shell.fetch_committed_offsets(self.partitions)


@dataclass(frozen=True, slots=True)
class RunAssignor(Ask[AssignorReturned | AssignorFailed]):
    """Create the application's task assignor, configure it, and run it with a time limit.

    Attributes:
        assignor: the value of ``task.assignor.class``: a class or ``"package.module:Class"``.
        configs: the argument of the assignor's ``configure``.
        application_state: the argument of its ``assign``.

    The instance is kept for a later NotifyAssignor.
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
    """A fact or decision of the assign step, for records of what happened."""

    fact: Fact


@dataclass(frozen=True, slots=True)
class Remember:
    """Keep the input of a built-in assignor, so that its decision can be explained later."""

    decided_at_ms: int
    problem: AssignmentProblem
    assignor: BuiltInAssignor


@dataclass(frozen=True, slots=True)
class NotifyAssignor:
    """Call ``on_assignment_computed`` of the last RunAssignor's instance; report its exceptions."""

    assignment: GroupAssignment
    subscription: GroupSubscription
    error: AssignmentError


@dataclass(frozen=True, slots=True)
class ReportError:
    """Log an error that does not stop the application, and add it to the thread's errors."""

    error: StreamsError


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line with a level of the standard library's ``logging``."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class PublishAssignments:
    """Send these assignments, one per member. Ends the request.

    ``stable`` is passed to the assignment listener: False when a follow-up rebalance will come. None means that these
    are error assignments: the listener is not called, and ``error`` is the reason.
    """

    assignments: Mapping[str, MemberAssignment]
    stable: bool | None
    error: StreamsError | None = None


@dataclass(frozen=True, slots=True)
class FailAssign:
    """Raise the error from the assign call: no assignment in this generation. Ends the request.

    After a retriable error the member waits for ``retry.backoff.ms``, then rejoins.
    """

    error: Exception


Question: TypeAlias = (
    DescribeTopics | CreateTopics | Wait | ListEndOffsets | FetchCommittedOffsets | RunAssignor | EnterStep
)
Notice: TypeAlias = NotifyAssignor | ReportError | Log | Observe | Remember
Outcome: TypeAlias = PublishAssignments | FailAssign
Effect: TypeAlias = Question | Notice | Outcome
Steps: TypeAlias = Generator[tuple[Effect, ...], Event, T]
"""A part of the assign step: yields effects, receives their answers, returns its result."""


def ask(effect: Ask[A]) -> Steps[A]:
    """Yield one effect and return its answer."""
    event = yield (cast("Question", effect),)  # Question is the union of all subclasses of Ask
    return effect.answered_by(event)
