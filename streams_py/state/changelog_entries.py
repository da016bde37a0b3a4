"""What stores are restored from: key, value and timestamp of each changelog record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TypeAlias

from streams_py.ports import RawRecord

__all__ = ["RestoreRecord", "changelog_entries"]

RestoreRecord: TypeAlias = "tuple[bytes | None, bytes | None, int]"
"""Key, value, timestamp (ms) of a changelog record."""

_time_of = itemgetter(1)


def changelog_entries(records: Sequence[RawRecord]) -> Iterator[RestoreRecord]:
    """Key, value and timestamp of each record, in their order. The records are of one class, as one consumer gives."""
    if not records:
        return iter(())
    kind = type(records[0])  # its own functions, called without a line of Python for each record
    return zip(
        map(kind.key, records), map(kind.value, records), map(_time_of, map(kind.timestamp, records)), strict=True
    )
