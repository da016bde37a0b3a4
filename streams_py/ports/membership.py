"""Membership of a consumer group."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from streams_protocol.types import TopicPartition
from streams_py.ports.offsets import CommittedOffsets, GroupMetadata, OffsetAndMetadata

__all__ = ["MemberAssignment", "MemberSubscription", "Membership", "MembershipListener"]


class MemberSubscription(NamedTuple):
    """What one member sent in JoinGroup, decoded as far as the consumer protocol goes."""

    topics: tuple[str, ...]
    user_data: bytes | None
    owned: tuple[TopicPartition, ...]
    generation: int
    rack: str | None


class MemberAssignment(NamedTuple):
    """What the leader sends to one member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes


class MembershipListener(Protocol):
    """Called by a Membership, on its own polling thread unless it says otherwise."""

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        """User data for the JoinGroup that is being built; called once for each one built."""

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """The leader's step. May block (creates topics, lists offsets). BrokerUnavailableError: back off and rejoin."""

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes, generation: int) -> None:
        """A new assignment arrived."""

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Blocks until processing of these partitions has stopped and is flushed; the offsets to commit."""

    def on_revoked_committed(self, error: Exception | None) -> None:
        """The offsets of ``on_revoked`` are committed, or could not be."""

    def on_stuck(self) -> None:
        """The member, which owns partitions, is about to leave: its thread was busy for ``max.poll.interval.ms``. What
        that thread still sends would follow the next owner's records. On any thread; must not wait. ``on_lost`` comes
        when the thread shows up again."""

    def on_doubt(self, in_doubt: bool) -> None:
        """The member, which owns partitions, may be none any more: :meth:`Membership.is_member` has become False. Or,
        after that, it is one again for certain (False). On any thread; must not wait."""

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Membership is gone: these belong to somebody else already."""

    def on_assigned(self, added: tuple[TopicPartition, ...]) -> None:
        """End of a rebalance; called also when nothing was added."""


class Membership(Protocol):
    """Membership of one stream thread in the group. Thread-safe."""

    def start(self) -> None: ...
    def subscribe(self, topics: frozenset[str], pattern: str | None = None) -> None: ...
    def request_rejoin(self, reason: str) -> None: ...
    def rejoin_as_new_member(self) -> None: ...  # unsubscribe and subscribe again, after tasks were found migrated
    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """Commit; raises TaskMigratedError when not a member any more, BrokerUnavailableError on time-out."""

    def committed(self, partitions: Collection[TopicPartition], *, timeout_ms: int) -> Future[CommittedOffsets]:
        """Ask for committed positions; returns at once. The answer, or BrokerUnavailableError, comes with the
        future."""

    def group_metadata(self) -> GroupMetadata | None:
        """None while this is no member: no generation, no member id, or heartbeats silent."""

    def forming(self) -> GroupMetadata | None:
        """Of the generation that the broker named last: in a rebalance, of the one being formed. None without one."""

    def is_member(self) -> bool:
        """True while nobody else can own what this member owns. False as soon as the clock says that the group may have
        dropped it: no heartbeat that was sent within the last ``session.timeout.ms`` has been answered, or no
        :meth:`check` within ``max.poll.interval.ms``. May become True again without a loss, when an answer comes."""

    @property
    def member_id(self) -> str: ...  # the last that it was given; "" before that, and when the group has dropped it
    def check(self) -> None: ...  # raises what the polling thread failed with
    def leave_and_close(self, *, leave_group: bool, timeout_ms: int) -> None:
        """Stop. By default members do not leave: the broker notices after the session time-out."""
