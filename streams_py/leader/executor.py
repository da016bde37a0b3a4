"""Carries out the leader's effects: cluster requests, waits, and the application's assignor.

There is only one executor. The implementations behind it differ: a real cluster with timeouts, a simulated cluster, or
the values of a recorded case. Subclasses override the notices that they want to receive.
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

T = TypeVar("T")


class ClusterAccess(Protocol):
    """The requests that a leader sends to a cluster, as in the port ``Admin``.

    A method raises BrokerUnavailableError when its whole request fails.
    """

    def describe_topics(self, names: Collection[str]) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]: ...
    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]: ...
    def list_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | AdminError]: ...
    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]: ...


class Time(Protocol):
    """The part of the port ``Clock`` that the executor needs."""

    def now_ms(self) -> int: ...
    def sleep_ms(self, duration_ms: int) -> None: ...


class Assignors(Protocol):
    """Runs the application's task assignor."""

    def ask(self, chosen: object, configs: Mapping[str, object], state: ApplicationState) -> TaskAssignment:
        """Run a new instance of the assignor and return its checked answer.

        Raises:
            StreamsError: the assignor failed, or its answer is not usable.
        """

    def notify(self, notice: NotifyAssignor) -> None:
        """Call ``on_assignment_computed`` of that instance. Raises AssignorError if it fails."""


class Executor:
    """Carries out the effects of one leader."""

    def __init__(self, cluster: ClusterAccess, time: Time, assignors: Assignors, *, group: str) -> None:
        self._cluster = cluster
        self._time = time
        self._assignors = assignors
        self._group = group
        self.explanations = Explanations()
        """Explanations of this leader's recent assignments."""

    def carry_out(self, effect: Effect) -> Event | None:
        """Carry out one effect and return the event that answers it, or None."""
        match effect:
            case Ask():
                return effect.asked_of(self)
            case PublishAssignments() | FailAssign():
                raise IllegalStateError(
                    "PublishAssignments and FailAssign end an assign step; the executor cannot carry them out"
                )
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

    # -- notices, for subclasses -----------------------------------------------------------------------------------

    def log(self, level: int, text: str) -> None:
        """Receive a line for the log."""

    def report(self, error: StreamsError) -> None:
        """Receive an error that does not stop the application."""

    def observe(self, fact: Fact) -> None:
        """Receive a fact about the progress of the assign step."""

    # -- answers ------------------------------------------------------------------------------------------------------

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
        """Return the answer to a request; if the whole request failed, its error for each name."""
        try:
            return dict(request())
        except BrokerUnavailableError as error:
            return dict.fromkeys(names, _failed(error))


def _failed(error: BrokerUnavailableError) -> AdminError:
    return AdminError(AdminErrorKind.TIMED_OUT, str(error))
