"""L2: one poisonous member cannot stop the others.

Whatever it sends, the leader publishes an assignment, no honest member is sent an error because of it, and none loses
a running task to a member that cannot be read.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Outcome, Published

__all__ = ["Poison"]


class Poison(Checker):
    """Anybody who can reach the brokers can join the group; one bad member must not be able to stop the others."""

    promise = "L2"

    def published(self, seen: Published) -> None:
        if not seen.hostile:
            return
        self.looked += 1
        if seen.failure is not None:
            if not seen.disturbed:
                self.report(seen.at_ms, f"no assignment with a hostile member in the group: {seen.failure}")
            return
        if seen.source_missing or not seen.members.keys() - seen.hostile:
            return
        for member, info in sorted(seen.infos.items()):
            if member not in seen.hostile and (info is None or info.error_code):
                code = None if info is None else info.error_code
                self.report(seen.at_ms, f"{member} is honest, but is sent error {code}")

    def ended(self, seen: Outcome) -> None:
        if not seen.hostile or seen.circles or seen.retry_pending:
            return
        if seen.quiet:
            recovered = not seen.idle
        else:  # the fallback always asks for another rebalance, so the end may find it in the middle of one
            recovered = seen.assignor == "fallback" and seen.running_after_ms is not None
        if not recovered:
            self.report(seen.at_ms, "the group does not recover while a poisonous member stays", liveness=True)
