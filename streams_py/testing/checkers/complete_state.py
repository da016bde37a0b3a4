"""S1: no task runs on a store that lacks records of its changelogs.

A task that starts to process on an empty or half-restored store computes wrong results. No later rebalance corrects
them, and no assignment shows the error. Whenever an active task is found to be restored, the checker compares its
store with its changelogs. Records can be missing for two reasons. The restore stopped at an end offset that no broker
had reported, or the checkpoint claims more than was on disk when the thread was killed.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Restored


class CompleteState(Checker):
    """Checks that restored stores are complete. Results of an incomplete store look like any other result."""

    promise = "S1"

    def restored(self, seen: Restored) -> None:
        self.checks += 1
        if seen.lacking > 0:
            self.report(seen.at_ms, f"{seen.member} runs {seen.task} on a store that lacks {seen.lacking} records")
