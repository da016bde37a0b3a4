"""Changelogs that another process reads and sorts."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from streams_protocol.types import TopicPartition


class ChangelogPart(NamedTuple):
    """A request to write a part of a changelog to sorted files.

    The part has the offsets from ``start`` (included) to ``end`` (excluded). The files are written to ``folder``, and
    their names start with ``name``. ``stamped``: whether each value is preceded by the timestamp of its record.
    """

    changelog: TopicPartition
    start: int
    end: int
    folder: str
    name: str
    stamped: bool


class SortedPart(NamedTuple):
    """The sorted files of a part of a changelog."""

    files: tuple[str, ...]
    """The files, in the order in which they must be ingested."""
    last: int | None
    """Offset of the last record in the files; None: the part had no records."""
    records: int
    """Number of records that were read."""
    bytes: int
    """Number of bytes that were read."""


class ChangelogSorter(Protocol):
    """A process that reads parts of changelogs, one at a time. Not thread-safe."""

    def begin(self, part: ChangelogPart) -> None: ...
    @property
    def position(self) -> int | None:
        """The current offset in the part that was started last."""

    def outcome(self) -> SortedPart | None:
        """Return the result; None while the part is being read.

        Raises:
            StreamsError: Reading failed. The part must be read in another way.
        """

    def close(self) -> None: ...
