"""What happens on a member during a rebalance: the seam between membership, protocol and tasks.

The membership calls back on its own polling thread. This listener lets the sans-IO ``Member`` build and read the
protocol's user data, leads the group when elected, and hands everything that concerns tasks to the
stream thread through its inbox, waiting where the protocol needs the result: revoked partitions must be flushed and
committed before this member rejoins, and tasks must be those of the last assignment before the next subscription
reports them.
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
from streams_py.member.assignment import HostView, Tasks
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
from streams_py.ports import Clock, MemberAssignment, Membership, MemberSubscription, OffsetAndMetadata
from streams_py.runtime.threads.committing import IN_DOUBT
from streams_py.runtime.threads.inbox import Inbox, InboxClosedError
from streams_py.runtime.threads.leader_executor import LeaderExecutor
from streams_py.runtime.threads.rebalance_log import RebalanceLog
from streams_py.runtime.threads.rebalance_timeline import Timekeeper

__all__ = ["Rebalance", "TaskSide"]

_log = logging.getLogger(__name__)

T = TypeVar("T")


class TaskSide(Protocol):
    """The stream thread's part: runs there, through its inbox, and keeps errors for its loop."""

    def begin_suspension(self, tasks: Collection[TaskId]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Stop and flush these tasks; the offsets to commit."""

    def finish_suspension(self, error: Exception | None) -> None:
        """Those are committed, or could not be."""

    def close_lost(self, tasks: Collection[TaskId]) -> None:
        """Close these without committing."""

    def complete_rebalance(self, tasks: Tasks | None, failure: Exception | None) -> None:
        """Make ``tasks`` the tasks of this thread (None: keep them); then fail with ``failure``, if there is one."""


@dataclass(slots=True)
class _Carried:
    """What carrying out the member's answer to one event has brought."""

    user_data: bytes = b""
    offsets: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    tasks: Tasks | None = None
    failure: StreamsError | None = None
    rejoins: list[str] = field(default_factory=list)
    completes: bool = False
    stops: bool = False


class Rebalance:
    """Listener of one membership (port MembershipListener). ``offset_sums`` is thread-safe: what this thread reports of
    its tasks and of the task directories it could lock. ``standbys``: the last measurement of the state updater."""

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
        self._received = _Carried()
        self._in_progress = False
        self._joining = threading.Lock()
        self._rebalance_log = RebalanceLog(name)
        self._times = times or Timekeeper(name, ())
        self._closed = False

    # -- called by the stream thread -------------------------------------------------------------------------

    @property
    def in_progress(self) -> bool:
        """True from building a subscription until the tasks of the answer are in place."""
        return self._in_progress

    @contextlib.contextmanager
    def held_up(self, may_have_begun: bool) -> Iterator[None]:
        """Within this member does not join again: a commit that is under way then is one of an old generation when it
        arrives, and would be refused. BrokerUnavailableError when a rebalance has begun, unless it may have."""
        with self._joining:
            if self._in_progress and not may_have_begun:
                raise BrokerUnavailableError("the group is rebalancing")
            yield

    def rejoin_if_due(self, membership: Membership) -> None:
        """Ask for the follow-up rebalance when its time has come, or when warm-ups have caught up."""
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
        """What this member remembers of the assignments it made as leader. Thread-safe."""
        return self._leader_executor.explanations

    def request_application_shutdown(self) -> None:
        """Tell every member of the group, with the next subscription, to shut down. Thread-safe."""
        self._handle(ShutdownRequested())

    def request_drain(self) -> None:
        """Have the group take this client's tasks over. Thread-safe."""
        self._handle(DrainRequested())

    @property
    def is_drained(self) -> bool:
        """True when the group has been asked, and this member has no active task any more. Thread-safe."""
        return self._member.is_drained

    @property
    def leads_alone(self) -> bool:
        """True when this member has led the last rebalance, and no other process that stays took part. Thread-safe."""
        return self._leader_executor.leads_alone

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """The stream thread is ending: callbacks return at once from now on. Within, while it commits for the last
        time, this member does not join again: others would be given what it has not given up, and a broker that is
        asked to commit looks who does it, not for what."""
        with self._joining:
            self._closed = True
            yield

    # -- MembershipListener: called by the membership's polling thread -----------------------------------------

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        """User data for a JoinGroup request."""
        held = self._joining.acquire(timeout=self._wait_ms / 1000)
        try:
            self._in_progress = True
            if self._closed and not held:
                raise BrokerUnavailableError("the stream thread is ending, and its last commit is still under way")
            self._rebalance_log.begins(self._clock.monotonic_ms())
            self._times.begins()
            self._leader_executor.failure, self._leader_executor.leads_alone = None, False
            # A thread that ends does so before or after this: it would not let go of what is locked here any more.
            sums = {} if self._closed else self._offset_sums()
        finally:
            if held:
                self._joining.release()
        return self._handle(SubscriptionRequested(sums)).user_data

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """Who gets what, by member, decided by this member as the group's leader."""
        return self._leader_executor.assign(members)

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes, generation: int) -> None:
        """Read an assignment; it is carried out at the end of the round."""
        self._received = self._handle(AssignmentReceived(partitions, user_data))

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Stop and flush the tasks that end; the offsets to commit."""
        self._times.enters("revoke")
        return self._handle(PartitionsRevoked(partitions)).offsets

    def on_revoked_committed(self, error: Exception | None) -> None:
        """Have the stream thread suspend the revoked tasks; ``error`` says why their offsets were not committed."""
        self._ask(lambda tasks: tasks.finish_suspension(error), None)
        self._times.leaves()

    def on_stuck(self) -> None:
        """Let the record that keeps the stream thread busy write nothing any more."""
        self._halt(
            f"the stream thread was busy for more than max.poll.interval.ms ({self._wait_ms} ms) and left the group: "
            "others may own its tasks, so nothing is written"
        )

    def on_doubt(self, in_doubt: bool) -> None:
        """Let the record in process write nothing while nobody knows whether its task is still this member's."""
        self._hold(IN_DOUBT if in_doubt else None)

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Drop every active task without committing."""
        self._rebalance_log.lost_all()
        self._handle(PartitionsLost(partitions))

    def on_assigned(self, added: tuple[TopicPartition, ...]) -> None:
        """The end of a rebalance: carry the assignment out."""
        received, self._received = self._received, _Carried()
        ended = self._handle(PartitionsAssigned(added))
        failure = received.failure or ended.failure
        problem = None if failure is None else self._explain(failure)
        self._times.enters("hand-over")
        self._ask(lambda side: side.complete_rebalance(received.tasks, problem), None)
        self._in_progress = not ended.completes
        self._rebalance_log.ends(received.tasks, self._clock.monotonic_ms())
        tasks = self._member.tasks
        self._times.ends(active_tasks=len(tasks.active), standby_tasks=len(tasks.standby), error=problem)
        if ended.stops:  # on the stream thread, like everything that may call the application's listeners
            self._ask(lambda _: self._on_stop_application(), None)

    # -- inside ----------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> _Carried:
        """Let the member decide, and carry out what it decides; what is left to do at the end of the round, or to be
        told to the membership, is in the result."""
        with self._lock:
            effects = self._member.handle(event)
        carried = _Carried()
        for effect in effects:
            self._carry_out(effect, carried)
        return carried

    def _carry_out(self, effect: Effect, carried: _Carried) -> None:
        match effect:
            case SendUserData(user_data):
                carried.user_data = user_data
            case ShowHosts(hosts):
                self._on_hosts(hosts)
            case ApplyTasks(tasks):
                carried.tasks = tasks
            case SuspendTasks(ids):
                carried.offsets = self._ask(lambda side: side.begin_suspension(ids), {})
            case CloseLostTasks(ids):
                self._ask(lambda side: side.close_lost(ids), None)
            case CompleteRebalance():
                carried.completes = True
            case RequestRejoin(reason):
                carried.rejoins.append(reason)
            case FailThread(error):
                carried.failure = error
            case StopApplication():
                carried.stops = True
            case Log(level, text):
                _log.log(level, "%s", text)
            case _:
                assert_never(effect)

    def _ask(self, action: Callable[[TaskSide], T], otherwise: T) -> T:
        """Have the stream thread do something; ``otherwise`` when it is ending and will not.

        One that is busy for longer than ``max.poll.interval.ms`` gives its tasks up, as with any consumer.
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
