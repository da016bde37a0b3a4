"""A8: a group of mixed versions speaks the highest version that all understand, and gets there without a loop.

Each assignment is written in the lowest version that a member used (as far as the leader knows it), and names the
highest that everybody supports; within two rebalances of the last change of members both are the same (KIP-268).
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Outcome, Published

__all__ = ["Versions"]

_REBALANCES_MAX = 2


class Versions(Checker):
    """Rolling upgrades are safe only if the group neither speaks what a member cannot read nor rebalances over it for
    ever."""

    promise = "A8"

    def published(self, seen: Published) -> None:
        if not seen.normal:
            return
        self.looked += 1
        for member, info in sorted(seen.infos.items()):
            if info is None or info.error_code:
                continue
            expected = min([seen.leader_newest, *seen.versions.values()])
            if seen.written[member] != expected:
                self.report(seen.at_ms, f"{member} is answered in version {seen.written[member]}, not {expected}")
            if member in seen.versions and seen.written[member] > seen.versions[member]:
                self.report(seen.at_ms, f"{member} is answered in a version above its own, {seen.versions[member]}")

    def ended(self, seen: Outcome) -> None:
        if not seen.quiet or seen.final_version is None:
            return
        self.looked += 1
        if seen.final_version != seen.highest_common_version:
            self.report(
                seen.at_ms,
                f"the group speaks version {seen.final_version}, but all understand {seen.highest_common_version}",
                liveness=True,
            )
        if seen.version_after > _REBALANCES_MAX:
            self.report(
                seen.at_ms,
                f"it took {seen.version_after} rebalances after the last change of members to agree on a version",
                liveness=True,
            )
