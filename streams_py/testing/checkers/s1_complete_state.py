"""S1: no task runs on a store that lacks what its changelogs have.

A task that begins to process on an empty or half-restored store counts from nothing: no later rebalance repairs that,
and no assignment shows it. Looked at whenever an active task is seen to be restored, for the records that were in its
changelogs and are not in its store: because an end was believed that no broker has said, or because a checkpoint says
more than what had reached the disk when its thread was killed.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Restored

__all__ = ["CompleteState"]


class CompleteState(Checker):
    """What is computed on a hole in the state looks like any other result."""

    promise = "S1"

    def restored(self, seen: Restored) -> None:
        self.looked += 1
        if seen.lacking > 0:
            self.report(seen.at_ms, f"{seen.member} runs {seen.task} on a store that lacks {seen.lacking} records")
