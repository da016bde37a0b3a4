"""Key-value stores with a time to live: an entry expires when stream time exceeds its timestamp by that time.

**Expiry** is checked when an entry is read. Stream time here is the maximum of the task's stream time and the latest
timestamp put. So an expired entry disappears for all readers at the same moment, even if nothing is written.

**Removal.** There are three kinds of stored keys:

* ``01 + key``: an entry, whose value starts with its timestamp.
* ``00 + i64 bucket + key``: a name. It only says that the key was put at a time within this bucket.
* ``02``: the latest timestamp put.

A bucket is a sixteenth of the time to live. When a bucket has expired completely, the entries that it names are removed
unless they were put again later. Then all names in the bucket are removed together. Writes need no read for this. A key
that is put repeatedly has one name per bucket.

The changelog has the same records as for any other key-value store. Its topic deletes old records, and a restore drops
records that have expired according to their own timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from streams_py.state.stores.bytes_store import BytesStore
from streams_py.state.stores.codec import TIMESTAMP_BYTES, pack_timestamp, timestamp_of
from streams_py.topology.declare.nodes import RecordContext

_NAME = b"\x00"
_ENTRY = b"\x01"
_ENTRIES_END = b"\x02"
_LATEST = b"\x02"
_BUCKETS = 16


def bucket_ms(ttl_ms: int) -> int:
    """Return the length of a bucket in ms."""
    return max(ttl_ms // _BUCKETS, 1)


class ExpiringBytes:
    """A bytes store with expiring entries, over another bytes store.

    Data starts with a timestamp (i64, ms), as in timestamped stores.
    """

    def __init__(self, content: BytesStore, ttl_ms: int, context: RecordContext) -> None:
        self.context = context
        self._content = content
        self._ttl_ms = ttl_ms
        self._bucket_ms = bucket_ms(ttl_ms)
        latest = content.read(_LATEST)
        self._latest_ms = -1 if latest is None else timestamp_of(latest)
        self._past_bucket = -1

    def rebind(self, *, log: object, context: RecordContext) -> None:
        """Use the context of another task object from now on."""
        self.context = context

    def _expired_until(self) -> int:
        """Return the highest timestamp of expired entries, in ms."""
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
        """Count all entries one by one, because names and overwritten entries must not count."""
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
            self._content.remove(_ENTRY + key)  # the new entry replaces the old one, but has expired itself
            return
        self._content.write(_NAME + pack_timestamp(max(timestamp_ms, 0) // self._bucket_ms) + key, b"")
        self._content.write(_ENTRY + key, data)

    def _drop_expired(self) -> None:
        expired_until = self._expired_until()
        past = (expired_until + 1) // self._bucket_ms  # all lower buckets have expired completely
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
