"""Changelogs that another process reads and sorts."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from streams_protocol.types import TopicPartition

__all__ = ["ChangelogPart", "ChangelogSorter", "SortedPart"]


class ChangelogPart(NamedTuple):
    """Offsets of a changelog from ``start`` up to, not including, ``end``, wanted as sorted files in ``folder`` whose
    names begin with ``name``. ``stamped``: with the timestamp of each record in front of its value."""

    changelog: TopicPartition
    start: int
    end: int
    folder: str
    name: str
    stamped: bool


class SortedPart(NamedTuple):
    """Files to be taken in in this order, the offset of the last record in them (None: there was none), and how many
    records and bytes were read."""

    files: tuple[str, ...]
    last: int | None
    records: int
    bytes: int


class ChangelogSorter(Protocol):
    """Reads parts of changelogs beside this process, one at a time. One thread only."""

    def begin(self, part: ChangelogPart) -> None: ...
    @property
    def position(self) -> int | None:
        """How far the part is that was begun last."""

    def outcome(self) -> SortedPart | None:
        """What came of it; None while it is being read. StreamsError when it failed: it is to be read otherwise."""

    def close(self) -> None: ...
