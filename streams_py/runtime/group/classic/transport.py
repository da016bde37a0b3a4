"""The transport of the classic protocol: consumer group membership, with user data and a leader among the members."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager

from streams_protocol.types import TaskId, TopicPartition
from streams_py.leader.explanations import ToldExplanation
from streams_py.member.events import DrainRequested, LoopTurned, ShutdownRequested, StandbysMeasured
from streams_py.member.member import Member
from streams_py.member.tasks import Progress
from streams_py.ports import Admin, Clock, CommittedOffsets, GroupMetadata, Membership, OffsetAndMetadata
from streams_py.runtime.group.classic.leader_executor import LeaderExecutor
from streams_py.runtime.group.classic.member_listener import MemberListener
from streams_py.runtime.group.thread_calls import ThreadCalls
from streams_py.runtime.group.transport import Leave, TaskReport
from streams_py.system.printable import text_of

_log = logging.getLogger(__name__)


class StaticMember:
    """The static member of a stream thread, if ``group.instance.id`` is set (KIP-345).

    A static member does not leave automatically: the group would keep its tasks until the session timeout.
    """

    def __init__(self, thread: str, admin: Admin, group: str, instance_id: str | None) -> None:
        self._thread = thread
        self._admin = admin
        self._group = group
        self._instance_id = instance_id

    def remove(self, member_id: str) -> None:
        """Remove the member from the group, unless another member has replaced ``member_id`` ("": in any case).

        Logs errors, because the thread stops in any case.
        """
        if self._instance_id is None:
            return
        try:
            self._admin.remove_member(self._group, self._instance_id, member_id)
        except Exception as error:
            _log.warning(
                "%s: removing its static member from the group failed; the group keeps its tasks until the session "
                "timeout: %s",
                self._thread,
                text_of(error),
            )


class ClassicTransport:
    """A member of a classic group, as its stream thread uses it (``GroupTransport``).

    Args:
        membership: The client library's membership, whose listener is ``listener``.
        listener: The listener.
        thread: The calls that ``listener`` makes to the stream thread.
        static: Removes a static member when its thread stops for good.
    """

    def __init__(
        self,
        membership: Membership,
        listener: MemberListener,
        thread: ThreadCalls,
        member: Member,
        leader_executor: LeaderExecutor,
        report: TaskReport,
        clock: Clock,
        static: StaticMember,
    ) -> None:
        self._membership = membership
        self._listener = listener
        self._gate = listener.gate
        self._thread = thread
        self._member = member
        self._leader_executor = leader_executor
        self._report = report
        self._clock = clock
        self._static = static
        self._measured: Mapping[TaskId, Progress] = {}
        self._last_member_id = ""

    # -- membership ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join the group."""
        self._membership.start()

    def check(self) -> None:
        """Show that the thread is alive. Raise the error that has ended the membership."""
        self._membership.check()

    def turn(self) -> None:
        """Request the follow-up rebalance when it is due, or when warm-up tasks have caught up."""
        now_ms = self._clock.now_ms()
        reasons = self._listener.handle(LoopTurned(now_ms)).rejoins
        measured = self._report.standby_progress()
        if measured is not self._measured:
            self._measured = measured
            reasons += self._listener.handle(StandbysMeasured(now_ms, measured)).rejoins
        for reason in reasons:
            self._membership.request_rejoin(reason)

    @property
    def rebalancing(self) -> bool:
        """Whether a rebalance is running: from the subscription until the assigned tasks are in place."""
        return self._gate.rebalancing

    def is_member(self) -> bool:
        """Whether it is certain that no other member can own the tasks of this member."""
        return self._membership.is_member()

    def identity(self) -> tuple[int, str]:
        """Return generation and member id; (-1, "") without membership."""
        metadata = self._membership.group_metadata()
        return (-1, "") if metadata is None else (metadata.generation, metadata.member_id)

    def start_over(self) -> None:
        """Leave the group and join it again, after tasks have migrated."""
        self._membership.rejoin_as_new_member()

    # -- commits ---------------------------------------------------------------------------------------------

    def token(self) -> GroupMetadata | None:
        """Return the identity in the latest generation; during a rebalance, in the generation being formed."""
        token = self._membership.forming()
        return None if self._membership.group_metadata() is None else token

    def committing(self, *, although_rebalancing: bool) -> AbstractContextManager[None]:
        """Prevent this member from joining again inside the context."""
        return self._gate.committing(although_rebalancing=although_rebalancing)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """Commit offsets."""
        self._membership.commit(offsets, timeout_ms=timeout_ms)

    def committed(self, partitions: Collection[TopicPartition], *, timeout_ms: int) -> Future[CommittedOffsets]:
        """Request committed offsets."""
        return self._membership.committed(partitions, timeout_ms=timeout_ms)

    # -- requests of other threads ---------------------------------------------------------------------------

    def request_shutdown(self) -> None:
        """Request all instances to stop, with the next subscription."""
        self._listener.handle(ShutdownRequested())

    def request_drain(self) -> None:
        """Request the group to take over this client's tasks."""
        self._listener.handle(DrainRequested())

    @property
    def is_drained(self) -> bool:
        """Whether the drain was requested and this member has no active task."""
        return self._member.is_drained

    @property
    def drain_gains(self) -> bool:
        """Whether the group may have another process that stays.

        False if this member led the last rebalance and has seen none. If another member leads, there is one.
        """
        return not self._leader_executor.outcome.leads_alone

    def explain(self, task: TaskId) -> Sequence[ToldExplanation]:
        """Return the explanations of the assignments that this member computed as leader."""
        return self._leader_executor.explanations.explanation(task)

    # -- end -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Make the listener's calls return immediately, and prevent this member from joining inside the context."""
        self._last_member_id = self._membership.member_id
        with self._gate.ending():
            self._thread.end()
            yield

    def close(self, leave: Leave, *, timeout_ms: int) -> None:
        """End the membership. A static member is removed only with ``FOR_GOOD``."""
        try:
            self._membership.leave_and_close(leave_group=leave is not Leave.STAY, timeout_ms=timeout_ms)
        finally:
            if leave is Leave.FOR_GOOD:
                # It no longer explains errors of the client's other threads.
                self._leader_executor.outcome.failure = None
                self._static.remove(self._last_member_id)
