"""The interface of bytes stores, which contain the bytes of one store, and the implementation in memory.

A bytes store has no types, log or cache. One thread writes, any thread reads. ``read``, ``write`` and ``remove`` are
callable attributes instead of methods, so that an implementation can provide C functions directly: the typed stores
above call them for every record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock
from typing import Protocol, TypeVar

S = TypeVar("S")

_INSERT_MAX = 32
"""Maximum number of new keys that are inserted one by one (a memmove each). More keys are sorted in together."""


class BytesStore(Protocol):
    """An ordered map from bytes to bytes, in unsigned byte order of the keys."""

    @property
    def read(self) -> Callable[[bytes], bytes | None]: ...
    @property
    def write(self) -> Callable[[bytes, bytes], None]: ...
    @property
    def remove(self) -> Callable[[bytes], object]: ...

    def write_batch(self, keys: Sequence[bytes], datas: Iterable[bytes | None], *, removes: bool = True) -> None:
        """Write many entries in order; data None deletes. ``removes``: whether any data may be None."""

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Return a snapshot of the entries from ``first`` (included) to ``end`` (excluded). None is an open end."""

    def collect(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        """As :meth:`scan`, as a list. For few entries."""

    def remove_below(self, end: bytes) -> None:
        """Remove all keys below ``end`` in one step. For expired segments."""

    def approximate_count(self) -> int: ...

    def clear(self) -> None:
        """Remove everything."""

    def close(self) -> None:
        """Close the store. Open scans fail from now on, or continue on their snapshot."""


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the first key after all keys that start with ``prefix``. None when no key is greater than all of them."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else None


def overlaid(
    above: list[tuple[bytes, S | None]], below: Iterator[tuple[bytes, S]], *, reverse: bool
) -> Iterator[tuple[bytes, S]]:
    """Merge two sorted runs. For equal keys ``above`` wins, and None in it hides the entry below."""
    overlay = iter(above)
    over = next(overlay, None)
    for under in below:
        key = under[0]
        while over is not None and (over[0] > key if reverse else over[0] < key):
            if over[1] is not None:
                yield over[0], over[1]
            over = next(overlay, None)
        if over is not None and over[0] == key:
            if over[1] is not None:
                yield key, over[1]
            over = next(overlay, None)
        else:
            yield under
    while over is not None:
        if over[1] is not None:
            yield over[0], over[1]
        over = next(overlay, None)


class MemoryBytes:
    """A bytes store in memory: a dict whose keys are sorted when a range is read.

    A write only notes new keys, and the next scan sorts them into the key list (timsort merges the two runs). Removed
    keys stay in that list until more keys are removed than present.
    """

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}
        self._new_keys: list[bytes] = []
        self._sorted_keys: list[bytes] = []
        self._sorting = Lock()
        self.read = self._data.get
        self.write = _writer(self._data, self._new_keys)
        self.remove = _remover(self._data)

    def write_batch(self, keys: Sequence[bytes], datas: Iterable[bytes | None], *, removes: bool = True) -> None:
        for key, data in zip(keys, datas, strict=True):
            if data is None:
                self.remove(key)
            else:
                self.write(key, data)

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        keys = self._keys_between(first, end)
        if reverse:
            keys.reverse()
        read = self._data.get
        return iter([(key, data) for key in keys if (data := read(key)) is not None])

    def collect(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        return list(self.scan(first, end))

    def _keys_between(self, first: bytes | None, end: bytes | None) -> list[bytes]:
        with self._sorting:
            noted = len(self._new_keys)  # the writer may append meanwhile: take only the keys noted so far
            if len(self._sorted_keys) > 2 * len(self._data) + 64:
                self._sorted_keys = [key for key in self._sorted_keys if key in self._data]
            if noted:
                self._sorted_keys = _merge(self._sorted_keys, self._new_keys[:noted])
                del self._new_keys[:noted]
            keys = self._sorted_keys
            start = 0 if first is None else bisect_left(keys, first)
            stop = len(keys) if end is None else bisect_left(keys, end)
            return keys[start:stop]

    def remove_below(self, end: bytes) -> None:
        for key in self._keys_between(None, end):
            self.remove(key)

    def approximate_count(self) -> int:
        return len(self._data)

    def clear(self) -> None:
        with self._sorting:
            self._data.clear()
            self._new_keys.clear()
            self._sorted_keys = []

    def close(self) -> None:
        self.clear()


def _merge(keys: list[bytes], added: list[bytes]) -> list[bytes]:
    """Merge ``added`` into the sorted, distinct ``keys``, which may already have some of them (removed, then put)."""
    if len(added) > _INSERT_MAX:
        keys = sorted(keys + added)
        return list(dict.fromkeys(keys))
    for key in added:
        index = bisect_left(keys, key)
        if index == len(keys) or keys[index] != key:
            keys.insert(index, key)
    return keys


def _writer(data: dict[bytes, bytes], new_keys: list[bytes]) -> Callable[[bytes, bytes], None]:
    def write(key: bytes, value: bytes) -> None:
        if key not in data:
            new_keys.append(key)
        data[key] = value

    return write


def _remover(data: dict[bytes, bytes]) -> Callable[[bytes], object]:
    pop = data.pop
    return lambda key: pop(key, None)
