"""L2: one hostile member cannot stop the others.

Whatever it sends, the leader publishes an assignment, no honest member receives an error because of it, and the group
recovers while the hostile member stays.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Outcome, Published


class HostileMembers(Checker):
    """Checks that a hostile member does not stop the group. Any client that can reach the brokers can join it."""

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
