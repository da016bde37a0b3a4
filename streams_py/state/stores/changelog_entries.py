"""Batches of changelog records to restore stores from: key, value and timestamp of each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add, itemgetter
from typing import Final, TypeAlias, cast

from streams_py.ports import RawRecord
from streams_py.state.stores.codec import pack_timestamp

RestoreRecord: TypeAlias = "tuple[bytes | None, bytes | None, int]"
"""Key, value and timestamp (ms) of a changelog record."""

_time_of: Final = itemgetter(1)


class ChangelogEntries:
    """Changelog records in columns.

    Columns can be processed without running Python code per record, and without an object per record that the garbage
    collector would have to track. Iterating yields :data:`RestoreRecord`.
    """

    __slots__ = ("_times_ms", "keys", "removes", "values")

    def __init__(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], times_ms: Callable[[], Iterable[int]]
    ) -> None:
        self.keys = keys
        self.values = values
        self._times_ms = times_ms
        self.removes = _has_null(values)
        """Whether some records are tombstones (value None)."""

    @classmethod
    def of(cls, records: Iterable[RestoreRecord]) -> ChangelogEntries:
        """Return the same records in columns."""
        if isinstance(records, ChangelogEntries):
            return records
        rows = list(records)
        times_ms = [time_ms for _, _, time_ms in rows]
        return cls([key for key, _, _ in rows], [value for _, value, _ in rows], lambda: times_ms)

    def __iter__(self) -> Iterator[RestoreRecord]:
        return zip(self.keys, self.values, self._times_ms(), strict=True)

    def __len__(self) -> int:
        return len(self.keys)

    def at(self, keys: Sequence[bytes | None]) -> ChangelogEntries:
        """Return the same values and timestamps with other keys."""
        return ChangelogEntries(keys, self.values, self._times_ms)

    def with_keys(self) -> tuple[Sequence[bytes], ChangelogEntries]:
        """Return the records whose key is not None, and their keys."""
        entries = self
        if _has_null(self.keys):
            entries = ChangelogEntries.of([record for record in self if record[0] is not None])
        return cast("Sequence[bytes]", entries.keys), entries

    def stamped(self) -> Iterable[bytes | None]:
        """Return each value preceded by its timestamp, as timestamped stores store it."""
        if not self.removes:
            return map(add, map(pack_timestamp, self._times_ms()), self.values)
        return [
            None if value is None else pack_timestamp(time_ms) + value
            for value, time_ms in zip(self.values, self._times_ms(), strict=True)
        ]


def _has_null(column: Sequence[bytes | None]) -> bool:
    # Most columns have no false value at all, and all() detects this in a third of the time.
    return not all(column) and None in column


def changelog_entries(records: Sequence[RawRecord]) -> ChangelogEntries:
    """Return the records in columns. All records must have the same class, as the records of one consumer do."""
    if not records:
        return ChangelogEntries.of(())
    kind = type(records[0])  # map() over its methods runs no Python code per record
    return ChangelogEntries(
        list(map(kind.key, records)),
        list(map(kind.value, records)),
        lambda: map(_time_of, map(kind.timestamp, records)),
    )
