"""The interface between a stream thread and its membership of the group.

A *transport* is the membership of one stream thread. A *protocol* creates the transports of one client. The stream
thread uses these interfaces only. It does not know how a transport talks to the group's coordinator, or who decides
which member runs which task.

**A rebalance.** A transport gives the thread new tasks with these calls to its :class:`TaskListener`:

1. ``revoke``: the thread stops and flushes the tasks that it must give up. The transport commits the returned offsets.
2. ``revoked``: the thread suspends these tasks.
3. ``assign``: the thread gets all of its tasks. Exactly one ``assign`` ends a rebalance.

A rebalance without a revocation is ``assign`` alone. A rebalance that starts again may revoke twice. ``lose`` may come
instead of any step, but not between ``revoke`` and ``revoked``. After ``lose`` the next call is ``assign``, or another
``lose``. ``halt`` and ``hold`` come before the ``lose`` that follows from them.

**Threads.** Each transport has one polling thread. It calls the listener through the thread's inbox and waits for the
result for ``max.poll.interval.ms`` at most. Then it calls ``halt`` and gives the tasks up. Heartbeats continue
meanwhile, on another thread. The transport holds no lock while the listener runs, because the listener calls ``token``
and ``is_member`` of the same transport. The stream thread serves its inbox between two batches of records, and calls
``check`` at least once per ``max.poll.interval.ms``.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Protocol

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import StreamsError
from streams_py.ports import CommittedOffsets, GroupMetadata, OffsetAndMetadata
from streams_py.runtime.group.inbox import Inbox

if TYPE_CHECKING:
    from streams_py.leader.explanations import ToldExplanation
    from streams_py.member.tasks import HostView, Progress, Tasks

UNCONFIRMED: Final = (
    "the group may have removed this member (no heartbeat was answered for session.timeout.ms, or the thread was busy "
    "for max.poll.interval.ms), and other members may own its tasks: nothing is written"
)
"""Reason why a member with an unconfirmed membership writes nothing."""


class TaskListener(Protocol):
    """The stream thread's part of a rebalance. Runs on that thread, which raises its errors in its loop later."""

    def revoke(self, tasks: Collection[TaskId]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Stop and flush these active tasks.

        Returns:
            The offsets to commit; none under exactly-once, where the thread has already committed.
        """

    def revoked(self, error: Exception | None) -> None:
        """Suspend the revoked tasks. ``error``: why the transport could not commit their offsets."""

    def assign(self, tasks: Tasks | None, error: Exception | None) -> None:
        """End the rebalance. Make ``tasks`` all tasks of this thread (None: no change).

        With an error, the thread fails.
        """

    def lose(self, tasks: Collection[TaskId]) -> None:
        """Close these active tasks without a commit, because other members may own them. Standby tasks stay."""


class MemberSignals(Protocol):
    """Messages of a transport that don't wait for the stream thread. Called on any thread; must not block."""

    def halt(self, reason: str) -> None:
        """Write nothing until ``lose``: the member leaves the group, because its thread is stuck."""

    def hold(self, reason: str | None) -> None:
        """Write nothing for now: the membership is unconfirmed. None: it is confirmed again."""

    def hosts(self, hosts: HostView) -> None:
        """Use these locations of tasks for interactive queries."""

    def report(self, error: StreamsError) -> None:
        """Show an error that stops nothing, such as a failed assignor."""

    def stop_application(self) -> None:
        """Stop this instance: a member has requested every instance to stop."""


class TaskReport(Protocol):
    """The state of the thread's tasks, for the group. Thread-safe."""

    def offset_sums(self) -> Mapping[TaskId, int]:
        """Return the sums of changelog offsets of this thread's tasks and of unused task directories.

        Locks these directories for the thread until the end of the rebalance (``assign``).
        """

    def standby_progress(self) -> Mapping[TaskId, Progress]:
        """Return the last measurement of the standby tasks. It is the same object until the next measurement."""


class JoinObserver:
    """An observer of the JoinGroup requests of one client. This base class does nothing."""

    def joining(self, thread: int, member_id: str, generation: int) -> None:
        """Called before each JoinGroup request of a stream thread. Must not raise errors of brokers or of the disk.

        Args:
            thread: Number of the stream thread.
            member_id: The id in the request; "" if the member has none yet.
            generation: The last generation of the member, or -1.
        """

    def waits(self, waited_s: float) -> None:
        """Called while JoinGroup waits for the group. Must not raise errors of brokers or of the disk.

        Args:
            waited_s: Time since JoinGroup was sent, in seconds.
        """


class Leave(enum.IntEnum):
    """What becomes of a membership when its thread stops. A later value is more final."""

    STAY = enum.auto()
    """The coordinator keeps the member until its session timeout, so that a restart soon moves no tasks."""
    LEAVE = enum.auto()
    """The tasks move immediately. A static member stays."""
    FOR_GOOD = enum.auto()
    """As LEAVE, and a static member is removed, too: the client will not start it again."""


class GroupTransport(Protocol):
    """The membership of one stream thread. Only for that thread, except for methods marked as thread-safe.

    No call waits for a rebalance.
    """

    def start(self) -> None:
        """Join the group. From now on the transport calls the listener."""

    def check(self) -> None:
        """Show that the thread is alive.

        Raises:
            Exception: The error that has ended the membership.
        """

    def turn(self) -> None:
        """Request a rebalance if one is due. Called in each iteration of the thread's loop."""

    @property
    def rebalancing(self) -> bool:
        """Whether a rebalance is running, so that offsets cannot be committed without a transaction. Thread-safe.

        It is True from before ``offset_sums`` until the tasks of ``assign`` are in place.
        """

    def is_member(self) -> bool:
        """Whether it is certain that no other member can own the tasks of this member. Thread-safe."""

    def identity(self) -> tuple[int, str]:
        """Return generation and member id, (-1, "") without membership. Thread-safe."""

    def token(self) -> GroupMetadata | None:
        """Return the identity for a transaction that is committed now. None: this is no longer a member."""

    def committing(self, *, although_rebalancing: bool) -> AbstractContextManager[None]:
        """Prevent this member from entering a new generation inside the context.

        A commit that is in progress would then arrive with an old generation and be rejected.

        Raises:
            BrokerUnavailableError: A rebalance is running, and ``although_rebalancing`` is False.
        """

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """Commit offsets.

        Raises:
            TaskMigratedError: This is no longer a member.
            BrokerUnavailableError: The coordinator does not answer. Try again.
        """

    def committed(self, partitions: Collection[TopicPartition], *, timeout_ms: int) -> Future[CommittedOffsets]:
        """Request committed offsets, and return immediately. The future has them, or BrokerUnavailableError."""

    def start_over(self) -> None:
        """Join the group as a new member, because tasks have migrated to other members. ``lose`` follows."""

    def request_shutdown(self) -> None:
        """Request all instances of the application to stop. Thread-safe."""

    def request_drain(self) -> None:
        """Request the group to take over this thread's tasks. Thread-safe."""

    @property
    def is_drained(self) -> bool:
        """Whether the group knows the request to drain, and this thread has no active task. Thread-safe."""

    @property
    def drain_gains(self) -> bool:
        """Whether other instances may warm up while this member continues to work. Thread-safe."""

    def explain(self, task: TaskId) -> Sequence[ToldExplanation]:
        """Return why the last assignments by this member placed the task. Empty if another decides. Thread-safe."""

    def ending(self) -> AbstractContextManager[None]:
        """Make calls of the listener return immediately from now on, because the stream thread is stopping.

        Inside the context the thread commits for the last time, and this member does not join again. Otherwise other
        members would get its tasks before it has given them up. A broker checks who commits, but not for which
        partitions.
        """

    def close(self, leave: Leave, *, timeout_ms: int) -> None:
        """End the membership."""


class GroupProtocol(Protocol):
    """The membership of one client in its group: creates the transports of its stream threads. Thread-safe."""

    def open(
        self, thread: str, index: int, inbox: Inbox[TaskListener], signals: MemberSignals, report: TaskReport
    ) -> GroupTransport:
        """Return the transport of a stream thread, not started yet.

        Args:
            thread: The name of the thread.
            index: The number of the thread in this client.
            inbox: Requests to the thread, which answers them as a TaskListener.
            signals: Receives messages that don't wait for the thread.
            report: Describes the thread's tasks.
        """

    def expect_rebalance(self) -> None:
        """Notice the next rebalance sooner than usual, for some seconds: another process of this host has ended."""

    def processes(self) -> frozenset[str] | None:
        """Return the ids of all processes with a member in the group; None if unknown. For one thread at a time."""

    def close(self) -> None:
        """Close connections. All transports must have been closed."""
