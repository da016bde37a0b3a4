"""A5: after the last change assignments stop changing, and then every task is active.

The bound on rebalances is that of Kafka's TaskAssignorConvergenceTest for random histories, twice the number of copies
of stateful tasks. It assumes that a warm-up catches up within a probing interval; the simulator says how many
intervals that takes at most (``catch_up_rounds``), and every round may be needed that often. The sticky assignors know
no warm-ups, but what a thread gives up counts as new in the next rebalance and may be spread again, and that again:
three times the tasks.

That is also why they may go round in circles, about once in five hundred groups: a task that its owner has given up and
its next owner has not got yet is nobody's, is placed anew, and drives another task out. Kafka Streams' sticky assignors
come from the eager protocol, which knows no such moment, and decide the same. The simulator recognises such a circle by
its repeating placements and counts it; here, and for L1, it is no violation. In an assignor of the user's own it is.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Outcome

__all__ = ["Convergence"]

_FOLLOW_UPS = 6
"""Rebalances besides: a version agreed on, tasks withheld and handed over, a member lost meanwhile."""


class Convergence(Checker):
    """A group that never stops rebalancing never works in peace; one that stops too early leaves tasks where they must
    not stay."""

    promise = "A5"

    def ended(self, seen: Outcome) -> None:
        self.looked += 1
        if seen.assignor == "fallback":
            return  # it always asks for another try, because it stands in for an assignor that could not decide
        if seen.circles:
            return
        copies = seen.stateful * (1 + seen.configs.num_standby_replicas)
        high_availability = seen.assignor == "high_availability"
        rounds = 2 * copies * seen.catch_up_rounds if high_availability else 3 * seen.tasks
        bound = rounds + _FOLLOW_UPS + seen.membership_changes
        if seen.last_move_after > bound:
            self.report(
                seen.at_ms,
                f"tasks still moved in rebalance {seen.last_move_after} after the last fault; {bound} are allowed",
                liveness=True,
            )
        if not seen.quiet:
            self.report(
                seen.at_ms, f"the group does not come to rest: {seen.rebalances} rebalances so far", liveness=True
            )
        elif seen.idle and not seen.retry_pending:
            idle = ", ".join(map(str, seen.idle))
            self.report(seen.at_ms, f"nobody runs {idle}, and nobody asks for a rebalance", liveness=True)
