"""A key-value store with a record cache; see :mod:`streams_py.state.caching.cached`."""

from __future__ import annotations

from typing import Any, TypeVar

from streams_py.state.caching.cache import RecordCache
from streams_py.state.caching.cached import CachedStore
from streams_py.state.stores.key_value import PlainStore
from streams_py.topology.declare.nodes import RecordContext

K = TypeVar("K")
V = TypeVar("V")


class CachedPlainStore(CachedStore[K, V, V]):
    """A :class:`PlainStore` with a record cache."""

    def __init__(
        self, below: PlainStore[K, V], context: RecordContext, cache: RecordCache, *, keeps_what_is_read: bool = True
    ) -> None:
        super().__init__(below, context, cache, keeps_what_is_read=keeps_what_is_read)
        self._plain = below

    def put(self, key: K, value: V | None) -> None:
        """Store ``value`` in the cache. None deletes."""
        at = self._cache_key(key)
        if value is None:
            self._put_held(at, None, 0)
            return
        data = self._plain.encode_data(value)
        held: Any = value
        if not self._holds_objects:
            held = data
        elif value.__class__ is not self._value_type:
            held = self._plain.decode_data(data)
        self._put_held(at, held, len(data))

    def _held(self, stored: V) -> Any:
        return stored

    def _stored(self, held: Any) -> V | None:
        stored: V | None = held if held is None or self._holds_objects else self._plain.decode_data(held)
        return stored

    def _data_of(self, held: Any) -> bytes:
        return self._plain.encode_data(held) if self._holds_objects else held

    def _value_of(self, stored: V) -> Any:
        return stored

    def _timestamp_of(self, stored: V) -> int:
        return self._context.timestamp
