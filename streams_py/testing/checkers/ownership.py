"""Promises about a member that owns a partition, or runs a task: it is alone, and its state is complete."""

from __future__ import annotations

from streams_protocol.types import TopicPartition
from streams_py.testing.checkers.observation import Checker, Committed, Gained, Published, Restored


class OneOwner(Checker):
    """A3: at no instant may two members of one generation use the same partition.

    Checked on both sides. Whenever a consumer gains a partition, no other member of its generation has it. And no
    assignment gives a partition to one member while it takes the same partition away from another member that claims
    it. The second check is the one that Kafka's cooperative consumer makes on the leader.

    Checks that no partition has two owners, which would both process its records and overwrite each other's commits.
    """

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


class Fenced(Checker):
    """A4: a member that was fenced or has expired commits nothing after the new owner's first commit.

    Its thread may still run, and may still believe that it owns the partition, but its commits must be rejected. The
    simulator numbers each grant of a partition, so a commit under an older grant than the last commit is a zombie's.

    Checks that zombies commit nothing: their commit would make the new owner repeat or skip records.
    """

    promise = "A4"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[TopicPartition, Committed] = {}

    def committed(self, seen: Committed) -> None:
        self.checks += 1
        last = self._last.get(seen.partition)
        if last is not None and last.grant > seen.grant:
            self.report(
                seen.at_ms, f"{seen.member} committed {seen.partition} after its new owner {last.member} had committed"
            )
            return
        self._last[seen.partition] = seen


class CompleteState(Checker):
    """S1: no task runs on a store that lacks records of its changelogs.

    A task that starts to process on an empty or half-restored store computes wrong results. No later rebalance corrects
    them, and no assignment shows the error. Whenever an active task is found to be restored, the checker compares its
    store with its changelogs. Records can be missing for two reasons. The restore stopped at an end offset that no
    broker had reported, or the checkpoint claims more than was on disk when the thread was killed.

    Checks that restored stores are complete. Results of an incomplete store look like any other result.
    """

    promise = "S1"

    def restored(self, seen: Restored) -> None:
        self.checks += 1
        if seen.lacking > 0:
            self.report(seen.at_ms, f"{seen.member} runs {seen.task} on a store that lacks {seen.lacking} records")
