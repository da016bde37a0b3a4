"""A4: a member that was fenced or has expired commits nothing after the new owner's first commit.

Its thread may still run, and may still believe that it owns a partition; its effects may not land. Ownership is
numbered as it is handed out, so a commit under an older number than the last one is a zombie's.
"""

from __future__ import annotations

from streams_protocol.types import TopicPartition
from streams_py.testing.checkers.observation import Checker, Committed

__all__ = ["Fenced"]


class Fenced(Checker):
    """A zombie's commit moves the position under its successor's feet: records are processed again, or never."""

    promise = "A4"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[TopicPartition, Committed] = {}

    def committed(self, seen: Committed) -> None:
        self.looked += 1
        last = self._last.get(seen.partition)
        if last is not None and last.grant > seen.grant:
            self.report(
                seen.at_ms,
                f"{seen.member} committed {seen.partition} after {last.member}, which owns it now, had committed",
            )
            return
        self._last[seen.partition] = seen
