"""The buffer of stream-table joins with a grace period (KIP-923).

Stream records wait in it until the versioned table is complete up to their time. The stored key of a record is
``00 + i64 timestamp + key + i32 number``. The stored value is the record with its context, in the format of suppress
buffers. The number distinguishes records with the same key and time.

The changelog has the same keys and values, and is written immediately. When a record leaves the buffer, a tombstone is
written. Corresponds to Kafka Streams' ``RocksDBTimeOrderedKeyValueBuffer``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from streams_py.serdes.reasons import cause_of
from streams_py.state.buffers.formats import Buffered, decode_buffered, encode
from streams_py.state.stores.bytes_store import BytesStore
from streams_py.state.stores.changelog_entries import ChangelogEntries, RestoreRecord
from streams_py.state.stores.codec import StoreCodec
from streams_py.state.stores.key_value import ChangeLog
from streams_py.state.stores.uncached import UncachedStore
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import Eviction

K = TypeVar("K")
V = TypeVar("V")

_PREFIX = b"\x00"
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_KEY_AT = len(_PREFIX) + _I64.size
_NUMBER_MAX = 2**31 - 1
_NO_TIME = 0
_PRODUCERS_CLOCK = -1


class JoinBuffer(UncachedStore[K, V]):
    """The waiting records, ordered by timestamp (ms), then by key bytes."""

    what = "buffer"

    def __init__(
        self,
        name: str,
        content: BytesStore,
        codec: StoreCodec[K, V],
        context: RecordContext,
        *,
        persistent: bool,
        log: ChangeLog | None,
    ) -> None:
        super().__init__(name, content, codec, persistent=persistent, log=log)
        self._context = context
        self._number = 0
        self._first_ms = 0
        last = next(content.scan(None, None, reverse=True), None)
        self.observed_ms = -1 if last is None else _timestamp_of(last[0])
        """The latest timestamp ever put, in ms, as far as known; -1 when no record is known."""

    def observed_time(self) -> int:
        """Return the latest timestamp ever put, in ms, as far as known; -1 when no record is known."""
        return self.observed_ms

    def observe(self, time_ms: int) -> None:
        """Advance stream time to at least ``time_ms``."""
        self.observed_ms = max(self.observed_ms, time_ms)

    # -- waiting records ---------------------------------------------------------------------------------------

    def put(self, key: K, value: V) -> None:
        """Add the record that is being processed."""
        self.check_open()
        key_bytes, data, context = self.codec.key_bytes(key), self.codec.value_bytes(value), self._context
        entry = Buffered(
            None, None, data, context.timestamp, context.offset, context.topic, context.partition, context.headers
        )
        at = self._next_free_key(_PREFIX + _I64.pack(context.timestamp) + key_bytes)
        packed = encode(entry, _NO_TIME)
        if self._log is not None:
            self._log(at, packed, _PRODUCERS_CLOCK)
        self._content.write(at, packed)
        self.observed_ms = max(self.observed_ms, context.timestamp)
        self._first_ms = min(self._first_ms, context.timestamp)

    def _next_free_key(self, prefix: bytes) -> bytes:
        while True:
            self._number = (self._number + 1) & _NUMBER_MAX
            at = prefix + _I32.pack(self._number)
            if self._content.read(at) is None:  # numbers restart with each new owner of the task
                return at

    def take_until(self, last_ms: int) -> Iterator[Eviction]:
        """Yield the waiting records up to ``last_ms``, in order. Each is removed when the next one is requested."""
        if last_ms < self._first_ms:
            return
        self.check_open()
        for at, packed in self._content.scan(_PREFIX, _PREFIX + _I64.pack(last_ms + 1)):
            entry = decode_buffered(packed)
            yield Eviction(
                self._decoded(at[_KEY_AT : -_I32.size], is_key=True),
                None if entry.new is None else self._decoded(entry.new, is_key=False),
                None,
                entry.timestamp,
                entry.offset,
                entry.topic,
                entry.partition,
                entry.headers,
            )
            if self._log is not None:
                self._log(at, None, _PRODUCERS_CLOCK)
            self._content.remove(at)
        self._first_ms = last_ms + 1

    def _decoded(self, data: bytes, *, is_key: bool) -> Any:
        try:
            return self.codec.decode_key(data) if is_key else self.codec.decode_value(data)
        except Exception as error:
            raise self.codec.stored_error(error, data, is_key=is_key) from cause_of(error)

    # -- as a store of a task ----------------------------------------------------------------------------------

    def restore(self, records: Iterable[RestoreRecord]) -> int:
        """Apply changelog records in order. Null keys are skipped. Returns the number of applied records."""
        self.check_open()
        keys, entries = ChangelogEntries.of(records).with_keys()
        self._content.write_batch(keys, entries.values)
        self.observed_ms = max(self.observed_ms, *map(_timestamp_of, keys), -1)
        self._first_ms = 0
        return len(keys)

    def clear(self) -> None:
        """Remove everything without logging, before the store is restored from the beginning."""
        self._content.clear()
        self.observed_ms = -1
        self._first_ms = 0

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Use the log and context of another task object from now on."""
        super().rebind(log=log, context=context)
        self._context = context


def _timestamp_of(at: bytes) -> int:
    timestamp: int = _I64.unpack_from(at, len(_PREFIX))[0]
    return timestamp
