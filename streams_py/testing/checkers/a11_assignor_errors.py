"""A11: an assignor of the application that raises, hangs or returns nonsense yields a defined error, and costs nobody.

Everybody keeps what they have: no member is given a partition that somebody else claims, no running task is taken
away from a member that alone claims it, and the application hears an AssignorError or the assignor's own refusal.
"""

from __future__ import annotations

from collections import Counter

from streams_py.errors import AssignorError, TaskAssignmentError
from streams_py.testing.checkers.observation import Checker, Published

__all__ = ["AssignorErrors"]


class AssignorErrors(Checker):
    """A draft of an assignor is tried on running groups: what it does wrong must cost its author an error, and nobody a
    task."""

    promise = "A11"

    def published(self, seen: Published) -> None:
        if seen.assignor_error is None:
            return
        self.looked += 1
        if not isinstance(seen.assignor_error, AssignorError | TaskAssignmentError):
            self.report(seen.at_ms, f"the application hears {type(seen.assignor_error).__name__}")
        if seen.failure is not None or seen.error_code:
            self.report(seen.at_ms, "a failing assignor leaves the group without an assignment")
            return
        claims = Counter(tp for sent in seen.members.values() for tp in set(sent.owned))
        for member, sent in sorted(seen.members.items()):
            info = seen.infos.get(member)
            given, claimed = set(seen.assignments[member].partitions), set(sent.owned)
            if any(claims[tp] for tp in given - claimed):
                self.report(seen.at_ms, f"{member} is given partitions that others have")
            if info is None or info.error_code or member in seen.hostile:
                continue
            for inputs in seen.tasks.values():
                alone = all(tp in claimed and claims[tp] == 1 for tp in inputs)
                if alone and not given.issuperset(inputs):
                    self.report(seen.at_ms, f"{member} loses {inputs[0]} although the assignor failed")
