"""A member's part of the classic protocol: the calls of its membership, in the order of a rebalance.

The membership calls on its own polling thread. This listener lets the sans-IO ``Member`` build and read the protocol's
user data, and leads the group when elected. It passes everything that concerns tasks to the stream thread. It waits
where the protocol needs the result: revoked partitions must be flushed and committed before this member rejoins, and
the tasks of the last assignment must be in place before the next subscription reports them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from streams_protocol.types import TopicPartition
from streams_py.errors import StreamsError
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
    Event,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    SubscriptionRequested,
)
from streams_py.member.member import Member
from streams_py.member.tasks import Tasks
from streams_py.ports import MemberAssignment, MemberSubscription, OffsetAndMetadata
from streams_py.runtime.group.classic.join_gate import JoinGate
from streams_py.runtime.group.classic.leader_executor import LeaderExecutor
from streams_py.runtime.group.classic.recorder import RebalanceRecorder
from streams_py.runtime.group.thread_calls import ThreadCalls
from streams_py.runtime.group.transport import UNCONFIRMED, MemberSignals, TaskReport

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Results:
    """Results of the effects that the member returned for one event."""

    user_data: bytes = b""
    offsets: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    tasks: Tasks | None = None
    failure: StreamsError | None = None
    rejoins: list[str] = field(default_factory=list)
    completes: bool = False
    stops: bool = False


class MemberListener:
    """Listener of one membership (port MembershipListener). Called by the membership's polling thread.

    Args:
        explain: Returns the reason of an error that the protocol reports by a code only.
    """

    def __init__(
        self,
        member: Member,
        leader_executor: LeaderExecutor,
        thread: ThreadCalls,
        signals: MemberSignals,
        report: TaskReport,
        recorder: RebalanceRecorder,
        explain: Callable[[StreamsError], Exception],
    ) -> None:
        self.gate = JoinGate()
        """Keeps commits of the stream thread and JoinGroup requests apart."""
        self._member = member
        self._leader_executor = leader_executor
        self._thread = thread
        self._signals = signals
        self._report = report
        self._recorder = recorder
        self._explain = explain
        self._lock = threading.Lock()
        self._received = Results()

    def subscription_user_data(self, topics: frozenset[str], member_id: str, generation: int) -> bytes:
        """Return the user data of a JoinGroup request."""
        self._recorder.joining(member_id, generation)
        with self.gate.joining(wait_ms=self._thread.wait_ms) as may_lock:
            self._recorder.begins()
            self._leader_executor.outcome.reset()
            sums = self._report.offset_sums() if may_lock else {}
        return self.handle(SubscriptionRequested(sums)).user_data

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """Return the assignment of each member, computed by this member as group leader."""
        return self._leader_executor.assign(members)

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes, generation: int) -> None:
        """Read an assignment. It is applied at the end of the rebalance."""
        self._received = self.handle(AssignmentReceived(partitions, user_data))

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Stop and flush the revoked tasks. Return the offsets to commit."""
        self._recorder.enters("revoke")
        return self.handle(PartitionsRevoked(partitions)).offsets

    def on_revoked_committed(self, error: Exception | None) -> None:
        """Suspend the revoked tasks on the stream thread; ``error`` tells why their offsets were not committed."""
        self._thread.revoked(error)
        self._recorder.leaves()

    def on_stuck(self) -> None:
        """Prevent the record that keeps the stream thread busy from writing anything."""
        self._thread.halt()

    def on_doubt(self, in_doubt: bool) -> None:
        """Hold the writes of the record in process while the membership is unconfirmed."""
        self._signals.hold(UNCONFIRMED if in_doubt else None)

    def on_join_waits(self, waited_s: float) -> None:
        """Remove the members of the former run, for which the group waits. Log a long wait."""
        self._recorder.join_waits(waited_s)

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Close all active tasks without committing."""
        self._recorder.lost_all()
        self.handle(PartitionsLost(partitions))

    def on_assigned(self, added: tuple[TopicPartition, ...]) -> None:
        """Apply the assignment at the end of a rebalance."""
        received, self._received = self._received, Results()
        ended = self.handle(PartitionsAssigned(added))
        failure = received.failure or ended.failure
        problem = None if failure is None else self._explain(failure)
        self._recorder.enters("hand-over")
        self._thread.assign(received.tasks, problem)
        self.gate.rebalancing = not ended.completes
        self._recorder.ends(received.tasks, self._member.tasks, problem)
        if ended.stops:
            self._signals.stop_application()

    def handle(self, event: Event) -> Results:
        """Let the member handle an event, and carry out its effects. Thread-safe.

        The result has the effects that remain for the end of the rebalance or for the membership.
        """
        with self._lock:
            effects = self._member.handle(event)
        results = Results()
        for effect in effects:
            self._carry_out(effect, results)
        return results

    def _carry_out(self, effect: Effect, results: Results) -> None:
        match effect:
            case SendUserData(user_data):
                results.user_data = user_data
            case ShowHosts(hosts):
                self._signals.hosts(hosts)
            case ApplyTasks(tasks):
                results.tasks = tasks
            case SuspendTasks(ids):
                results.offsets = self._thread.revoke(ids)
            case CloseLostTasks(ids):
                self._thread.lose(ids)
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
