"""A3: at no instant may two members of one generation use the same partition.

Checked on both sides. Whenever a consumer gains a partition, no other member of its generation has it. And no
assignment gives a partition to one member while it takes the same partition away from another member that claims it.
The second check is the one that Kafka's cooperative consumer makes on the leader.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Gained, Published


class OneOwner(Checker):
    """Checks that no partition has two owners, which would both process its records and overwrite each other's
    commits."""

    promise = "A3"

    def gained(self, seen: Gained) -> None:
        self.checks += 1
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
            self.report(seen.at_ms, f"{partition} is assigned to another member before its owner has revoked it")
