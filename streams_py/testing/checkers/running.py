"""L1: within a minute of the last fault every task is active on a healthy member.

Members that are frozen at that time stay frozen, and the group has to detect them. After a custom assignor failed, the
group retries one minute later, so a task may take one minute longer. Protocol versions that cannot carry the time of a
follow-up rebalance retry in the next rebalance, at an unknown time. Sticky assignors may oscillate (see A5): then a
task may take longer, but must be active once the oscillation has ended.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Outcome

_LIMIT_MS = 60_000
_ASSIGNOR_RETRY_MS = 60_000


class Running(Checker):
    """Checks that every task is processed in the end: a group that does nothing would also be safe."""

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
