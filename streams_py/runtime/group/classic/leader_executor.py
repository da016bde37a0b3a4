"""The leader's part of a stream thread: runs the requests of the sans-IO leader inside the client's assign call.

The leader decides. This module only talks to the cluster and runs a custom task assignor, under a time limit.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from streams_protocol.types import TopicPartition
from streams_py.assignment.assignors.draining import is_draining
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.events.observers import AssignObserver
from streams_py.leader.drive import run_assign
from streams_py.leader.effects import FailAssign, PublishAssignments
from streams_py.leader.events import AssignRequested
from streams_py.leader.executor import Executor
from streams_py.leader.leader import GroupLeader
from streams_py.leader.observation import AssignStep, Fact, Gathered
from streams_py.ports import (
    Admin,
    AdminError,
    AdminErrorKind,
    Clock,
    MemberAssignment,
    MemberSubscription,
    PartitionInfo,
    TopicSpec,
)
from streams_py.ports.rights import TOPIC, missing_right
from streams_py.runtime.group.classic.assignor_runner import AssignorRunner
from streams_py.runtime.group.classic.topic_cleanup import CleanupCheck
from streams_py.runtime.group.timeline import Timekeeper
from streams_py.runtime.group.transport import MemberSignals
from streams_py.topology.physical.metadata import TopologyMetadata
from streams_py.topology.topology import Topology

_log = logging.getLogger("streams_py.leader")

T = TypeVar("T")

_STEP_NAMES: Final = {AssignStep.END_OFFSETS: "lags"}


class _TimedAdmin:
    """An admin client that answers in time or raises BrokerUnavailableError.

    The broker drops a leader that has not assigned within max.poll.interval.ms, and the next leader would be as slow. A
    request that takes too long is abandoned on its thread; the client library has its own timeouts.
    """

    def __init__(self, admin: Admin, timeout_ms: int) -> None:
        self.admin = admin
        self.timeout_ms = timeout_ms

    def describe_topics(self, names: Collection[str]) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        return self._in_time(lambda: self.admin.describe_topics(names))

    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]:
        for spec in specs:
            _log.info("creating internal topic %s with %d partitions", spec.name, spec.partitions)
        return self._in_time(lambda: self.admin.create_topics(specs))

    def list_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | AdminError]:
        return self._in_time(lambda: self.admin.list_offsets(partitions))

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        return self._in_time(lambda: self.admin.committed_offsets(group, partitions))

    def _in_time(self, request: Callable[[], T]) -> T:
        answers: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put((request(), None))
            except Exception as error:
                answers.put((None, error))

        threading.Thread(target=ask, name="leader-request", daemon=True).start()
        try:
            answer, error = answers.get(timeout=self.timeout_ms / 1000)
        except queue.Empty:
            raise BrokerUnavailableError(
                f"the cluster did not answer the group's leader within {self.timeout_ms} ms"
            ) from None
        if error is not None:
            raise error
        return answer  # type: ignore[return-value]  # None is an answer too


@dataclass(frozen=True, slots=True)
class GroupTopology:
    """The topology that a group runs.

    Args:
        topology: The topology of this client. All members must have the same one.
        group: The name of the group (``application.id``).
        settings: The configuration that determines the internal topics.
    """

    topology: Topology
    group: str
    settings: Mapping[str, object]

    def metadata(self, available_topics: Collection[str]) -> TopologyMetadata:
        """Return sub-topologies and internal topics, given the topics that exist."""
        return self.topology.metadata(self.group, self.settings, available_topics=sorted(available_topics))


@dataclass(frozen=True, slots=True)
class LeaderLimits:
    """Time limits of an assign step, in ms: for the assignor, and for each request."""

    assignor_ms: int
    request_ms: int

    @classmethod
    def within(cls, max_poll_interval_ms: int) -> Self:
        """Return limits with which five requests and the assignor fit into the time that the group waits."""
        return cls(max_poll_interval_ms // 2, max(3_000, max_poll_interval_ms // 10))


@dataclass(slots=True)
class LeaderOutcome:
    """What a leader knows about the rebalance that it leads. A thread that does not lead knows nothing."""

    failure: StreamsError | None = None
    """Why the assignment failed. The protocol only sends a code to the members."""
    leads_alone: bool = False
    """Whether the group has no other process that stays."""

    def reset(self) -> None:
        """Forget the last rebalance, because a new one begins."""
        self.failure, self.leads_alone = None, False


class TimedAssignSteps(AssignObserver):
    """An observer that also records the phases of assign steps in the timelines of rebalances."""

    def __init__(self, observer: AssignObserver, times: Timekeeper) -> None:
        self._observer = observer
        self._times = times

    def began(self, members: Mapping[str, MemberSubscription]) -> None:
        """Note that this member is the leader."""
        self._observer.began(members)
        self._times.leads()

    def observe(self, fact: Fact) -> None:
        """Start the phase that the fact announces."""
        if isinstance(fact, AssignStep):
            self._times.enters(_STEP_NAMES.get(fact, fact.value))
        self._observer.observe(fact)

    def ended(self, outcome: PublishAssignments | FailAssign | BaseException, assignor: object = None) -> None:
        """End the last phase."""
        self._times.leaves()
        self._observer.ended(outcome, assignor)


class LeaderExecutor(Executor):
    """Runs the assign step of one stream thread whenever its member is the group leader."""

    def __init__(
        self,
        leader: GroupLeader,
        topology: GroupTopology,
        admin: Admin,
        clock: Clock,
        limits: LeaderLimits,
        signals: MemberSignals,
        observer: AssignObserver,
        cleanup: CleanupCheck,
    ) -> None:
        self._admin = _TimedAdmin(admin, limits.request_ms)
        self._runner = AssignorRunner(timeout_ms=limits.assignor_ms)
        super().__init__(self._admin, clock, self._runner, group=topology.group)
        self._leader = leader
        self._topology = topology
        self._clock = clock
        self._signals = signals
        self._observer = observer
        self._cleanup = cleanup
        self._assigned = TopologyMetadata({})
        self.outcome = LeaderOutcome()

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """Return the assignment of each member, or raise the assign step's error (BrokerUnavailableError: retry)."""
        self._observer.began(members)
        try:
            outcome = self._run(members)
        except BaseException as error:
            self._observer.ended(error, self._runner.assignor)
            raise
        self._observer.ended(outcome, self._runner.assignor)
        if isinstance(outcome, FailAssign):
            raise outcome.error
        self.outcome.failure = outcome.error
        if outcome.error is None:
            self._cleanup.begin(self._assigned)
        else:
            _log.error("assignment failed; sending the error to all members: %s", outcome.error)
        return outcome.assignments

    def _run(self, members: Mapping[str, MemberSubscription]) -> PublishAssignments | FailAssign:
        named = self._topology.metadata(())
        subscribed = named.source_topics.union(*(member.topics for member in members.values()))
        topics = self._existing(subscribed)
        self._assigned = self._topology.metadata(topics)
        request = AssignRequested(self._clock.now_ms(), members, topics, self._assigned, named.source_topics)
        return run_assign(self._leader, request, self.carry_out)

    def _existing(self, names: Collection[str]) -> Mapping[str, tuple[PartitionInfo, ...]]:
        """Return the topics that exist.

        Raises:
            BrokerUnavailableError: A topic cannot be described now. A missing topic would stop the group.
            StreamsError: The user may not describe a topic.
        """
        topics: dict[str, tuple[PartitionInfo, ...]] = {}
        hidden: list[str] = []
        for _ in range(2):  # two answers: a broker that has just started may not know a topic yet
            absent = sorted(set(names) - topics.keys())
            if not absent:
                break
            described = self._admin.describe_topics(absent)
            for name, found in described.items():
                if not isinstance(found, AdminError):
                    topics |= {name: found} if found else {}
                elif found.kind in (AdminErrorKind.TIMED_OUT, AdminErrorKind.LEADER_NOT_AVAILABLE):
                    raise BrokerUnavailableError(f"topic {name} cannot be described now: {found.message}")
                elif found.kind is AdminErrorKind.NOT_ALLOWED:
                    hidden.append(name)
            if hidden:  # it may exist; no leader of this group can tell
                raise StreamsError(f"source topics cannot be read: {missing_right('READ', TOPIC, hidden)}")
        return {name: topics[name] for name in sorted(topics)}

    # -- callbacks of the leader -------------------------------------------------------------------------------

    def log(self, level: int, text: str) -> None:
        """Write a log line."""
        _log.log(level, "%s", text)

    def report(self, error: StreamsError) -> None:
        """Log an error and pass it to the application."""
        _log.error("%s", error, exc_info=error.__cause__)
        self._signals.report(error)

    def observe(self, fact: Fact) -> None:
        """Pass a fact to the recorders of assignment events and rebalance times."""
        if isinstance(fact, Gathered):
            clients = fact.problem.clients
            own = self._leader.process_id
            self.outcome.leads_alone = all(client.process_id == own or is_draining(client) for client in clients)
        self._observer.observe(fact)
