"""Key-value stores without a cache: plain and timestamped, in memory or in RocksDB, with or without a changelog.

Kafka Streams stacks a metered, a change-logging and a bytes store. Here, one method does all three steps of a record
(encode, log, write), because each extra call would cost more than the work inside it.

Only the thread that owns a task writes to its stores. Any thread may read.
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

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

ChangeLog: TypeAlias = Callable[..., None]
"""``log(key, value, timestamp_ms, headers=None)``: writes a record to the store's changelog partition.

Key and value are bytes; a value of None is a tombstone. With the timestamp -1, the producer's clock is used.
"""


def with_headers(log: ChangeLog, record: RecordContext) -> ChangeLog:
    """Return a log whose records get the headers of the record that is being processed."""

    def log_with_headers(key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        log(key, value, timestamp_ms, written_headers("a changelog", record.headers))

    return log_with_headers


_logger = logging.getLogger(__name__)


class StoreOverBytes(KeyValueOperations[K, V, S]):
    """The common base of plain and timestamped key-value stores."""

    is_cached = False
    _timestamps_in_front = True
    """Whether stored values start with the timestamp that the changelog has as the record's timestamp."""

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

    # -- differences between the kinds -------------------------------------------------------------------------

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
        """Whether the content is on disk."""
        return self._persistent

    @property
    def is_open(self) -> bool:
        """False after :meth:`close`."""
        return self._is_open

    def get(self, key: K) -> S | None:
        """Return the value of ``key``, or None."""
        try:
            data = self._read(self._encode_key(key))
            return None if data is None else self._decode(data)
        except Exception:
            data = self.read_data(self.key_bytes(key))  # again, step by step, for an error that says which step failed
            return None if data is None else self.decode_data(data)

    def peek(self, key: K) -> S | None:
        """As :meth:`get`, for any thread."""
        return self.get(key)

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, S]]:
        """Return the entries by serialized key, from ``first`` (included) to ``end`` (excluded)."""
        self.check_open()
        return self._decoded(self.content.scan(first, end, reverse=reverse))

    def _decoded(self, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, S]]:
        for key, data in entries:
            yield key, self.decode_data(data)

    def approximate_num_entries(self) -> int:
        """Return the number of entries. On disk an estimate that may count overwritten entries."""
        self.check_open()
        return self.content.approximate_count()

    def read_data(self, key: bytes) -> bytes | None:
        """Return the stored bytes of a serialized key."""
        try:
            return self._read(key)
        except Exception as error:
            raise self._state_error(error) from error

    def value_data(self, key: K) -> bytes | None:
        """Return the serialized value of ``key``, as stored."""
        data = self.read_data(self.key_bytes(key))
        return None if data is None else self.value_part(data)

    def value_part(self, data: bytes) -> bytes:
        """Return the serialized value within stored bytes."""
        return data[TIMESTAMP_BYTES:] if self._timestamps_in_front else data

    def decode_data(self, data: bytes) -> S:
        """Decode stored bytes."""
        try:
            return self._decode(data)
        except Exception as error:
            raise self.codec.stored_error(error, data, is_key=False) from cause_of(error)

    # -- writing -----------------------------------------------------------------------------------------------

    def put(self, key: K, value: S | None) -> None:
        """Store ``value``. None deletes."""
        self.write_data(self.key_bytes(key), None if value is None else self.encode_data(value))

    def encode_data(self, stored: S) -> bytes:
        """Encode a stored value."""
        try:
            return self._encode(stored)
        except Exception as error:
            raise self.codec.value_error(error, self._value_of(stored)) from cause_of(error)

    def write_data(self, key: bytes, data: bytes | None) -> None:
        """Log and write bytes. None deletes, and is logged with the context's timestamp.

        Logging comes first everywhere: data that the changelog refuses must not be committed to disk, because the store
        would be ahead of its changelog.
        """
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
        """Do nothing: without a cache the operator itself forwards (``is_cached`` is False)."""

    # -- life --------------------------------------------------------------------------------------------------

    def restore(self, records: Iterable[RestoreRecord]) -> int:
        """Apply changelog records in order, bypassing log and cache. Null keys are skipped.

        Returns:
            The number of applied records.
        """
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
        """Return 0: a store without a cache has no dirty entries."""
        return 0

    def clear_cache(self) -> None:
        """Do nothing: this store has no cache."""

    def clear(self) -> None:
        """Remove everything without logging, before the store is restored from the beginning."""
        self.check_open()
        self.content.clear()
        self._use(self.content)

    def close(self) -> None:
        """Close the files. A second call does nothing; all other methods raise InvalidStateStoreError afterwards."""
        if self._is_open:
            self._is_open = False
            self._read = self._write = self._remove = self._refuse
            self.content.close()

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Use the log and context of another task object from now on (a standby becomes active, or the reverse)."""
        self._log = log
        self._context = context
        rebind = getattr(self.content, "rebind", None)  # only some bytes stores need the context
        if rebind is not None:
            rebind(log=log, context=context)

    def check_open(self) -> None:
        """Raise InvalidStateStoreError if the store is closed."""
        if not self._is_open:
            self._refuse()

    def _refuse(self, *_: object) -> Any:
        raise StateStoreMigratedError(
            f"store {self._name!r} is closed: its task has moved or the client has stopped; get the store again"
        )

    def _state_error(self, error: Exception) -> StreamsError:
        if isinstance(error, StreamsError):
            return error
        if not self._is_open:  # closed by the owner while another thread was reading
            return StateStoreMigratedError(f"store {self._name!r} was closed during the operation; get the store again")
        return StateError(f"store {self._name!r} failed: {error}")

    def __repr__(self) -> str:
        kind = "persistent" if self._persistent else "in memory"
        return f"<{type(self).__name__} {self._name} ({kind}{'' if self._is_open else ', closed'})>"


class PlainStore(StoreOverBytes[K, V, V]):
    """A key-value store of the Processor API: values without timestamps, logged with the context's timestamp."""

    _timestamps_in_front = False

    def _decoder(self) -> Callable[[bytes], V]:
        return self.codec.decode_value

    def _encode(self, stored: V) -> bytes:
        return self.codec.encode_value(stored)

    def _value_of(self, stored: V) -> Any:
        return stored

    def _log_data(self, log: ChangeLog, key: bytes, data: bytes) -> None:
        log(key, data, self._context.timestamp)


class CustomPlainStore(PlainStore[K, V]):
    """A :class:`PlainStore` over a custom store's bytes.

    It writes first and then logs. So a key that the custom store evicts during a write is logged before the written
    key, as in Kafka Streams. This cannot put the store ahead of its changelog on disk, because the bytes are not in the
    task's database.
    """

    def write_data(self, key: bytes, data: bytes | None) -> None:
        """Write, then log."""
        self._keep(key, data)
        if self._log is not None:
            self._log(key, data, self._context.timestamp)


class ExpiringPlainStore(StoreOverBytes[K, V, V]):
    """A plain key-value store with a time to live. Each stored value starts with the timestamp that is logged."""

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
    """A key-value store of tables and aggregates: values with the timestamp of the record that produced them."""

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
        """As :meth:`get`, but returns a plain tuple (value, timestamp_ms), for operators that only unpack it."""
        try:
            data = self._read(self._encode_key(key))
            return None if data is None else self._decode_parts(data)
        except Exception:
            return self.get(key)

    def put(self, key: K, value: ValueAndTimestamp[V] | None) -> None:
        """Store a value with its timestamp. None, or a pair with the value None, deletes."""
        super().put(key, value if value is None or value[0] is not None else None)

    def put_value(self, key: K, value: V | None, timestamp_ms: int) -> None:
        """Store a value with its timestamp. None deletes, and is logged with the context's timestamp."""
        if value is None:
            self.put(key, None)
            return
        try:
            key_bytes = self._encode_key(key)
            data = self._encode_parts(value, timestamp_ms)
        except Exception as error:
            self.key_bytes(key)  # raises if the key is the problem
            raise self.codec.value_error(error, value) from cause_of(error)
        self.write_stamped(key_bytes, data, timestamp_ms)

    def write_stamped(self, key: bytes, data: bytes, timestamp_ms: int) -> None:
        """Log and write bytes whose timestamp is known. A faster :meth:`write_data`."""
        if self._log is not None:
            self._log(key, data[TIMESTAMP_BYTES:], timestamp_ms)
        try:
            self._write(key, data)
        except Exception as error:
            raise self._state_error(error) from error

    def updater(self, initializer: Callable[[], V] | None, aggregator: Callable[[K, Any, V], V | None]) -> Updater:
        """Return a function that reads, aggregates and writes one record; see ``TimestampedKeyValueStore``."""
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
            log = self._log  # same as write_stamped, but without the call: this runs for every record of an aggregation
            if log is not None:
                log(key_bytes, data[TIMESTAMP_BYTES:], timestamp_ms)
            try:
                self._write(key_bytes, data)
            except Exception as error:
                raise self._state_error(error) from error
            return new, old, timestamp_ms

        return update

    def decode_parts(self, data: bytes) -> tuple[V, int]:
        """Decode stored bytes to the value and the timestamp in ms."""
        try:
            return self._decode_parts(data)
        except Exception as error:
            raise self.codec.stored_error(error, data, is_key=False) from cause_of(error)

    def encode_parts(self, value: V, timestamp_ms: int) -> bytes:
        """Encode a value with its timestamp."""
        try:
            return self._encode_parts(value, timestamp_ms)
        except Exception as error:
            raise self.codec.value_error(error, value) from cause_of(error)
