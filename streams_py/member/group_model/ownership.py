"""What the consumer of one member owns: the rules of KIP-429, as in Kafka's ``ConsumerCoordinator``.

Eager members give up everything before they join; cooperative ones keep what they own, and give up only what an
assignment takes away from them, after they have got it. Who has lost the membership has lost the partitions, too: they
are not revoked, since somebody else may have them already.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from streams_protocol.types import TopicPartition

__all__ = ["Ownership", "OwnershipListener", "Partitions"]

Partitions: TypeAlias = frozenset[TopicPartition]


class OwnershipListener(Protocol):
    """Hears of every change, in Kafka's order of callbacks."""

    def on_lost(self, partitions: Partitions) -> None:
        """The membership is gone, and these with it."""

    def on_revoked(self, partitions: Partitions) -> None:
        """These are about to go; offsets may still be committed."""

    def on_owned(self, before: Partitions, now: Partitions) -> None:
        """The set of owned partitions has changed, or was set anew."""

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes) -> None:
        """What the leader sent; partitions to be revoked are revoked, those that are new are not owned yet."""

    def on_assigned(self, added: Partitions) -> None:
        """The rebalance is over, and these are new."""


class Ownership:
    """Partitions of one member."""

    def __init__(self, listener: OwnershipListener) -> None:
        self._listener = listener
        self.owned: Partitions = frozenset()

    def prepare_to_join(self, *, is_member: bool, cooperative: bool) -> None:
        """Give up what must not be kept over a JoinGroup. ``is_member``: the membership is not lost."""
        if not is_member:
            if self.owned:
                self._listener.on_lost(self.owned)
            self._own(frozenset())
        elif not cooperative:
            self._listener.on_revoked(self.owned)
            self._own(frozenset())

    def taken_away_by(self, assigned: Partitions) -> Partitions:
        """What an assignment leaves out. Whoever gives up partitions for it has to rejoin at once, so that others
        get them."""
        return self.owned - assigned

    def take(self, partitions: tuple[TopicPartition, ...], user_data: bytes) -> None:
        """Take an assignment over."""
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
