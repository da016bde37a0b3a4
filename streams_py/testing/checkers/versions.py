"""A8: a group of mixed versions agrees on the highest version that all members support, without a loop of rebalances.

The leader writes each assignment in the lowest version that a member used, or in its own newest version if that is
lower. The assignment also names the highest version that all members support. Within two rebalances of the last
membership change both versions are equal (KIP-268).

Static members may replace themselves with a newer version while the group still uses version 1 or 2. The broker starts
no rebalance for a static member that returns, and an assignment below version 3 does not make a member rejoin. So the
group keeps its old assignment, and its version, until the next rebalance. Kafka Streams behaves the same. The simulator
then requests a rebalance before it checks the version.
"""

from __future__ import annotations

from streams_py.testing.checkers.observation import Checker, Outcome, Published

_REBALANCES_MAX = 2


class Versions(Checker):
    """Checks version probing.

    In a rolling upgrade the group must neither use a version that a member cannot read, nor rebalance forever.
    """

    promise = "A8"

    def published(self, seen: Published) -> None:
        if not seen.normal:
            return
        self.checks += 1
        for member, info in sorted(seen.infos.items()):
            if info is None or info.error_code:
                continue
            expected = min([seen.leader_newest, *seen.versions.values()])
            if seen.written[member] != expected:
                self.report(seen.at_ms, f"{member} is answered in version {seen.written[member]}, expected {expected}")
            if member in seen.versions and seen.written[member] > seen.versions[member]:
                self.report(seen.at_ms, f"{member} is answered in a version above its own ({seen.versions[member]})")

    def ended(self, seen: Outcome) -> None:
        if not seen.quiet or seen.final_version is None:
            return
        self.checks += 1
        if seen.final_version != seen.highest_common_version:
            self.report(
                seen.at_ms,
                f"the group uses version {seen.final_version}, but all support {seen.highest_common_version}",
                liveness=True,
            )
        if seen.version_after > _REBALANCES_MAX:
            self.report(
                seen.at_ms,
                f"agreeing on a version took {seen.version_after} rebalances after the last membership change",
                liveness=True,
            )
