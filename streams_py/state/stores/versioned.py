"""Versioned key-value stores over memory or RocksDB (KIP-889).

The stored key of a version is ``key + i64 timestamp``. Its data is ``01`` + value (``02`` + value when no version ends
where this one starts), or ``00`` for a deletion. A version is valid until the next version of its key. When a key is
put, its versions that were replaced before the start of the history are removed.

Corresponds to Kafka Streams' ``RocksDBVersionedStore``. The changelog format is the same (one record per version, with
the key and the version's timestamp). The layout on disk is different.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TypeVar

from streams_py.serdes.reasons import cause_of
from streams_py.state.stores.bytes_store import BytesStore
from streams_py.state.stores.changelog_entries import RestoreRecord
from streams_py.state.stores.codec import StoreCodec
from streams_py.state.stores.key_value import ChangeLog
from streams_py.state.stores.uncached import UncachedStore
from streams_py.topology.declare.versioned_stores import NOT_PUT, VALID_TO_UNDEFINED, VersionedRecord

K = TypeVar("K")
V = TypeVar("V")

_I64 = struct.Struct(">q")
_LATEST = 2**63 - 1
_DELETED = b"\x00"
_PRESENT = b"\x01"
_ALONE = b"\x02"


class VersionedStore(UncachedStore[K, V]):
    """The versions of each key. Only the thread that owns the task writes."""

    def __init__(
        self,
        name: str,
        content: BytesStore,
        codec: StoreCodec[K, V],
        history_ms: int,
        *,
        persistent: bool,
        log: ChangeLog | None,
    ) -> None:
        super().__init__(name, content, codec, persistent=persistent, log=log)
        self._history_ms = history_ms
        self._stream_time_ms = -1

    def observed_time(self) -> int:
        """Return the latest timestamp ever put, in ms, as far as known; -1 when no version is known."""
        return self._stream_time_ms

    def observe(self, time_ms: int) -> None:
        """Advance stream time to at least ``time_ms``."""
        self._stream_time_ms = max(self._stream_time_ms, time_ms)

    # -- use ---------------------------------------------------------------------------------------------------

    def put(self, key: K, value: V | None, timestamp: int) -> int:
        """Add a version; see ``VersionedKeyValueStore.put``."""
        self.check_open()
        key_bytes, data = self.codec.key_bytes(key), None if value is None else self.codec.value_bytes(value)
        if self._log is not None:
            self._log(key_bytes, data, timestamp)
        return self._put(key_bytes, data, timestamp)

    def get(self, key: K, as_of: int | None = None) -> VersionedRecord[V] | None:
        """Return the version valid now, or at ``as_of``; see ``VersionedKeyValueStore.get``."""
        self.check_open()
        return self._find(self.codec.key_bytes(key), as_of)

    def value_data(self, key: K) -> bytes | None:
        """Return the serialized value of the version that is valid now, as stored."""
        version = next(self._versions(self.codec.key_bytes(key), 0, _LATEST, reverse=True), None)
        return None if version is None or version[1][:1] == _DELETED else version[1][1:]

    def history(
        self, key: K, first: int | None = None, last: int | None = None, *, reverse: bool = False
    ) -> list[VersionedRecord[V]]:
        """Return the versions that were valid at any time from ``first`` to ``last`` (None: open end), by time."""
        self.check_open()
        start, end = (0 if first is None else first), (_LATEST if last is None else last)
        versions = list(self._versions(self.codec.key_bytes(key), 0, _LATEST))
        until = [*(timestamp for timestamp, _ in versions[1:]), None]
        found = [
            VersionedRecord(self._decoded(data), timestamp, valid_to)
            for (timestamp, data), valid_to in zip(versions, until, strict=False)
            if data != _DELETED and timestamp <= end and (valid_to is None or valid_to > start)
        ]
        return found[::-1] if reverse else found

    def delete(self, key: K, timestamp: int) -> VersionedRecord[V] | None:
        """Delete the key from ``timestamp`` on; see ``VersionedKeyValueStore.delete``."""
        self.check_open()
        key_bytes = self.codec.key_bytes(key)
        found = None if timestamp < self._stream_time_ms - self._history_ms else self._find(key_bytes, timestamp)
        if self._log is not None:
            self._log(key_bytes, None, timestamp)
        self._put(key_bytes, None, timestamp)
        return found

    def _put(self, key: bytes, data: bytes | None, timestamp: int) -> int:
        if timestamp < self._stream_time_ms - self._history_ms:
            return NOT_PUT
        self._stream_time_ms = max(self._stream_time_ms, timestamp)
        following = next(self._versions(key, timestamp + 1, _LATEST), None)
        if following is None:
            self._put_latest(key, data, timestamp)
        else:
            self._write(key, timestamp, _DELETED if data is None else _PRESENT + data)
            if following[1][:1] == _ALONE:
                self._write(key, following[0], _PRESENT + following[1][1:])
        self._forget_old(key)
        return VALID_TO_UNDEFINED if following is None else following[0]

    def _put_latest(self, key: bytes, data: bytes | None, timestamp: int) -> None:
        """Put a version that is not older than the latest one.

        Kafka Streams stores the latest version separately from earlier versions, which contain the time until which
        they were valid. So a deletion at the time of the latest version removes that version and leaves no trace
        itself, unless an earlier version ended at this time. An earlier version may become the latest one again.
        """
        before = next(self._versions(key, 0, timestamp, reverse=True), None)
        replaced = before is not None and before[0] == timestamp
        kind = _DELETED if before is None else before[1][:1]
        if data is not None:
            stays_alone = kind == _ALONE if replaced else kind == _DELETED
            self._write(key, timestamp, (_ALONE if stays_alone else _PRESENT) + data)
        elif replaced and kind == _ALONE:
            self._content.remove(key + _I64.pack(timestamp))
        else:
            self._write(key, timestamp, _DELETED)

    def _write(self, key: bytes, timestamp: int, content: bytes) -> None:
        self._content.write(key + _I64.pack(timestamp), content)

    def _find(self, key: bytes, as_of: int | None) -> VersionedRecord[V] | None:
        version = next(self._versions(key, 0, _LATEST if as_of is None else as_of, reverse=True), None)
        if version is None or version[1][:1] == _DELETED:
            return None
        timestamp, data = version
        following = None if as_of is None else next(self._versions(key, timestamp + 1, _LATEST), None)
        if following is not None and as_of is not None and as_of < self._stream_time_ms - self._history_ms:
            return None  # before the start of the history, only the latest version is kept
        return VersionedRecord(self._decoded(data), timestamp, None if following is None else following[0])

    def _decoded(self, data: bytes) -> V:
        try:
            return self.codec.decode_value(data[1:])
        except Exception as error:
            raise self.codec.stored_error(error, data[1:], is_key=False) from cause_of(error)

    def _versions(self, key: bytes, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[int, bytes]]:
        """Yield (timestamp, data) of a key's versions, deletions included."""
        length = len(key) + _I64.size
        end = key + _I64.pack(max(last, 0)) + b"\0"
        for at, data in self._content.scan(key + _I64.pack(max(first, 0)), end, reverse=reverse):
            if len(at) == length:
                yield _I64.unpack_from(at, len(key))[0], data

    def _forget_old(self, key: bytes) -> None:
        """Remove versions replaced before the start of the history, and deletions without an earlier version."""
        cutoff_ms = self._stream_time_ms - self._history_ms
        old = list(self._versions(key, 0, cutoff_ms)) if cutoff_ms >= 0 else []
        if not old:
            return
        kept = old[-1]
        for timestamp, _ in old[:-1]:
            self._content.remove(key + _I64.pack(timestamp))
        if kept[1] == _DELETED:
            self._content.remove(key + _I64.pack(kept[0]))

    def entries(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield all versions as in the changelog: key, value (None for a deletion), timestamp. By key and time."""
        for at, data in self._content.scan(None, None):
            key = at[: -_I64.size]
            yield key, None if data == _DELETED else data[1:], _I64.unpack_from(at, len(key))[0]

    # -- as a store of a task ----------------------------------------------------------------------------------

    def restore(self, records: Iterable[RestoreRecord]) -> int:
        """Apply changelog records in order. Null keys are skipped. Returns the number of applied records."""
        self.check_open()
        applied = 0
        for key, value, timestamp_ms in records:
            if key is not None:
                self._put(key, value, timestamp_ms)
                applied += 1
        return applied

    def clear(self) -> None:
        """Remove everything without logging, before the store is restored from the beginning."""
        self._content.clear()
        self._stream_time_ms = -1
