"""A3: at no instant may two members of one generation use the same partition.

Looked at from both ends: whenever a consumer gains a partition, nobody else of its generation has it; and no assignment
gives a partition to one member that another, which claims it, is only about to lose. The second is the check that
Kafka's cooperative consumer makes on the leader.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Gained, Published

__all__ = ["OneOwner"]


class OneOwner(Checker):
    """Two members that use one partition both process its records, and each commits over the other."""

    promise = "A3"

    def gained(self, seen: Gained) -> None:
        self.looked += 1
        if seen.others:
            others = ", ".join(seen.others)
            self.report(seen.at_ms, f"{seen.member} may use {seen.partition}, and so may {others}")

    def published(self, seen: Published) -> None:
        if seen.failure is not None:
            return
        added = set()
        revoked = set()
        for member, assignment in seen.assignments.items():
            claimed, given = set(seen.members[member].owned), set(assignment.partitions)
            added |= given - claimed
            revoked |= claimed - given
        for partition in sorted(added & revoked):
            self.report(seen.at_ms, f"{partition} is given away before the member that claims it has let go of it")
