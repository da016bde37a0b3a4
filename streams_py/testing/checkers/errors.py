"""Promises about faults: an assignor or a member that fails does not harm the others, and every error has a cause."""

from __future__ import annotations

from collections import Counter

from streams_py.errors import AssignorError, TaskAssignmentError
from streams_py.testing.checkers.observation import Checker, Outcome, Published


class AssignorErrors(Checker):
    """A11: a custom assignor that raises, hangs or returns nonsense causes a defined error and no lost task.

    Every member keeps its tasks. The leader gives no member a partition that another member claims, and takes no
    running task away from the only member that claims it. The application receives an AssignorError, or the error that
    the assignor itself raised to refuse.

    Checks that a failing custom assignor only causes an error, so that a draft can be tried on a running group.
    """

    promise = "A11"

    def published(self, seen: Published) -> None:
        if seen.assignor_error is None:
            return
        self.checks += 1
        if not isinstance(seen.assignor_error, AssignorError | TaskAssignmentError):
            self.report(seen.at_ms, f"the application receives {type(seen.assignor_error).__name__}")
        if seen.failure is not None or seen.error_code:
            self.report(seen.at_ms, "a failing assignor leaves the group without an assignment")
            return
        claims = Counter(tp for sent in seen.members.values() for tp in set(sent.owned))
        for member, sent in sorted(seen.members.items()):
            info = seen.infos.get(member)
            given, claimed = set(seen.assignments[member].partitions), set(sent.owned)
            if any(claims[tp] for tp in given - claimed):
                self.report(seen.at_ms, f"{member} receives partitions that other members claim")
            if info is None or info.error_code or member in seen.hostile:
                continue
            for inputs in seen.tasks.values():
                alone = all(tp in claimed and claims[tp] == 1 for tp in inputs)
                if alone and not given.issuperset(inputs):
                    self.report(seen.at_ms, f"{member} loses {inputs[0]} although the assignor failed")


class HostileMembers(Checker):
    """L2: one hostile member cannot stop the others.

    Whatever it sends, the leader publishes an assignment, no honest member receives an error because of it, and the
    group recovers while the hostile member stays.

    Checks that a hostile member does not stop the group. Any client that can reach the brokers can join it.
    """

    promise = "L2"

    def published(self, seen: Published) -> None:
        if not seen.hostile:
            return
        self.checks += 1
        if seen.failure is not None:
            if not seen.disturbed:
                self.report(seen.at_ms, f"no assignment with a hostile member in the group: {seen.failure}")
            return
        if seen.source_missing or not seen.members.keys() - seen.hostile:
            return
        for member, info in sorted(seen.infos.items()):
            if member not in seen.hostile and (info is None or info.error_code):
                code = None if info is None else info.error_code
                self.report(seen.at_ms, f"{member} is honest, but receives error {code}")

    def ended(self, seen: Outcome) -> None:
        if not seen.hostile or seen.oscillates or seen.retry_pending:
            return
        if seen.quiet:
            recovered = not seen.unassigned
        else:  # the fallback always requests another rebalance, so the run may end during one
            recovered = seen.assignor == "fallback" and seen.running_after_ms is not None
        if not recovered:
            self.report(seen.at_ms, "the group does not recover while a hostile member stays", liveness=True)


class UnexplainedErrors(Checker):
    """I1: nothing fails without a reason.

    * An assign step fails only if the simulator made a request to the brokers fail.
    * All members receive an error only if a source topic is missing.
    * A custom assignor fails only if the simulator made it fail.
    * After the last fault no thread fails.

    Checks that every error has a cause. An error without one is a defect, even if the group recovers from it.
    """

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
