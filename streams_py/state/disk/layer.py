"""The uncommitted layer of one store: the writes since the last commit, in memory (the idea of KIP-892).

The layer is a dict that only grows until it is committed or dropped as a whole. No key is ever removed, and dicts keep
insertion order, so the keys added since the last scan are simply the newest ones. So a write costs no more than a dict
insertion, and a scan only has to sort in the new keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from itertools import islice
from threading import Lock

SMALL_BYTES = 256
"""Assumed size of a small entry in bytes. Up to this size, key and data are not counted: a dict entry costs as much."""
_INSERT_MAX = 32
"""Maximum number of new keys that are inserted one by one. More keys are sorted in together."""
_RUN_MAX = 1024
"""Maximum length of a run in :class:`_SortedKeys`."""


class _SortedKeys:
    """Distinct sorted keys in runs of bounded length, so that inserting a key moves the keys of one run only."""

    __slots__ = ("_count", "_firsts", "_runs")

    def __init__(self) -> None:
        self._runs: list[list[bytes]] = []
        self._firsts: list[bytes] = []  # the first key of each run except the first run
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: bytes) -> None:
        """Add a key that is not present."""
        if not self._runs:
            self.add_all([key])
            return
        number = bisect_right(self._firsts, key)
        run = self._runs[number]
        insort(run, key)
        self._count += 1
        if len(run) > _RUN_MAX:
            half = len(run) // 2
            self._runs[number : number + 1] = [run[:half], run[half:]]
            self._firsts.insert(number, run[half])

    def add_all(self, keys: list[bytes]) -> None:
        """Add many keys that are not present."""
        every = [key for run in self._runs for key in run]
        every += keys
        every.sort()
        self._count = len(every)
        self._runs = [every[start : start + _RUN_MAX // 2] for start in range(0, len(every), _RUN_MAX // 2)]
        self._firsts = [run[0] for run in self._runs[1:]]

    def between(self, first: bytes | None, end: bytes | None) -> list[bytes]:
        """Return the keys from ``first`` (included) to ``end`` (excluded); None is an open end."""
        found: list[bytes] = []
        start = 0 if first is None else bisect_right(self._firsts, first)
        for run in islice(self._runs, start, None):
            if end is not None and run[0] >= end:
                break
            from_ = 0 if first is None else bisect_left(run, first)
            found += run[from_ : len(run) if end is None else bisect_left(run, end)]
        return found


class Layer:
    """The uncommitted writes of one store (None: deleted). One thread writes, any thread reads.

    Args:
        data: The writes; an empty dict if not given.
        floor: All keys below this one are deleted in the database too.
    """

    __slots__ = ("_sorted", "_sorting", "data", "floor", "in_bulk", "large_bytes")

    def __init__(self, data: dict[bytes, bytes | None] | None = None, floor: bytes | None = None) -> None:
        self.data: dict[bytes, bytes | None] = {} if data is None else data
        self.floor = floor
        self.large_bytes = 0
        self.in_bulk = False
        """Whether some entries were restored in bulk. Their size is not counted."""
        self._sorted = _SortedKeys()
        self._sorting = Lock()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.data and self.floor is None

    @property
    def size_bytes(self) -> int:
        """Approximate size in memory, in bytes."""
        return len(self.data) * SMALL_BYTES + self.large_bytes

    def count_large(self, key: bytes, data: bytes) -> None:
        """Count an entry of more than ``SMALL_BYTES`` that is about to be written."""
        replaced = self.data.get(key)
        self.large_bytes += len(key) + len(data) - (0 if replaced is None else len(key) + len(replaced))

    def between(self, first: bytes | None, end: bytes | None, *, reverse: bool) -> list[tuple[bytes, bytes | None]]:
        """Return a copy of the entries from ``first`` (included) to ``end`` (excluded), sorted by key."""
        data = self.data
        if not data:
            return []
        with self._sorting:
            self._sort_in()
            found = self._sorted.between(first, end)
        if reverse:
            found.reverse()
        return [(key, data[key]) for key in found]

    def _sort_in(self) -> None:
        data, keys = self.data, self._sorted
        while True:
            count = len(data)
            added = list(islice(reversed(data), count - len(keys)))
            if len(data) == count:  # otherwise the writer added keys between the two lines, and some may be missing
                break
        if len(added) > _INSERT_MAX:
            keys.add_all(added)
        else:
            for key in added:
                keys.add(key)

    def above(self, end: bytes) -> Layer:
        """Return a copy in which all keys below ``end`` are deleted, in the layer and in the database."""
        floor = end if self.floor is None else max(end, self.floor)
        kept = Layer({key: data for key, data in self.data.items() if key >= end}, floor)
        kept.large_bytes, kept.in_bulk = self.large_bytes, self.in_bulk
        return kept
