"""When to request facts about which changelogs from the cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from streams_protocol.types import TopicPartition
from streams_py.runtime.restore.changelog import ChangelogInWork

_IDENTITY_MS: Final = 300_000
"""Interval between checks that the topic ids are unchanged, in ms. Otherwise a recreated topic that has grown past our
position would be read from that position."""


class ChangelogRequest(NamedTuple):
    """A request, as the arguments of :func:`.ends.ask_ends`."""

    wanted: set[TopicPartition]
    with_end: set[TopicPartition]
    limited: set[TopicPartition]
    lasting: set[TopicPartition]


class RequestSchedule:
    """Decides what to request. ``interval_ms``: interval between requests of the limits of source changelogs."""

    def __init__(self, now_ms: int, interval_ms: int) -> None:
        self._interval_ms = min(interval_ms, _IDENTITY_MS)
        self._next_limits_ms = 0
        self._next_identity_ms = now_ms + _IDENTITY_MS

    def due(self, changelogs: Collection[ChangelogInWork], now_ms: int) -> ChangelogRequest | None:
        """Return what to request now, or None. The result counts as requested."""
        source = {tp for c in changelogs for tp in c.task.source_changelogs if tp == c.partition}
        unknown = {c.partition for c in changelogs if c.is_unknown}
        limited = source if now_ms >= self._next_limits_ms else source & unknown
        with_end = limited.union(c.partition for c in changelogs if c.needs_end)
        checked = {c.partition for c in changelogs} if now_ms >= self._next_identity_ms else set()
        wanted = with_end | unknown | checked
        if not wanted:
            return None
        self._next_limits_ms = now_ms + self._interval_ms
        if checked:
            self._next_identity_ms = now_ms + _IDENTITY_MS
        lasting = {c.partition for c in changelogs if c.partition in with_end and not c.expires}
        return ChangelogRequest(wanted, with_end, limited, lasting)
