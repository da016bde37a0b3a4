"""A member's side of a rebalance: connects membership, protocol and tasks.

The membership calls back on its own polling thread. This listener lets the sans-IO ``Member`` build and read the
protocol's user data, and leads the group when elected. It passes everything that concerns tasks to the stream thread
through its inbox. It waits where the protocol needs the result: revoked partitions must be flushed and committed before
this member rejoins, and the tasks of the last assignment must be in place before the next subscription reports them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, assert_never

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, StreamsError, TaskMigratedError, TimeoutExceededError
from streams_py.leader.explanations import Explanations
from streams_py.member.effects import (
    ApplyTasks,
    CloseLostTasks,
    CompleteRebalance,
    Effect,
    FailThread,
    Log,
    RequestRejoin,
    SendUserData,
    ShowHosts,
    StopApplication,
    SuspendTasks,
)
from streams_py.member.events import (
    AssignmentReceived,
    DrainRequested,
    Event,
    LoopTurned,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    Progress,
    ShutdownRequested,
    StandbysMeasured,
    SubscriptionRequested,
)
from streams_py.member.member import Member
from streams_py.member.tasks import HostView, Tasks
from streams_py.ports import Clock, MemberAssignment, Membership, MemberSubscription, OffsetAndMetadata
from streams_py.runtime.commit.committer import UNCONFIRMED
from streams_py.runtime.group.classic.leader_executor import LeaderExecutor
from streams_py.runtime.group.classic.rebalance_log import RebalanceLog
from streams_py.runtime.group.inbox import Inbox, InboxClosedError
from streams_py.runtime.group.timeline import Timekeeper

_log = logging.getLogger(__name__)

T = TypeVar("T")


class TaskSide(Protocol):
    """The stream thread's part of a rebalance. Runs on that thread through its inbox, and defers errors to its loop."""

    def begin_suspension(self, tasks: Collection[TaskId]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Stop and flush these tasks. Return the offsets to commit."""

    def finish_suspension(self, error: Exception | None) -> None:
        """Complete the suspension after the commit; ``error`` if the offsets were not committed."""

    def close_lost(self, tasks: Collection[TaskId]) -> None:
        """Close these tasks without committing."""

    def complete_rebalance(self, tasks: Tasks | None, failure: Exception | None) -> None:
        """Make ``tasks`` the tasks of this thread (None: keep the current ones). Then raise ``failure``, if given."""


@dataclass(slots=True)
class _Results:
    """Results of the effects that the member returned for one event."""

    user_data: bytes = b""
    offsets: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    tasks: Tasks | None = None
    failure: StreamsError | None = None
    rejoins: list[str] = field(default_factory=list)
    completes: bool = False
    stops: bool = False


class Rebalance:
    """Listener of one membership (port MembershipListener).

    Args:
        offset_sums: Returns the offset sums of this thread's tasks and of the task directories that it could lock.
            Thread-safe.
        standbys: Returns the last measurement of the state updater.
    """

    def __init__(
        self,
        member: Member,
        leader_executor: LeaderExecutor,
        inbox: Inbox[TaskSide],
        clock: Clock,
        *,
        name: str,
        wait_ms: int,
        offset_sums: Callable[[], Mapping[TaskId, int]],
        standbys: Callable[[], Mapping[TaskId, Progress]],
        halt: Callable[[str], None],
        hold: Callable[[str | None], None],
        on_stop_application: Callable[[], None],
        on_hosts: Callable[[HostView], None],
        explain: Callable[[Exception], Exception],
        times: Timekeeper | None = None,
    ) -> None:
        self._member = member
        self._leader_executor = leader_executor
        self._inbox = inbox
        self._clock = clock
        self._wait_ms = wait_ms
        self._offset_sums = offset_sums
        self._standbys = standbys
        self._measured: Mapping[TaskId, Progress] = {}
        self._halt = halt
        self._hold = hold
        self._on_stop_application = on_stop_application
        self._on_hosts = on_hosts
        self._explain = explain
        self._lock = threading.Lock()
        self._received = _Results()
        self._in_progress = False
        self._joining = threading.Lock()
        self._rebalance_log = RebalanceLog(name)
        self._times = times or Timekeeper(name, ())
        self._closed = False

    # -- called by the stream thread -------------------------------------------------------------------------

    @property
    def in_progress(self) -> bool:
        """Whether a rebalance is running: from the subscription until the assigned tasks are in place."""
        return self._in_progress

    @contextlib.contextmanager
    def no_rejoin(self, may_have_begun: bool) -> Iterator[None]:
        """Prevent this member from joining again inside the context.

        A commit that is in progress would then arrive with an old generation and be rejected.

        Raises:
            BrokerUnavailableError: A rebalance has begun and ``may_have_begun`` is False.
        """
        with self._joining:
            if self._in_progress and not may_have_begun:
                raise BrokerUnavailableError("the group is rebalancing")
            yield

    def rejoin_if_due(self, membership: Membership) -> None:
        """Request the follow-up rebalance when it is due, or when warm-up tasks have caught up."""
        now_ms = self._clock.now_ms()
        reasons = self._handle(LoopTurned(now_ms)).rejoins
        measured = self._standbys()
        if measured is not self._measured:
            self._measured = measured
            reasons += self._handle(StandbysMeasured(now_ms, measured)).rejoins
        for reason in reasons:
            membership.request_rejoin(reason)

    @property
    def explanations(self) -> Explanations:
        """Explanations of the assignments that this member computed as leader. Thread-safe."""
        return self._leader_executor.explanations

    def request_application_shutdown(self) -> None:
        """Request all members of the group to shut down, with the next subscription. Thread-safe."""
        self._handle(ShutdownRequested())

    def request_drain(self) -> None:
        """Request the group to take over this client's tasks. Thread-safe."""
        self._handle(DrainRequested())

    @property
    def is_drained(self) -> bool:
        """Whether the drain was requested and this member has no active task. Thread-safe."""
        return self._member.is_drained

    @property
    def leads_alone(self) -> bool:
        """Whether this member led the last rebalance without any other process that stays. Thread-safe."""
        return self._leader_executor.leads_alone

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Make callbacks return immediately from now on, because the stream thread is stopping.

        Inside the context the thread commits for the last time, and this member does not join again. Otherwise other
        members would get its tasks before it has given them up. A broker checks who commits, but not for which
        partitions.
        """
        with self._joining:
            self._closed = True
            yield

    # -- MembershipListener: called by the membership's polling thread -----------------------------------------

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        """Return the user data of a JoinGroup request."""
        is_locked = self._joining.acquire(timeout=self._wait_ms / 1000)
        try:
            self._in_progress = True
            if self._closed and not is_locked:
                raise BrokerUnavailableError("the stream thread is stopping, and its last commit is still in progress")
            self._rebalance_log.begins(self._clock.monotonic_ms())
            self._times.begins()
            self._leader_executor.failure, self._leader_executor.leads_alone = None, False
            # A thread stops before or after this block: once stopped, it would not release directories locked here.
            sums = {} if self._closed else self._offset_sums()
        finally:
            if is_locked:
                self._joining.release()
        return self._handle(SubscriptionRequested(sums)).user_data

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """Return the assignment of each member, computed by this member as group leader."""
        return self._leader_executor.assign(members)

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes, generation: int) -> None:
        """Read an assignment. It is applied at the end of the rebalance."""
        self._received = self._handle(AssignmentReceived(partitions, user_data))

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Stop and flush the revoked tasks. Return the offsets to commit."""
        self._times.enters("revoke")
        return self._handle(PartitionsRevoked(partitions)).offsets

    def on_revoked_committed(self, error: Exception | None) -> None:
        """Suspend the revoked tasks on the stream thread; ``error`` tells why their offsets were not committed."""
        self._ask(lambda tasks: tasks.finish_suspension(error), None)
        self._times.leaves()

    def on_stuck(self) -> None:
        """Prevent the record that keeps the stream thread busy from writing anything."""
        self._halt(
            f"the stream thread was busy for more than max.poll.interval.ms ({self._wait_ms} ms) and left the group: "
            "other members may own its tasks, so nothing is written"
        )

    def on_doubt(self, in_doubt: bool) -> None:
        """Hold the writes of the record in process while the membership is unconfirmed."""
        self._hold(UNCONFIRMED if in_doubt else None)

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Close all active tasks without committing."""
        self._rebalance_log.lost_all()
        self._handle(PartitionsLost(partitions))

    def on_assigned(self, added: tuple[TopicPartition, ...]) -> None:
        """Apply the assignment at the end of a rebalance."""
        received, self._received = self._received, _Results()
        ended = self._handle(PartitionsAssigned(added))
        failure = received.failure or ended.failure
        problem = None if failure is None else self._explain(failure)
        self._times.enters("hand-over")
        self._ask(lambda side: side.complete_rebalance(received.tasks, problem), None)
        self._in_progress = not ended.completes
        self._rebalance_log.ends(received.tasks, self._clock.monotonic_ms())
        tasks = self._member.tasks
        self._times.ends(active_tasks=len(tasks.active), standby_tasks=len(tasks.standby), error=problem)
        if ended.stops:  # on the stream thread, because it may call the application's listeners
            self._ask(lambda _: self._on_stop_application(), None)

    # -- inside ----------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> _Results:
        """Let the member handle an event, and carry out its effects.

        The result has the effects that remain for the end of the rebalance or for the membership.
        """
        with self._lock:
            effects = self._member.handle(event)
        results = _Results()
        for effect in effects:
            self._carry_out(effect, results)
        return results

    def _carry_out(self, effect: Effect, results: _Results) -> None:
        match effect:
            case SendUserData(user_data):
                results.user_data = user_data
            case ShowHosts(hosts):
                self._on_hosts(hosts)
            case ApplyTasks(tasks):
                results.tasks = tasks
            case SuspendTasks(ids):
                results.offsets = self._ask(lambda side: side.begin_suspension(ids), {})
            case CloseLostTasks(ids):
                self._ask(lambda side: side.close_lost(ids), None)
            case CompleteRebalance():
                results.completes = True
            case RequestRejoin(reason):
                results.rejoins.append(reason)
            case FailThread(error):
                results.failure = error
            case StopApplication():
                results.stops = True
            case Log(level, text):
                _log.log(level, "%s", text)
            case _:
                assert_never(effect)

    def _ask(self, action: Callable[[TaskSide], T], otherwise: T) -> T:
        """Run an action on the stream thread. Return ``otherwise`` if the thread is stopping.

        If the thread is busy for longer than ``max.poll.interval.ms``, it gives up its tasks, as any consumer does.
        """
        if self._closed:
            return otherwise
        try:
            return self._inbox.call(action, timeout_ms=self._wait_ms)
        except InboxClosedError:
            return otherwise
        except TimeoutExceededError as error:
            self.on_stuck()
            raise TaskMigratedError(f"{error} (max.poll.interval.ms)") from error
