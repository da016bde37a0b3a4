"""A11: a custom assignor that raises, hangs or returns nonsense causes a defined error and no lost task.

Every member keeps its tasks. The leader gives no member a partition that another member claims, and takes no running
task away from the only member that claims it. The application receives an AssignorError, or the error that the
assignor itself raised to refuse.
"""

from __future__ import annotations

from collections import Counter

from streams_py.errors import AssignorError, TaskAssignmentError
from streams_py.testing.checkers.observation import Checker, Published


class AssignorErrors(Checker):
    """Checks that a failing custom assignor only causes an error, so that a draft can be tried on a running group."""

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
