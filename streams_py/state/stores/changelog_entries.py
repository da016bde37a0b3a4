"""What stores are restored from: key, value and timestamp of each changelog record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add, itemgetter
from typing import Final, TypeAlias, cast

from streams_py.ports import RawRecord
from streams_py.state.stores.codec import pack_timestamp

__all__ = ["ChangelogEntries", "RestoreRecord", "changelog_entries"]

RestoreRecord: TypeAlias = "tuple[bytes | None, bytes | None, int]"
"""Key, value, timestamp (ms) of a changelog record."""

_time_of: Final = itemgetter(1)


class ChangelogEntries:
    """Records of a changelog, by columns: a column is worked on without a line of Python for each record, and without
    an object for each record that Python's collector would look at. Iterated over they are :data:`RestoreRecord`."""

    __slots__ = ("_times_ms", "keys", "removes", "values")

    def __init__(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], times_ms: Callable[[], Iterable[int]]
    ) -> None:
        self.keys = keys
        self.values = values
        self._times_ms = times_ms
        self.removes = _has_null(values)
        """Some of them remove their key."""

    @classmethod
    def of(cls, records: Iterable[RestoreRecord]) -> ChangelogEntries:
        """The same records by columns."""
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
        """The same under other keys."""
        return ChangelogEntries(keys, self.values, self._times_ms)

    def with_keys(self) -> tuple[Sequence[bytes], ChangelogEntries]:
        """Those whose key is not null, and their keys."""
        entries = self
        if _has_null(self.keys):
            entries = ChangelogEntries.of([record for record in self if record[0] is not None])
        return cast("Sequence[bytes]", entries.keys), entries

    def stamped(self) -> Iterable[bytes | None]:
        """Each value with its timestamp in front, as timestamped stores keep it."""
        if not self.removes:
            return map(add, map(pack_timestamp, self._times_ms()), self.values)
        return [
            None if value is None else pack_timestamp(time_ms) + value
            for value, time_ms in zip(self.values, self._times_ms(), strict=True)
        ]


def _has_null(column: Sequence[bytes | None]) -> bool:
    """Most columns have nothing that counts as false, which is found out in a third of the time."""
    return not all(column) and None in column


def changelog_entries(records: Sequence[RawRecord]) -> ChangelogEntries:
    """Key, value and timestamp of each record, in their order. The records are of one class, as one consumer gives."""
    if not records:
        return ChangelogEntries.of(())
    kind = type(records[0])  # its own functions, called without a line of Python for each record
    return ChangelogEntries(
        list(map(kind.key, records)),
        list(map(kind.value, records)),
        lambda: map(_time_of, map(kind.timestamp, records)),
    )
