"""Key-value stores without a cache: plain and timestamped, over memory or RocksDB, with or without a changelog.

Kafka Streams stacks a metered, a change-logging and a bytes store on one another. Here one method does the three steps
of a record (encode, write, log), because each extra call would cost more than the work inside it.

A store is written by the thread that owns its task; any thread may read.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

from streams_py.errors import StateError, StateStoreMigratedError, StreamsError
from streams_py.ports.record_headers import written_headers
from streams_py.serdes.reasons import cause_of
from streams_py.state.stores.bytes_store import BytesStore
from streams_py.state.stores.changelog_entries import ChangelogEntries, RestoreRecord
from streams_py.state.stores.codec import TIMESTAMP_BYTES, StoreCodec, pack_timestamp, timestamp_of
from streams_py.state.stores.operations import KeyValueOperations
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import FlushListener, Updater, ValueAndTimestamp

__all__ = [
    "ChangeLog",
    "ExpiringPlainStore",
    "PlainStore",
    "StoreOverBytes",
    "SuppliedPlainStore",
    "TimestampedStore",
    "with_headers",
]

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

ChangeLog: TypeAlias = Callable[..., None]
"""log(key bytes, value bytes or None, timestamp_ms, headers=None): writes one record to the store's changelog
partition; timestamp -1 = the producer's clock."""


def with_headers(log: ChangeLog, record: RecordContext) -> ChangeLog:
    """A log whose records have the headers of the record in process."""

    def log_with_headers(key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        log(key, value, timestamp_ms, written_headers("a changelog", record.headers))

    return log_with_headers


_logger = logging.getLogger(__name__)


class StoreOverBytes(KeyValueOperations[K, V, S]):
    """What both kinds have in common."""

    is_cached = False
    _timestamps_in_front = True
    """Of the stored bytes: what the changelog has as the record's timestamp stands before the value."""

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
        self._name = name
        self._persistent = persistent
        self._is_open = True
        self._context = context
        self._log = log
        self.codec = codec
        self.content = content
        self._encode_key = codec.encode_key
        self._decode: Callable[[bytes], S] = self._decoder()
        self._use(content)

    def _use(self, content: BytesStore) -> None:
        self._read = content.read
        self._write = content.write
        self._remove = content.remove

    # -- what the two kinds differ in --------------------------------------------------------------------------

    @abstractmethod
    def _decoder(self) -> Callable[[bytes], S]: ...
    @abstractmethod
    def _encode(self, stored: S) -> bytes: ...
    @abstractmethod
    def _value_of(self, stored: S) -> Any: ...
    @abstractmethod
    def _log_data(self, log: ChangeLog, key: bytes, data: bytes) -> None: ...

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._name

    @property
    def persistent(self) -> bool:
        """True when the content is on disk."""
        return self._persistent

    @property
    def is_open(self) -> bool:
        """False after :meth:`close`."""
        return self._is_open

    def get(self, key: K) -> S | None:
        """What is stored for ``key``."""
        try:
            data = self._read(self._encode_key(key))
            return None if data is None else self._decode(data)
        except Exception:
            data = self.read_data(self.key_bytes(key))  # once more, step by step, to see what failed
            return None if data is None else self.decode_data(data)

    def peek(self, key: K) -> S | None:
        """As :meth:`get`, for other threads."""
        return self.get(key)

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, S]]:
        """Snapshot of the entries by serialized key, from ``first`` on and below ``end``."""
        self.check_open()
        return self._decoded(self.content.scan(first, end, reverse=reverse))

    def _decoded(self, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, S]]:
        for key, data in entries:
            yield key, self.decode_data(data)

    def approximate_num_entries(self) -> int:
        """Number of entries; on disk an estimate that counts overwritten ones, too."""
        self.check_open()
        return self.content.approximate_count()

    def read_data(self, key: bytes) -> bytes | None:
        """The stored bytes."""
        try:
            return self._read(key)
        except Exception as error:
            raise self._state_error(error) from error

    def value_data(self, key: K) -> bytes | None:
        """The serialized value of ``key``, as it was stored."""
        data = self.read_data(self.key_bytes(key))
        return None if data is None else self.value_part(data)

    def value_part(self, data: bytes) -> bytes:
        """The serialized value within stored bytes."""
        return data[TIMESTAMP_BYTES:] if self._timestamps_in_front else data

    def decode_data(self, data: bytes) -> S:
        """What stored bytes stand for."""
        try:
            return self._decode(data)
        except Exception as error:
            raise self.codec.stored_error(error, data, is_key=False) from cause_of(error)

    # -- writing -----------------------------------------------------------------------------------------------

    def put(self, key: K, value: S | None) -> None:
        """Store ``value``; None deletes."""
        self.write_data(self.key_bytes(key), None if value is None else self.encode_data(value))

    def encode_data(self, stored: S) -> bytes:
        """The bytes that stand for ``stored``."""
        try:
            return self._encode(stored)
        except Exception as error:
            raise self.codec.value_error(error, self._value_of(stored)) from cause_of(error)

    def write_data(self, key: bytes, data: bytes | None) -> None:
        """Log and write bytes; None deletes, logged with the context's timestamp. In this order everywhere: what the
        changelog does not take must not be committed to disk, where it would be ahead of the changelog."""
        log = self._log
        if log is not None:
            if data is None:
                log(key, None, self._context.timestamp)
            else:
                self._log_data(log, key, data)
        self._keep(key, data)

    def _keep(self, key: bytes, data: bytes | None) -> None:
        try:
            if data is None:
                self._remove(key)
            else:
                self._write(key, data)
        except Exception as error:
            raise self._state_error(error) from error

    def set_flush_listener(self, listener: FlushListener, *, send_old_values: bool) -> None:
        """Nothing to do: without a cache the operator forwards itself (``is_cached`` is False)."""

    # -- life --------------------------------------------------------------------------------------------------

    def restore(self, records: Iterable[RestoreRecord]) -> int:
        """Apply changelog records: past log and cache, in order. Returns how many; null keys are skipped."""
        self.check_open()
        entries = ChangelogEntries.of(records)
        keys, kept = entries.with_keys()
        datas = kept.stamped() if self._timestamps_in_front else kept.values
        self.content.write_batch(keys, datas, removes=kept.removes)
        skipped = len(entries) - len(keys)
        if skipped:
            _logger.warning(
                "store %s: skipped %d record(s) without a key in changelog %s", self._name, skipped, self.codec.topic
            )
        return len(keys)

    def flush_cache(self) -> int:
        """0: nothing is dirty without a cache."""
        return 0

    def clear_cache(self) -> None:
        """Nothing to do without a cache."""

    def clear(self) -> None:
        """Remove everything, unlogged: before a restoration from the beginning."""
        self.check_open()
        self.content.clear()
        self._use(self.content)

    def close(self) -> None:
        """Let go of the files. A second call does nothing; every other call raises InvalidStateStoreError."""
        if self._is_open:
            self._is_open = False
            self._read = self._write = self._remove = self._refuse
            self.content.close()

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Belong to another task object from now on (a standby becomes active, or the reverse)."""
        self._log = log
        self._context = context
        rebind = getattr(self.content, "rebind", None)  # of those bytes that care whose they are
        if rebind is not None:
            rebind(log=log, context=context)

    def check_open(self) -> None:
        """InvalidStateStoreError when the store is closed."""
        if not self._is_open:
            self._refuse()

    def _refuse(self, *_: object) -> Any:
        raise StateStoreMigratedError(
            f"store {self._name!r} is closed: its task has moved or the client has stopped; ask for the store again"
        )

    def _state_error(self, error: Exception) -> StreamsError:
        if isinstance(error, StreamsError):
            return error
        if not self._is_open:  # closed by the owner while another thread was reading
            return StateStoreMigratedError(f"store {self._name!r} was closed meanwhile; ask for the store again")
        return StateError(f"store {self._name!r} failed: {error}")

    def __repr__(self) -> str:
        kind = "persistent" if self._persistent else "in memory"
        return f"<{type(self).__name__} {self._name} ({kind}{'' if self._is_open else ', closed'})>"


class PlainStore(StoreOverBytes[K, V, V]):
    """Key-value store of the Processor API: values without timestamps, logged with the context's timestamp."""

    _timestamps_in_front = False

    def _decoder(self) -> Callable[[bytes], V]:
        return self.codec.decode_value

    def _encode(self, stored: V) -> bytes:
        return self.codec.encode_value(stored)

    def _value_of(self, stored: V) -> Any:
        return stored

    def _log_data(self, log: ChangeLog, key: bytes, data: bytes) -> None:
        log(key, data, self._context.timestamp)


class SuppliedPlainStore(PlainStore[K, V]):
    """The same over bytes that somebody else keeps. What they drop while they write is logged before what they drop it
    for, as in Kafka Streams; none of it is on our disk, where it could be ahead of the changelog."""

    def write_data(self, key: bytes, data: bytes | None) -> None:
        """Write, then log."""
        self._keep(key, data)
        if self._log is not None:
            self._log(key, data, self._context.timestamp)


class ExpiringPlainStore(StoreOverBytes[K, V, V]):
    """A plain key-value store with a time to live: keeps the timestamp it logs with in front of each value."""

    def _decoder(self) -> Callable[[bytes], V]:
        decode = self.codec.decode_value
        return lambda data: decode(data[TIMESTAMP_BYTES:])

    def _encode(self, stored: V) -> bytes:
        return pack_timestamp(self._context.timestamp) + self.codec.encode_value(stored)

    def _value_of(self, stored: V) -> Any:
        return stored

    def _log_data(self, log: ChangeLog, key: bytes, data: bytes) -> None:
        log(key, data[TIMESTAMP_BYTES:], timestamp_of(data))


class TimestampedStore(StoreOverBytes[K, V, "ValueAndTimestamp[V]"]):
    """Key-value store of tables and aggregates: values with the timestamp of the record that made them."""

    def _decoder(self) -> Callable[[bytes], ValueAndTimestamp[V]]:
        self._encode_parts = self.codec.timestamped_encoder()
        self._decode_parts = self.codec.parts_decoder()
        return self.codec.timestamped_decoder()

    def _encode(self, stored: ValueAndTimestamp[V]) -> bytes:
        value, timestamp_ms = stored
        return self._encode_parts(value, timestamp_ms)

    def _value_of(self, stored: ValueAndTimestamp[V]) -> Any:
        return stored[0]

    def _log_data(self, log: ChangeLog, key: bytes, data: bytes) -> None:
        log(key, data[TIMESTAMP_BYTES:], timestamp_of(data))

    def get_parts(self, key: K) -> tuple[V, int] | None:
        """As :meth:`get`, but a bare (value, timestamp_ms): for operators, which only unpack it."""
        try:
            data = self._read(self._encode_key(key))
            return None if data is None else self._decode_parts(data)
        except Exception:
            return self.get(key)

    def put(self, key: K, value: ValueAndTimestamp[V] | None) -> None:
        """Store a value with its timestamp; None (also as the value of the pair) deletes."""
        super().put(key, value if value is None or value[0] is not None else None)

    def put_value(self, key: K, value: V | None, timestamp_ms: int) -> None:
        """Store a value with its timestamp; None deletes, logged with the context's timestamp."""
        if value is None:
            self.put(key, None)
            return
        try:
            key_bytes = self._encode_key(key)
            data = self._encode_parts(value, timestamp_ms)
        except Exception as error:
            self.key_bytes(key)  # raises when it is the key that does not fit
            raise self.codec.value_error(error, value) from cause_of(error)
        self.write_stamped(key_bytes, data, timestamp_ms)

    def write_stamped(self, key: bytes, data: bytes, timestamp_ms: int) -> None:
        """Log and write bytes whose timestamp is known: :meth:`write_data` for the path of every record."""
        if self._log is not None:
            self._log(key, data[TIMESTAMP_BYTES:], timestamp_ms)
        try:
            self._write(key, data)
        except Exception as error:
            raise self._state_error(error) from error

    def updater(self, initializer: Callable[[], V] | None, aggregator: Callable[[K, Any, V], V | None]) -> Updater:
        """Reading, aggregating and writing of one record as one function; see ``TimestampedKeyValueStore``."""
        codec, encode_key, encode_parts = self.codec, self._encode_key, self._encode_parts
        decode = codec.stored_decoder()

        def update(key: K, value: Any, timestamp_ms: int) -> tuple[Any, Any, int]:
            try:
                key_bytes = encode_key(key)
            except Exception as error:
                raise codec.key_error(error, key) from cause_of(error)
            try:
                data = self._read(key_bytes)
            except Exception as error:
                raise self._state_error(error) from error
            old: V | None = None
            new: V | None
            if data is None:
                if initializer is None:
                    new = value
                else:
                    old = initializer()
                    new = aggregator(key, value, old)
            else:
                try:
                    stored_ms, old = decode(data)
                except Exception as error:
                    raise codec.stored_error(error, data, is_key=False) from cause_of(error)
                if stored_ms > timestamp_ms:
                    timestamp_ms = stored_ms
                new = aggregator(key, value, old)
            if new is None:
                self.write_data(key_bytes, None)
                return new, old, timestamp_ms
            try:
                data = encode_parts(new, timestamp_ms)
            except Exception as error:
                raise codec.value_error(error, new) from cause_of(error)
            log = self._log  # as write_stamped, without the call: this is the path of every record of an aggregation
            if log is not None:
                log(key_bytes, data[TIMESTAMP_BYTES:], timestamp_ms)
            try:
                self._write(key_bytes, data)
            except Exception as error:
                raise self._state_error(error) from error
            return new, old, timestamp_ms

        return update

    def decode_parts(self, data: bytes) -> tuple[V, int]:
        """The value and the timestamp that bytes stand for."""
        try:
            return self._decode_parts(data)
        except Exception as error:
            raise self.codec.stored_error(error, data, is_key=False) from cause_of(error)

    def encode_parts(self, value: V, timestamp_ms: int) -> bytes:
        """The bytes that stand for a value with its timestamp."""
        try:
            return self._encode_parts(value, timestamp_ms)
        except Exception as error:
            raise self.codec.value_error(error, value) from cause_of(error)
