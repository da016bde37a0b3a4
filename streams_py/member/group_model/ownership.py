"""The partitions that a member owns, by the rules of KIP-429 and ``ConsumerCoordinator``.

Eager members give up all partitions before they join. Cooperative members keep their partitions and give up only those
that a new assignment takes away, after they have received it. A member that lost its membership lost its partitions,
too. They are not revoked, because another member may already own them.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from streams_protocol.types import TopicPartition

Partitions: TypeAlias = frozenset[TopicPartition]


class OwnershipListener(Protocol):
    """Callbacks for every change of ownership, called in Kafka's order."""

    def on_lost(self, partitions: Partitions) -> None:
        """The member lost its membership, and with it these partitions."""

    def on_revoked(self, partitions: Partitions) -> None:
        """The member is about to give up these partitions; it may still commit their offsets."""

    def on_owned(self, before: Partitions, now: Partitions) -> None:
        """The set of owned partitions was set; it may be the same as before."""

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes) -> None:
        """The leader's assignment arrived.

        Partitions that it takes away have already been revoked. New partitions are not owned yet.
        """

    def on_assigned(self, added: Partitions) -> None:
        """The rebalance has ended; the ``added`` partitions are new."""


class Ownership:
    """The partitions that one member owns."""

    def __init__(self, listener: OwnershipListener) -> None:
        self._listener = listener
        self.owned: Partitions = frozenset()

    def prepare_to_join(self, *, is_member: bool, cooperative: bool) -> None:
        """Give up the partitions that must not be kept across a JoinGroup.

        ``is_member`` is False when the membership was lost.
        """
        if not is_member:
            if self.owned:
                self._listener.on_lost(self.owned)
            self._own(frozenset())
        elif not cooperative:
            self._listener.on_revoked(self.owned)
            self._own(frozenset())

    def taken_away_by(self, assigned: Partitions) -> Partitions:
        """Return the owned partitions that an assignment leaves out.

        A member that gives up partitions has to rejoin immediately, so that other members get them.
        """
        return self.owned - assigned

    def take(self, partitions: tuple[TopicPartition, ...], user_data: bytes) -> None:
        """Adopt an assignment: revoke what it takes away, deliver it, then own its partitions."""
        assigned, before = frozenset(partitions), self.owned
        gone = self.taken_away_by(assigned)
        if gone:
            self._listener.on_revoked(gone)
            self._own(before - gone)
        self._listener.on_assignment(partitions, user_data)
        self._own(assigned)
        self._listener.on_assigned(assigned - before)

    def _own(self, partitions: Partitions) -> None:
        before, self.owned = self.owned, partitions
        self._listener.on_owned(before, partitions)
