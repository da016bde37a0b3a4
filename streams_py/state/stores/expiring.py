"""Key-value stores with a time to live: entries go when stream time has passed their timestamp by so much.

**What is expired** is decided when it is read: stream time is the larger one of the task's and of the latest timestamp
that was put. So an expired entry is gone for every reader at once, and also for the one who writes nothing.

**Where it goes.** Under ``01 + key`` lies the entry, its timestamp in front; ``00 + i64 bucket + key`` only says that
the key was put at a time of that bucket. A bucket is a sixteenth of the time to live. When all of one is past, the
entries that it names and that were not put again go, then all of its names at once. Writing reads nothing for that.
A key put again and again has one name per bucket. Under ``02`` lies the latest timestamp put.

The changelog holds records as those of every key-value store; its topic deletes what is old, and restoration drops what
is expired by the records' own timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from streams_py.state.stores.bytes_store import BytesStore
from streams_py.state.stores.codec import TIMESTAMP_BYTES, pack_timestamp, timestamp_of
from streams_py.topology.declare.nodes import RecordContext

__all__ = ["ExpiringBytes", "bucket_ms"]

_NAME = b"\x00"
_ENTRY = b"\x01"
_ENTRIES_END = b"\x02"
_LATEST = b"\x02"
_BUCKETS = 16


def bucket_ms(ttl_ms: int) -> int:
    """How long a bucket is, in ms."""
    return max(ttl_ms // _BUCKETS, 1)


class ExpiringBytes:
    """A bytes store over another one. Data starts with a timestamp (i64, ms), as in timestamped stores."""

    def __init__(self, content: BytesStore, ttl_ms: int, context: RecordContext) -> None:
        self.context = context
        self._content = content
        self._ttl_ms = ttl_ms
        self._bucket_ms = bucket_ms(ttl_ms)
        latest = content.read(_LATEST)
        self._latest_ms = -1 if latest is None else timestamp_of(latest)
        self._past_bucket = -1

    def rebind(self, *, log: object, context: RecordContext) -> None:
        """Belong to another task object from now on."""
        self.context = context

    def _expired_until(self) -> int:
        """Entries of this timestamp and of earlier ones are expired."""
        return max(self._latest_ms, self.context.stream_time_ms) - self._ttl_ms

    # -- as a bytes store --------------------------------------------------------------------------------------

    def read(self, key: bytes) -> bytes | None:
        data = self._content.read(_ENTRY + key)
        return None if data is None or timestamp_of(data) <= self._expired_until() else data

    def write(self, key: bytes, data: bytes) -> None:
        self._put(key, data)
        self._drop_expired()

    def remove(self, key: bytes) -> None:
        self._content.remove(_ENTRY + key)
        self._drop_expired()

    def write_batch(self, keys: Sequence[bytes], datas: Iterable[bytes | None], *, removes: bool = True) -> None:
        for key, data in zip(keys, datas, strict=True):
            if data is None:
                self._content.remove(_ENTRY + key)
            else:
                self._put(key, data)
        self._drop_expired()

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        below = _ENTRIES_END if end is None else _ENTRY + end
        entries = self._content.scan(_ENTRY + (first or b""), below, reverse=reverse)
        return self._living(entries, self._expired_until())

    @staticmethod
    def _living(entries: Iterator[tuple[bytes, bytes]], expired_until: int) -> Iterator[tuple[bytes, bytes]]:
        for key, data in entries:
            if timestamp_of(data) > expired_until:
                yield key[1:], data

    def collect(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        return list(self.scan(first, end))

    def remove_below(self, end: bytes) -> None:
        for key, _ in list(self.scan(None, end)):
            self._content.remove(_ENTRY + key)

    def approximate_count(self) -> int:
        """Counted one by one: names and overwritten entries must not count."""
        return sum(1 for _ in self.scan(None, None))

    def clear(self) -> None:
        self._content.clear()
        self._latest_ms = self._past_bucket = -1

    def close(self) -> None:
        self._content.close()

    # -- putting and dropping ----------------------------------------------------------------------------------

    def _put(self, key: bytes, data: bytes) -> None:
        timestamp_ms = timestamp_of(data)
        if timestamp_ms > self._latest_ms:
            self._latest_ms = timestamp_ms
            self._content.write(_LATEST, data[:TIMESTAMP_BYTES])
        if timestamp_ms <= self._expired_until():
            self._content.remove(_ENTRY + key)  # it replaces what is there, and is expired itself
            return
        self._content.write(_NAME + pack_timestamp(max(timestamp_ms, 0) // self._bucket_ms) + key, b"")
        self._content.write(_ENTRY + key, data)

    def _drop_expired(self) -> None:
        expired_until = self._expired_until()
        past = (expired_until + 1) // self._bucket_ms  # buckets below this one hold nothing that lives
        if past <= self._past_bucket or expired_until < 0:
            return
        self._past_bucket = past
        end = _NAME + pack_timestamp(past)
        for name, _ in self._content.scan(_NAME, end):
            key = name[1 + TIMESTAMP_BYTES :]
            data = self._content.read(_ENTRY + key)
            if data is not None and timestamp_of(data) <= expired_until:
                self._content.remove(_ENTRY + key)
        self._content.remove_below(end)
