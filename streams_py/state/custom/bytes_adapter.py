"""The adapter that makes a custom key-value bytes store the bytes store of a key-value store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from streams_py.errors import ConfigError
from streams_py.state.custom.context import CustomStoreContext
from streams_py.state.custom.lru import LruStore
from streams_py.state.stores.key_value import ChangeLog
from streams_py.topology.declare.custom_stores import KeyValueBytesStore
from streams_py.topology.declare.nodes import RecordContext


class CustomBytesAdapter:
    """A ``BytesStore`` over a :class:`KeyValueBytesStore`, which it creates and opens.

    When the custom store evicts a key, this is logged as a deletion. As in Kafka Streams, evictions of an LRU map with
    timestamped values are not logged: a restore evicts the same entries again.
    """

    def __init__(
        self, supplier: Callable[[], KeyValueBytesStore], context: CustomStoreContext, *, is_timestamped: bool
    ) -> None:
        store = supplier()
        if not isinstance(store, KeyValueBytesStore):
            raise ConfigError(
                f"the supplier of store {context.name!r} returned {type(store).__name__}, expected a "
                "KeyValueBytesStore",
                key=context.name,
            )
        self.store = store
        self.context = context
        store.evicted = _ignore if is_timestamped and isinstance(store, LruStore) else self._log_eviction
        store.open(context)
        self.read: Callable[[bytes], bytes | None] = store.get
        self.write: Callable[[bytes, bytes], None] = store.put
        self.remove: Callable[[bytes], object] = store.delete

    def _log_eviction(self, key: bytes) -> None:
        self.context.log_change(key, None)

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Use the log and context of another task object from now on."""
        self.context.log, self.context.record = log, context

    # -- as a bytes store --------------------------------------------------------------------------------------

    def write_batch(self, keys: Sequence[bytes], datas: Iterable[bytes | None], *, removes: bool = True) -> None:
        self.context.is_restoring = True
        try:
            for key, data in zip(keys, datas, strict=True):
                if data is None:
                    self.remove(key)
                else:
                    self.write(key, data)
        finally:
            self.context.is_restoring = False

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return iter(self.store.range(first, end, reverse=reverse))

    def collect(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        return list(self.scan(first, end))

    def remove_below(self, end: bytes) -> None:
        for key, _ in self.collect(b"", end):
            self.remove(key)

    def approximate_count(self) -> int:
        return self.store.approximate_num_entries()

    def clear(self) -> None:
        self.store.clear()

    def close(self) -> None:
        self.store.close()


def _ignore(key: bytes) -> None:
    pass
