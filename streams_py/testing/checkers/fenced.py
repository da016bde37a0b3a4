"""A4: a member that was fenced or has expired commits nothing after the new owner's first commit.

Its thread may still run, and may still believe that it owns the partition, but its commits must be rejected. The
simulator numbers each grant of a partition, so a commit under an older grant than the last commit is a zombie's.
"""

from __future__ import annotations

from streams_protocol.types import TopicPartition
from streams_py.testing.checkers.observation import Checker, Committed


class Fenced(Checker):
    """Checks that zombies commit nothing: their commit would make the new owner repeat or skip records."""

    promise = "A4"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[TopicPartition, Committed] = {}

    def committed(self, seen: Committed) -> None:
        self.checks += 1
        last = self._last.get(seen.partition)
        if last is not None and last.grant > seen.grant:
            self.report(
                seen.at_ms, f"{seen.member} committed {seen.partition} after its new owner {last.member} had committed"
            )
            return
        self._last[seen.partition] = seen
