"""Membership of a consumer group."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from streams_protocol.types import TopicPartition
from streams_py.ports.offsets import CommittedOffsets, GroupMetadata, OffsetAndMetadata


class MemberSubscription(NamedTuple):
    """The subscription that one member sent in JoinGroup. The user data is not decoded."""

    topics: tuple[str, ...]
    user_data: bytes | None
    owned: tuple[TopicPartition, ...]
    generation: int
    rack: str | None


class MemberAssignment(NamedTuple):
    """The assignment that the leader sends to one member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes


class MembershipListener(Protocol):
    """The callbacks of a Membership. It calls them on its polling thread, unless stated otherwise."""

    def subscription_user_data(self, topics: frozenset[str], member_id: str, generation: int) -> bytes:
        """Return the user data for a JoinGroup request. Called once per request.

        Args:
            topics: The subscribed topics.
            member_id: The id in the request; "" if the member has none yet.
            generation: The last generation of the member; -1 without one.
        """

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """Run the leader's assign step. May block (creates topics, lists offsets).

        Raises:
            BrokerUnavailableError: The membership backs off and rejoins.
        """

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes, generation: int) -> None:
        """Called when a new assignment has arrived."""

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Block until these partitions are no longer processed and their results are flushed.

        Returns:
            The offsets to commit.
        """

    def on_revoked_committed(self, error: Exception | None) -> None:
        """Called after the offsets of ``on_revoked`` were committed, or after the commit failed with ``error``."""

    def on_stuck(self) -> None:
        """Called before the member leaves the group, because its thread was busy for ``max.poll.interval.ms``.

        The member owns partitions. Records that the thread still sends would follow records of the next owner. Called
        on any thread; must not block. ``on_lost`` is called when the thread is responsive again.
        """

    def on_doubt(self, in_doubt: bool) -> None:
        """Called when :meth:`Membership.is_member` changes while the member owns partitions.

        Called on any thread; must not block.

        Args:
            in_doubt: True when the coordinator may have removed the member. False when the membership is confirmed
                again.
        """

    def on_join_waits(self, waited_s: float) -> None:
        """Called while JoinGroup waits for the group: soon after it was sent, and then every few seconds.

        May block, but then the callbacks that follow the response wait. Must not raise.

        Args:
            waited_s: Time since JoinGroup was sent, in seconds.
        """

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Called when the membership is lost: other members may own these partitions already."""

    def on_assigned(self, added: tuple[TopicPartition, ...]) -> None:
        """Called at the end of a rebalance, even if no partitions were added."""


class Membership(Protocol):
    """The membership of one stream thread in the group. Thread-safe."""

    def start(self) -> None:
        """Start the polling thread. The member does not join the group before :meth:`subscribe`."""

    def subscribe(self, topics: frozenset[str], pattern: str | None = None) -> None:
        """Subscribe to topics, or to all topics whose names match ``pattern``."""

    def request_rejoin(self, reason: str) -> None:
        """Request a rebalance. The broker logs ``reason``."""

    def rejoin_as_new_member(self) -> None:
        """Unsubscribe and subscribe again, after tasks have migrated."""

    def expect_rebalance(self) -> None:
        """Send heartbeats more often for some seconds, because another process has ended."""

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """Commit offsets.

        Raises:
            TaskMigratedError: This is no longer a member.
            BrokerUnavailableError: No answer within ``timeout_ms``.
        """

    def committed(self, partitions: Collection[TopicPartition], *, timeout_ms: int) -> Future[CommittedOffsets]:
        """Request committed offsets, and return immediately. The future has them, or BrokerUnavailableError."""

    def group_metadata(self) -> GroupMetadata | None:
        """Return the current identity. None without a generation or member id, or when heartbeats get no response."""

    def forming(self) -> GroupMetadata | None:
        """Return the identity in the latest generation; during a rebalance, in the one being formed."""

    def is_member(self) -> bool:
        """Whether it is certain that no other member can own the partitions of this member.

        It becomes False when the coordinator may have removed the member: when no heartbeat that was sent within the
        last ``session.timeout.ms`` got a response, or when :meth:`check` was not called within
        ``max.poll.interval.ms``. It may become True again without a loss of partitions, when a response arrives.
        """

    @property
    def member_id(self) -> str:
        """The current member id; "" before joining, and after removal from the group."""

    def check(self) -> None:
        """Raise the error that ended the membership, or once the TaskMigratedError of a callback.

        The call also shows that the stream thread is alive.
        """

    def leave_and_close(self, *, leave_group: bool, timeout_ms: int) -> None:
        """Stop. By default members do not leave the group; the broker removes them after the session timeout."""
