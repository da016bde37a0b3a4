"""The buffer of ``suppress`` (Kafka Streams' ``InMemoryTimeOrderedKeyValueChangeBuffer``).

It has one change per key, ordered by buffer time, then by key bytes. When a buffered key changes again, it keeps its
buffer time and its position in the order; only the change to forward is replaced. The buffer is in memory. Each commit
writes the keys that changed since the last commit to the changelog, and the buffer is restored from there.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from streams_py.errors import InvalidStateStoreError
from streams_py.ports import RawRecord
from streams_py.serdes.reasons import cause_of
from streams_py.state.buffers.formats import CHANGELOG_HEADERS, Buffered, decode_record, encode
from streams_py.state.stores.codec import StoreCodec
from streams_py.state.stores.key_value import ChangeLog
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import Eviction

K = TypeVar("K")
V = TypeVar("V")

_PRODUCERS_CLOCK = -1


class SuppressionBuffer(Generic[K, V]):
    """The waiting changes. Times are in ms."""

    persistent = False
    is_cached = False

    def __init__(self, name: str, codec: StoreCodec[K, V], context: RecordContext, *, log: ChangeLog | None) -> None:
        self.name = name
        self.codec = codec
        self.size_bytes = 0
        """Size of the buffered changes in bytes, counted as in Kafka Streams."""
        self._context = context
        self._log = log
        self._is_open = True
        self._entries: dict[bytes, tuple[int, Buffered]] = {}
        self._queue: list[tuple[int, bytes]] = []
        self._dirty: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_open(self) -> bool:
        """False after :meth:`close`."""
        return self._is_open

    # -- waiting changes ---------------------------------------------------------------------------------------

    def put(self, key: K, new: V | None, old: V | None, time_ms: int) -> None:
        """Buffer a change, with the context of the record that is being processed."""
        self.check_open()
        key_bytes, context = self.codec.key_bytes(key), self._context
        old_bytes, new_bytes = self._value_bytes(old), self._value_bytes(new)
        known = self._entries.get(key_bytes)
        entry = Buffered(
            old_bytes if known is None else known[1].prior,
            old_bytes,
            new_bytes,
            context.timestamp,
            context.offset,
            context.topic,
            context.partition,
            context.headers,
        )
        self._keep(key_bytes, entry, time_ms)
        self._dirty[key_bytes] = None

    def _keep(self, key: bytes, entry: Buffered, time_ms: int) -> None:
        known = self._entries.get(key)
        if known is None:
            heapq.heappush(self._queue, (time_ms, key))
        else:
            time_ms = known[0]
            self.size_bytes -= known[1].size(key)
        self.size_bytes += entry.size(key)
        self._entries[key] = (time_ms, entry)

    def first_time_ms(self) -> int | None:
        """Return the smallest buffer time; None when the buffer is empty."""
        queue, entries = self._queue, self._entries
        while queue:
            time_ms, key = queue[0]
            known = entries.get(key)
            if known is not None and known[0] == time_ms:
                return time_ms
            heapq.heappop(queue)  # the key was removed by a restored tombstone
        return None

    def first(self) -> Eviction:
        """Return the first change, without removing it. LookupError when the buffer is empty."""
        key = self._first_key()
        _, entry = self._entries[key]
        return Eviction(
            self._decoded(key, is_key=True),
            None if entry.new is None else self._decoded(entry.new, is_key=False),
            None if entry.old is None else self._decoded(entry.old, is_key=False),
            entry.timestamp,
            entry.offset,
            entry.topic,
            entry.partition,
            entry.headers,
        )

    def remove_first(self) -> None:
        """Remove the change that :meth:`first` returns."""
        key = self._first_key()
        heapq.heappop(self._queue)
        _, entry = self._entries.pop(key)
        self.size_bytes -= entry.size(key)
        self._dirty[key] = None

    def _first_key(self) -> bytes:
        if self.first_time_ms() is None:
            raise LookupError(f"buffer {self.name} is empty")
        return self._queue[0][1]

    def prior_value(self, key: K) -> tuple[bool, V | None]:
        """Return whether the key is buffered, and the value last forwarded for it."""
        known = self._entries.get(self.codec.key_bytes(key))
        if known is None:
            return False, None
        prior = known[1].prior
        return True, None if prior is None else self._decoded(prior, is_key=False)

    def _value_bytes(self, value: V | None) -> bytes | None:
        if value is None:
            return None
        return self.codec.value_bytes(value)

    def _decoded(self, data: bytes, *, is_key: bool) -> Any:
        try:
            return self.codec.decode_key(data) if is_key else self.codec.decode_value(data)
        except Exception as error:
            raise self.codec.stored_error(error, data, is_key=is_key) from cause_of(error)

    # -- as a store of a task ----------------------------------------------------------------------------------

    def flush_cache(self) -> int:
        """Write the keys changed since the last commit to the changelog. Returns 0, because nothing is forwarded."""
        log, dirty = self._log, self._dirty
        if log is not None:
            for key in dirty:
                known = self._entries.get(key)
                if known is None:
                    log(key, None, _PRODUCERS_CLOCK)
                else:
                    log(key, encode(known[1], known[0]), _PRODUCERS_CLOCK, CHANGELOG_HEADERS)
        dirty.clear()
        return 0

    def clear_cache(self) -> None:
        """Drop the list of changed keys, because the task was committed or failed."""
        self._dirty.clear()

    def restore_records(self, records: Iterable[RawRecord]) -> None:
        """Apply changelog records in order."""
        for record in records:
            key, value = record.key(), record.value()
            if key is None:
                continue
            known = self._entries.get(key)
            if value is not None:
                entry, time_ms = decode_record(record, value, None if known is None else known[1].prior)
                if known is not None and known[0] != time_ms:  # forwarded and buffered again within one commit
                    self._drop(key)
                self._keep(key, entry, time_ms)
            elif known is not None:
                self._drop(key)

    def _drop(self, key: bytes) -> None:
        self.size_bytes -= self._entries.pop(key)[1].size(key)

    def approximate_num_entries(self) -> int:
        """Return the number of buffered keys."""
        return len(self._entries)

    def clear(self) -> None:
        """Remove everything without logging, before the store is restored from the beginning."""
        self._entries.clear()
        self._queue.clear()
        self._dirty.clear()
        self.size_bytes = 0

    def close(self) -> None:
        """Close the buffer. A second call does nothing."""
        self._is_open = False
        self.clear()

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Use the log and context of another task object from now on."""
        self._log = log
        self._context = context

    def check_open(self) -> None:
        """Raise InvalidStateStoreError if the buffer is closed."""
        if not self._is_open:
            raise InvalidStateStoreError(
                f"buffer {self.name!r} is closed: its task has moved or the client has stopped"
            )

    def __repr__(self) -> str:
        return f"<SuppressionBuffer {self.name}: {len(self)} waiting{'' if self._is_open else ', closed'}>"
