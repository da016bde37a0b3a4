"""Carries out what the leader asks for: on a cluster, with somebody who runs assignors.

There is one executor. What differs is behind it: a real cluster with time-outs, one that is simulated, one made of the
values of a recorded case. A subclass hears notices that it wants to hear.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeVar, assert_never

from streams_protocol.types import TopicPartition
from streams_py.assignment.api import ApplicationState, TaskAssignment
from streams_py.errors import AssignorError, BrokerUnavailableError, IllegalStateError, StreamsError
from streams_py.leader.effects import (
    Ask,
    Effect,
    FailAssign,
    Log,
    Notice,
    NotifyAssignor,
    Observe,
    PublishAssignments,
    Remember,
    ReportError,
    RunAssignor,
)
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
from streams_py.leader.explanations import Explanations
from streams_py.leader.observation import AssignStep, Fact
from streams_py.ports import AdminError, AdminErrorKind, PartitionInfo, TopicSpec

__all__ = ["Assignors", "ClusterAccess", "Executor", "Time"]

T = TypeVar("T")


class ClusterAccess(Protocol):
    """What a leader asks of a cluster, as in the port ``Admin``. BrokerUnavailableError when a request fails as a
    whole."""

    def describe_topics(self, names: Collection[str]) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]: ...
    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]: ...
    def list_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | AdminError]: ...
    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]: ...


class Time(Protocol):
    """The part of the port ``Clock`` that is needed here."""

    def now_ms(self) -> int: ...
    def sleep_ms(self, duration_ms: int) -> None: ...


class Assignors(Protocol):
    """Runs the application's task assignor."""

    def ask(self, chosen: object, configs: Mapping[str, object], state: ApplicationState) -> TaskAssignment:
        """A new instance's answer, checked to be one; a StreamsError when there is none."""

    def notify(self, notice: NotifyAssignor) -> None:
        """Call ``on_assignment_computed`` of that instance. AssignorError when it fails."""


class Executor:
    """Carries out effects; one leader's."""

    def __init__(self, cluster: ClusterAccess, time: Time, assignors: Assignors, *, group: str) -> None:
        self._cluster = cluster
        self._time = time
        self._assignors = assignors
        self._group = group
        self.explanations = Explanations()
        """Why tasks are where this leader has put them."""

    def carry_out(self, effect: Effect) -> Event | None:
        """Carry out one effect; the event that answers it, if it has an answer."""
        match effect:
            case Ask():
                return effect.asked_of(self)
            case PublishAssignments() | FailAssign():
                raise IllegalStateError("an assign step ends with these; nobody carries them out")
            case _:
                self.notice(effect)
                return None

    def notice(self, effect: Notice) -> None:
        """Carry out one effect that has no answer."""
        match effect:
            case NotifyAssignor():
                try:
                    self._assignors.notify(effect)
                except AssignorError as error:
                    self.report(error)
            case ReportError(error):
                self.report(error)
            case Log(level, text):
                self.log(level, text)
            case Observe(fact):
                self.observe(fact)
            case Remember(decided_at_ms, problem, assignor):
                self.explanations.keep(decided_at_ms, problem, assignor)
            case _:
                assert_never(effect)

    # -- what is noticed, for those who want to know -----------------------------------------------------------

    def log(self, level: int, text: str) -> None:
        """A line for the log."""

    def report(self, error: StreamsError) -> None:
        """An error that stops nothing."""

    def observe(self, fact: Fact) -> None:
        """How far the assign step is."""

    # -- what is answered --------------------------------------------------------------------------------------

    def describe_topics(self, names: tuple[str, ...]) -> TopicsDescribed:
        """Answer DescribeTopics."""
        described = self._each(names, lambda: self._cluster.describe_topics(names))
        return TopicsDescribed(self._time.now_ms(), described)

    def create_topics(self, specs: tuple[TopicSpec, ...]) -> TopicsCreated:
        """Answer CreateTopics."""
        created = self._each([spec.name for spec in specs], lambda: self._cluster.create_topics(specs))
        return TopicsCreated(self._time.now_ms(), created)

    def wait(self, duration_ms: int) -> WaitEnded:
        """Answer Wait."""
        self._time.sleep_ms(duration_ms)
        return WaitEnded(self._time.now_ms())

    def list_end_offsets(self, partitions: tuple[TopicPartition, ...]) -> EndOffsetsListed:
        """Answer ListEndOffsets."""
        try:
            offsets = self._cluster.list_offsets(partitions)
        except BrokerUnavailableError as error:
            return EndOffsetsListed(self._time.now_ms(), error=_failed(error))
        return EndOffsetsListed(self._time.now_ms(), offsets)

    def fetch_committed_offsets(self, partitions: tuple[TopicPartition, ...]) -> CommittedOffsetsFetched:
        """Answer FetchCommittedOffsets."""
        try:
            offsets = self._cluster.committed_offsets(self._group, partitions)
        except BrokerUnavailableError as error:
            return CommittedOffsetsFetched(self._time.now_ms(), error=_failed(error))
        return CommittedOffsetsFetched(self._time.now_ms(), offsets)

    def run_assignor(self, effect: RunAssignor) -> AssignorReturned | AssignorFailed:
        """Answer RunAssignor."""
        try:
            assignment = self._assignors.ask(effect.assignor, effect.configs, effect.application_state)
        except StreamsError as error:
            return AssignorFailed(self._time.now_ms(), error)
        return AssignorReturned(self._time.now_ms(), assignment)

    def enter_step(self, step: AssignStep) -> StepEntered:
        """Answer EnterStep."""
        self.observe(step)
        return StepEntered(self._time.now_ms())

    def _each(self, names: Collection[str], request: Callable[[], Mapping[str, T]]) -> Mapping[str, T | AdminError]:
        """The answer to a request; when it failed as a whole, that failure for each name."""
        try:
            return dict(request())
        except BrokerUnavailableError as error:
            return dict.fromkeys(names, _failed(error))


def _failed(error: BrokerUnavailableError) -> AdminError:
    return AdminError(AdminErrorKind.TIMED_OUT, str(error))
