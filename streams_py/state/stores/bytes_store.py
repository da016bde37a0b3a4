"""Where the bytes of one store live: the interface that memory and RocksDB share, and the one in memory.

A bytes store knows nothing of types, logs or caches. One thread writes; any thread reads. ``read``, ``write`` and
``remove`` are plain callables on purpose: the typed stores above call them once per record, so an implementation may
hand out C functions directly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock
from typing import Protocol, TypeVar

__all__ = ["BytesStore", "MemoryBytes", "after_prefix", "overlaid"]

S = TypeVar("S")

_INSERT_MAX = 32
"""Up to so many new keys are inserted one by one (a memmove each) instead of sorting."""


class BytesStore(Protocol):
    """Ordered bytes to bytes, by unsigned byte order of the keys."""

    @property
    def read(self) -> Callable[[bytes], bytes | None]: ...
    @property
    def write(self) -> Callable[[bytes, bytes], None]: ...
    @property
    def remove(self) -> Callable[[bytes], object]: ...

    def write_batch(self, keys: Sequence[bytes], datas: Iterable[bytes | None], *, removes: bool = True) -> None:
        """Write (None: remove) many entries, in order. ``removes``: False when none of them is None."""

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Snapshot of the entries from ``first`` on and below ``end`` (not included); None is an open end."""

    def collect(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        """As :meth:`scan`, for a few entries that are wanted at once."""

    def remove_below(self, end: bytes) -> None:
        """Remove everything below ``end``, as a whole: for segments that have expired."""

    def approximate_count(self) -> int: ...

    def clear(self) -> None:
        """Remove everything."""

    def close(self) -> None:
        """Scans that are still open fail from now on, or go on from their snapshot."""


def after_prefix(prefix: bytes) -> bytes | None:
    """The first key after all keys that start with ``prefix``; None when nothing can come after them."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else None


def overlaid(
    above: list[tuple[bytes, S | None]], below: Iterator[tuple[bytes, S]], *, reverse: bool
) -> Iterator[tuple[bytes, S]]:
    """Merge two runs in the same order; ``above`` wins, and None in it hides."""
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
    """A dict, with its keys sorted when somebody asks for a range.

    Writing only notes new keys; the next scan sorts them into the key list (timsort merges the two runs). Removed keys
    stay in that list as ghosts until they outnumber the living.
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
            noted = len(self._new_keys)  # the writer may append meanwhile: take only what was there now
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
    """Add to the sorted, distinct ``keys``; ``added`` may repeat what is there as a ghost."""
    if len(added) > _INSERT_MAX:
        keys = sorted(keys + added)
        return list(dict.fromkeys(keys))
    for key in added:
        place = bisect_left(keys, key)
        if place == len(keys) or keys[place] != key:
            keys.insert(place, key)
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
