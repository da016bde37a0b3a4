"""L1: within a minute of the last fault every task is active on a healthy member.

Members that are still frozen stay so, and the group has to notice by itself. After a failure of the application's own
assignor the group tries again a minute later, so there it may take that much longer; in a version that has no words for
"again at", it tries in the next rebalance, whenever that is. Sticky assignors that go round in circles are A5's to
explain.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Outcome

__all__ = ["Running"]

_LIMIT_MS = 60_000
_ASSIGNOR_RETRY_MS = 60_000


class Running(Checker):
    """Safety alone is kept by a group that does nothing: in the end somebody has to process."""

    promise = "L1"

    def ended(self, seen: Outcome) -> None:
        self.looked += 1
        if seen.circles or seen.retry_pending:
            return
        if seen.running_after_ms is None:
            self.report(seen.at_ms, "there never was a moment at which every task was active", liveness=True)
        elif seen.running_after_ms > _LIMIT_MS + (_ASSIGNOR_RETRY_MS if seen.assignor == "custom" else 0):
            self.report(
                seen.at_ms, f"every task was active only {seen.running_after_ms} ms after the last fault", liveness=True
            )
