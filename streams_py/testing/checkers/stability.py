"""Promises about a group after the last change or fault: it comes to rest, in the right state."""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Outcome, Published

_FOLLOW_UPS = 6
"""Additional rebalances: to agree on a version, to hand over withheld tasks, to replace a member lost meanwhile."""


class Convergence(Checker):
    """A5: after the last change assignments stop changing, and then every task is active.

    The bound on rebalances comes from Kafka's TaskAssignorConvergenceTest for random histories: twice the number of
    copies of stateful tasks. That test assumes that a warm-up task catches up within one probing interval. Here the
    simulator computes how many intervals it takes at most (``catch_up_rounds``), and the bound is multiplied by it. The
    sticky assignors have no warm-up tasks. But a task that a thread gave up counts as new in the next rebalance and may
    be placed on another thread, which may displace further tasks. Their bound is three times the number of tasks.

    For the same reason a sticky assignor may oscillate, about once in five hundred groups. A task that its old owner
    has given up, and that its new owner does not have yet, belongs to no member. The assignor places it again and
    displaces another task. Kafka Streams' sticky assignors were written for the eager protocol, which has no such
    moment, and they behave the same. The simulator recognises the repeating placements and counts such runs. They do
    not violate A5 and L1, except with an assignor of the user. An oscillation may also end by chance: the order in
    which members join decides which tasks belong to no member. Then the bound counts from the end of the oscillation.

    Checks that a group stops rebalancing, but only when every task is active.
    """

    promise = "A5"

    def ended(self, seen: Outcome) -> None:
        self.checks += 1
        if seen.assignor == "fallback":
            return  # it always requests another rebalance, because it replaces an assignor that could not decide
        if seen.oscillates:
            return
        copies = seen.stateful * (1 + seen.configs.num_standby_replicas)
        high_availability = seen.assignor == "high_availability"
        rounds = 2 * copies * seen.catch_up_rounds if high_availability else 3 * seen.tasks
        bound = rounds + _FOLLOW_UPS + seen.membership_changes
        if seen.last_move_after - seen.oscillated_until > bound:
            since = "the end of the oscillation" if seen.oscillated_until else "the last fault"
            self.report(
                seen.at_ms,
                f"tasks still moved in rebalance {seen.last_move_after - seen.oscillated_until} after {since}; "
                f"at most {bound} allowed",
                liveness=True,
            )
        if not seen.quiet:
            self.report(
                seen.at_ms, f"the group does not stop rebalancing: {seen.rebalances} rebalances so far", liveness=True
            )
        elif seen.unassigned and not seen.retry_pending:
            idle = ", ".join(map(str, seen.unassigned))
            self.report(seen.at_ms, f"no member runs {idle}, and no member requests a rebalance", liveness=True)


class Movement(Checker):
    """A7: a rebalance without any change moves no active task.

    Required of the high-availability assignor, which is the default, and of an assignor of the user. The sticky
    assignors are only as sticky as Kafka Streams': a client keeps the share of its threads (tasks divided by threads,
    rounded down), and the few remaining tasks are placed again in each rebalance. A2 checks how many warm-up tasks a
    rebalance may start. How many tasks may move when one client is lost is a property of each assignor, and is tested
    there.

    Checks that tasks do not move without need: every move costs a pause or a restore.
    """

    promise = "A7"

    def ended(self, seen: Outcome) -> None:
        if not seen.before or not (seen.user_assignor or seen.assignor == "high_availability"):
            return
        self.checks += 1
        for task, placed in sorted(seen.before.items()):
            now = seen.after.get(task)
            if now != placed:
                there = "no thread" if now is None else now.thread
                self.report(seen.at_ms, f"{task} moved from {placed.thread} to {there} although nothing changed")


_REBALANCES_MAX = 2


class Versions(Checker):
    """A8: a mixed group finds its highest common version, without a loop of rebalances.

    The leader writes each assignment in the lowest version that a member used, or in its own newest version if that is
    lower. The assignment also names the highest version that all members support. Within two rebalances of the last
    membership change both versions are equal (KIP-268).

    Static members may replace themselves with a newer version while the group still uses version 1 or 2. The broker
    starts no rebalance for a static member that returns, and an assignment below version 3 does not make a member
    rejoin. So the group keeps its old assignment, and its version, until the next rebalance. Kafka Streams behaves the
    same. The simulator then requests a rebalance before it checks the version.

    Checks version probing. In a rolling upgrade the group must neither use a version that a member cannot read, nor
    rebalance forever.
    """

    promise = "A8"

    def published(self, seen: Published) -> None:
        if not seen.normal:
            return
        self.checks += 1
        for member, info in sorted(seen.infos.items()):
            if info is None or info.error_code:
                continue
            expected = min([seen.leader_newest, *seen.versions.values()])
            if seen.written[member] != expected:
                self.report(seen.at_ms, f"{member} is answered in version {seen.written[member]}, expected {expected}")
            if member in seen.versions and seen.written[member] > seen.versions[member]:
                self.report(seen.at_ms, f"{member} is answered in a version above its own ({seen.versions[member]})")

    def ended(self, seen: Outcome) -> None:
        if not seen.quiet or seen.final_version is None:
            return
        self.checks += 1
        if seen.final_version != seen.highest_common_version:
            self.report(
                seen.at_ms,
                f"the group uses version {seen.final_version}, but all support {seen.highest_common_version}",
                liveness=True,
            )
        if seen.version_after > _REBALANCES_MAX:
            self.report(
                seen.at_ms,
                f"agreeing on a version took {seen.version_after} rebalances after the last membership change",
                liveness=True,
            )


_LIMIT_MS = 60_000
_ASSIGNOR_RETRY_MS = 60_000


class Running(Checker):
    """L1: within a minute of the last fault every task is active on a healthy member.

    Members that are frozen at that time stay frozen, and the group has to detect them. After a custom assignor failed,
    the group retries one minute later, so a task may take one minute longer. Protocol versions that cannot carry the
    time of a follow-up rebalance retry in the next rebalance, at an unknown time. Sticky assignors may oscillate (see
    A5): then a task may take longer, but must be active once the oscillation has ended.

    Checks that every task is processed in the end: a group that does nothing would also be safe.
    """

    promise = "L1"

    def ended(self, seen: Outcome) -> None:
        self.checks += 1
        if seen.oscillates or seen.retry_pending:
            return
        if seen.running_after_ms is None:
            self.report(seen.at_ms, "at no time was every task active", liveness=True)
        elif not seen.oscillated_until and seen.running_after_ms > _limit_ms(seen):
            self.report(
                seen.at_ms, f"every task was active only {seen.running_after_ms} ms after the last fault", liveness=True
            )


def _limit_ms(seen: Outcome) -> int:
    return _LIMIT_MS + (_ASSIGNOR_RETRY_MS if seen.assignor == "custom" else 0)
