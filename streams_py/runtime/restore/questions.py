"""When the cluster has to be asked about which changelogs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from streams_protocol.types import TopicPartition
from streams_py.runtime.restore.changelog import ChangelogInWork

__all__ = ["Question", "Questions"]

_IDENTITY_MS: Final = 300_000
"""So often it is looked whether topics are still the same: one that was created anew and has grown past our position
is read on in."""


class Question(NamedTuple):
    """What :func:`.ends.ask_ends` asks for."""

    wanted: set[TopicPartition]
    with_end: set[TopicPartition]
    limited: set[TopicPartition]
    lasting: set[TopicPartition]


class Questions:
    """``interval_ms``: so often the limits of source changelogs are wanted."""

    def __init__(self, now_ms: int, interval_ms: int) -> None:
        self._interval_ms = min(interval_ms, _IDENTITY_MS)
        self._next_limits_ms = 0
        self._next_identity_ms = now_ms + _IDENTITY_MS

    def due(self, changelogs: Collection[ChangelogInWork], now_ms: int) -> Question | None:
        """What is to be asked now; it counts as asked."""
        source = {tp for c in changelogs for tp in c.task.source_changelogs if tp == c.partition}
        unknown = {c.partition for c in changelogs if c.is_unknown}
        limited = source if now_ms >= self._next_limits_ms else source & unknown
        with_end = limited.union(c.partition for c in changelogs if c.needs_end)
        looked_at = {c.partition for c in changelogs} if now_ms >= self._next_identity_ms else set()
        wanted = with_end | unknown | looked_at
        if not wanted:
            return None
        self._next_limits_ms = now_ms + self._interval_ms
        if looked_at:
            self._next_identity_ms = now_ms + _IDENTITY_MS
        lasting = {c.partition for c in changelogs if c.partition in with_end and not c.expires}
        return Question(wanted, with_end, limited, lasting)
