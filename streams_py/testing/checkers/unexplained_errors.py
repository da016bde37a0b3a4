"""I1: nothing fails without a reason.

* An assign step fails only if the simulator made a request to the brokers fail.
* All members receive an error only if a source topic is missing.
* A custom assignor fails only if the simulator made it fail.
* After the last fault no thread fails.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Outcome, Published


class UnexplainedErrors(Checker):
    """Checks that every error has a cause. An error without one is a defect, even if the group recovers from it."""

    promise = "I1"

    def published(self, seen: Published) -> None:
        self.checks += 1
        if seen.failure is not None and not seen.disturbed:
            self.report(seen.at_ms, f"no assignment, without a reason: {type(seen.failure).__name__}: {seen.failure}")
        if seen.error_code and not seen.source_missing and seen.members.keys() - seen.hostile:
            self.report(seen.at_ms, f"all members receive error {seen.error_code}, without a reason")

        if seen.assignor_error is not None and not seen.assignor_spoiled:
            error = seen.assignor_error
            self.report(seen.at_ms, f"the assignor failed without an injected fault: {error}", error=error.__cause__)
        if seen.callback_error is not None:
            self.report(seen.at_ms, str(seen.callback_error), error=seen.callback_error.__cause__)

    def ended(self, seen: Outcome) -> None:
        for failure in seen.failures:
            self.report(seen.at_ms, f"after the last fault: {failure}", liveness=True)
