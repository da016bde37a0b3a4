"""A5: after the last change assignments stop changing, and then every task is active.

The bound on rebalances comes from Kafka's TaskAssignorConvergenceTest for random histories: twice the number of copies
of stateful tasks. That test assumes that a warm-up task catches up within one probing interval. Here the simulator
computes how many intervals it takes at most (``catch_up_rounds``), and the bound is multiplied by it. The sticky
assignors have no warm-up tasks. But a task that a thread gave up counts as new in the next rebalance and may be placed
on another thread, which may displace further tasks. Their bound is three times the number of tasks.

For the same reason a sticky assignor may oscillate, about once in five hundred groups. A task that its old owner has
given up, and that its new owner does not have yet, belongs to no member. The assignor places it again and displaces
another task. Kafka Streams' sticky assignors were written for the eager protocol, which has no such moment, and they
behave the same. The simulator recognises the repeating placements and counts such runs. They do not violate A5 and L1,
except with an assignor of the user. An oscillation may also end by chance: the order in which members join decides
which tasks belong to no member. Then the bound counts from the end of the oscillation.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Outcome

_FOLLOW_UPS = 6
"""Additional rebalances: to agree on a version, to hand over withheld tasks, to replace a member lost meanwhile."""


class Convergence(Checker):
    """Checks that a group stops rebalancing, but only when every task is active."""

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
