"""A7: a rebalance in which nothing is new moves no active task.

How many warm-ups a round may start is part of A2; what the loss of one client may move is a property of each assignor
and tested there.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Ending

__all__ = ["Movement"]


class Movement(Checker):
    """See the module."""

    promise = "A7"

    def ended(self, seen: Ending) -> None:
        if seen.quiet:
            self.looked += 1
        if seen.moved_when_nothing_changed:
            moved = ", ".join(seen.moved_when_nothing_changed)
            self.report(seen.at_ms, f"moved although nothing had changed: {moved}")
