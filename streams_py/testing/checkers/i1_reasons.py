"""I1: nothing fails without a reason.

An assign step fails only when a request to the brokers was made to fail, everybody is sent an error only when a source
topic is missing, an assignor of the application fails only when it was made to, and once all faults are over no thread
fails any more.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Outcome, Published

__all__ = ["Reasons"]


class Reasons(Checker):
    """An error that nothing caused is a defect, however well the group gets over it."""

    promise = "I1"

    def published(self, seen: Published) -> None:
        self.looked += 1
        if seen.failure is not None and not seen.disturbed:
            self.report(seen.at_ms, f"no assignment, for no reason: {type(seen.failure).__name__}: {seen.failure}")
        if seen.error_code and not seen.source_missing and seen.members.keys() - seen.hostile:
            self.report(seen.at_ms, f"everybody is sent error {seen.error_code}, for no reason")

        if seen.assignor_error is not None and not seen.assignor_spoiled:
            error = seen.assignor_error
            self.report(seen.at_ms, f"the assignor failed, and nothing made it: {error}", error=error.__cause__)
        if seen.callback_error is not None:
            self.report(seen.at_ms, str(seen.callback_error), error=seen.callback_error.__cause__)

    def ended(self, seen: Outcome) -> None:
        for failure in seen.failures:
            self.report(seen.at_ms, f"after the last fault: {failure}", liveness=True)
