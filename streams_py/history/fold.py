"""The fold of a changelog: its contents after complete compaction (the last record of each key, without tombstones).

A store is restored from these records, so the fold is the state. Expired windows and sessions are left out, as the
store no longer returns them and a broker may delete their records at any time.

A versioned store does not have a fold. Its last record of a key may be an older version, and restoring needs all
versions, so its entries are read from the store itself. The contents of a custom store may depend on the order of its
records: an LRU map drops the oldest. So its fold is in the order of a compacted changelog, which is the order of the
last updates.

Entries are kept in memory. When they are many or large, they move to a database on disk. So the memory of a task stays
bounded for any keys and values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from streams_py.state.stores.bytes_store import BytesStore
from streams_py.state.windowed.layout import SESSION_LAYOUT, WINDOW_LAYOUT
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

_Headers = list[tuple[str, bytes | None]]

_HEAD: Final = struct.Struct(">qi")
_LENGTH: Final = struct.Struct(">i")
_IN_MEMORY_MAX: Final = 100_000
_BYTES_IN_MEMORY_MAX: Final = 64 << 20
_NULL: Final = -1


class FoldEntry(NamedTuple):
    """The last record of a key, or one version of it.

    Attributes:
        key: key bytes.
        value: value bytes; None if this version is a deletion.
        timestamp_ms: timestamp of the record; -1 means the time of writing.
        headers: headers of the record, if it has any.
    """

    key: bytes
    value: bytes | None
    timestamp_ms: int
    headers: _Headers | None


class Expiry(NamedTuple):
    """The rule by which entries of a windowed store expire.

    Attributes:
        time_of: returns the start of the window, or the end of the session, from a changelog key.
        kept_ms: an entry expires when stream time is this much later, in ms.
    """

    time_of: Callable[[bytes], int]
    kept_ms: int

    @classmethod
    def of(cls, builder: StoreBuilder) -> Expiry | None:
        """Return the rule of a store.

        None when its entries do not expire, or when an operator removes them explicitly (emit on window close).
        """
        if builder.windows is None or builder.windows.holds_back:
            return None
        layout = SESSION_LAYOUT if builder.kind is StoreKind.SESSION else WINDOW_LAYOUT
        return cls(layout.time_of, builder.windows.kept_ms)


class Fold:
    """The fold of one changelog partition. ``disk`` opens its store on disk; it is called at most once, when needed."""

    def __init__(
        self,
        disk: Callable[[], BytesStore] | None = None,
        expiry: Expiry | None = None,
        *,
        in_memory_max: int = _IN_MEMORY_MAX,
        bytes_in_memory_max: int = _BYTES_IN_MEMORY_MAX,
    ) -> None:
        self._entries: dict[bytes, tuple[bytes | None, int, _Headers | None]] = {}
        self._open = disk
        self._disk: BytesStore | None = None
        self._in_memory_max, self._bytes_in_memory_max = in_memory_max, bytes_in_memory_max
        self._expiry = expiry
        self._latest_ms = -1

    def put(
        self,
        topic: str,
        value: bytes | None,
        key: bytes,
        partition: int = 0,
        report: object = None,
        _: object = None,
        timestamp_ms: int = -1,
        headers: _Headers | None = None,
    ) -> None:
        """Add one record, with the arguments of a producer's direct send."""
        self._entries[key] = (value, timestamp_ms, headers)

    def take(self) -> dict[bytes, tuple[bytes | None, int, _Headers | None]]:
        """Return and remove the last record of each key since the last call: key -> (value, timestamp, headers).

        Includes tombstones.
        """
        taken, self._entries = self._entries, {}
        return taken

    def relieve(self) -> None:
        """Move the entries to disk if they are many or large."""
        if self._open is not None and (len(self._entries) > self._in_memory_max or self._is_large()):
            self._move()

    def _is_large(self) -> bool:
        return sum(len(value) for value, _, _ in self._entries.values() if value) > self._bytes_in_memory_max

    def _observe(self) -> None:
        if self._expiry is not None:
            self._latest_ms = max((self._latest_ms, *map(self._expiry.time_of, self._entries)))

    def _move(self) -> None:
        self._observe()
        if self._disk is None:
            assert self._open is not None
            self._disk = self._open()
        entries = sorted(self._entries.items())
        self._disk.write_batch(
            [key for key, _ in entries], [None if entry[0] is None else _packed(*entry) for _, entry in entries]
        )
        self._entries.clear()

    def entries(self) -> Iterator[FoldEntry]:
        """Yield all entries that are not expired, sorted by key."""
        self._observe()
        expiry = self._expiry
        if expiry is None:
            return self._everything()
        time_of, cutoff_ms = expiry.time_of, self._latest_ms - expiry.kept_ms
        return (entry for entry in self._everything() if time_of(entry.key) > cutoff_ms)

    def _everything(self) -> Iterator[FoldEntry]:
        if self._disk is None:
            for key, (value, timestamp_ms, headers) in sorted(self._entries.items()):
                if value is not None:
                    yield FoldEntry(key, value, timestamp_ms, headers)
            return
        self._move()
        for key, data in self._disk.scan(None, None):
            yield FoldEntry(key, *_unpacked(data))


class _InOrder(Fold):
    """A fold in the order of last updates. All keys stay in memory, also when the entries are on disk."""

    def __init__(self, disk: Callable[[], BytesStore], *, in_memory_max: int) -> None:
        super().__init__(disk, in_memory_max=in_memory_max)
        self._updated: dict[bytes, None] = {}

    def put(
        self,
        topic: str,
        value: bytes | None,
        key: bytes,
        partition: int = 0,
        report: object = None,
        _: object = None,
        timestamp_ms: int = -1,
        headers: _Headers | None = None,
    ) -> None:
        """Add one record, with the arguments of a producer's direct send."""
        self._entries[key] = (value, timestamp_ms, headers)
        self._updated.pop(key, None)
        if value is not None:
            self._updated[key] = None

    def _everything(self) -> Iterator[FoldEntry]:
        disk = self._disk
        for key in self._updated:
            entry = self._entries.get(key)
            if entry is None:
                assert disk is not None
                data = disk.read(key)
                assert data is not None
                entry = _unpacked(data)
            value, timestamp_ms, headers = entry
            yield FoldEntry(key, value, timestamp_ms, headers)


def keeps_order(store: StoreBuilder) -> bool:
    """Whether a store's contents may depend on the order of its changelog."""
    return store.supplier is not None


def fold_of(store: StoreBuilder, disk: Callable[[], BytesStore], *, in_memory_max: int = _IN_MEMORY_MAX) -> Fold:
    """Return an empty fold for a store's changelog."""
    if keeps_order(store):
        return _InOrder(disk, in_memory_max=in_memory_max)
    return Fold(disk, Expiry.of(store), in_memory_max=in_memory_max)


def _packed(value: bytes | None, timestamp_ms: int, headers: _Headers | None) -> bytes:
    assert value is not None
    if not headers:
        return _HEAD.pack(timestamp_ms, 0) + value
    parts = [_HEAD.pack(timestamp_ms, len(headers))]
    for name, content in headers:
        encoded = name.encode()
        parts += (_LENGTH.pack(len(encoded)), encoded)
        parts += (_LENGTH.pack(_NULL),) if content is None else (_LENGTH.pack(len(content)), content)
    return b"".join((*parts, value))


def _unpacked(data: bytes) -> tuple[bytes, int, _Headers | None]:
    timestamp_ms, count = _HEAD.unpack_from(data)
    at = _HEAD.size
    headers: _Headers = []

    def take() -> bytes | None:
        nonlocal at
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length == _NULL:
            return None
        at += length
        return data[at - length : at]

    for _ in range(count):
        name, content = take() or b"", take()
        headers.append((name.decode(), content))
    return data[at:], timestamp_ms, headers or None
