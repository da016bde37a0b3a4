"""The operations that every key-value store derives from get, put and scan."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from streams_py.serdes.reasons import cause_of
from streams_py.state.stores.bytes_store import after_prefix
from streams_py.state.stores.codec import StoreCodec
from streams_py.state.stores.open_iterators import ListsIterators

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

_logger = logging.getLogger(__name__)


class KeyValueOperations(ListsIterators, ABC, Generic[K, V, S]):
    """Range reads and conditional writes. ``S`` is the type of a stored value: V, or V with its timestamp."""

    codec: StoreCodec[K, V]

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the store."""

    @abstractmethod
    def get(self, key: K) -> S | None:
        """Return the value of ``key``, or None."""

    @abstractmethod
    def put(self, key: K, value: S | None) -> None:
        """Store ``value``. None deletes."""

    @abstractmethod
    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, S]]:
        """Return a snapshot of the entries by serialized key, from ``first`` (included) to ``end`` (excluded).

        None is an open end.
        """

    # -- range reads -------------------------------------------------------------------------------------------

    def range(self, first: K | None, last: K | None) -> Iterator[tuple[K, S]]:
        """Return the entries from ``first`` to ``last``, both included, in byte order of the keys."""
        return self._between(first, last, reverse=False)

    def reverse_range(self, first: K | None, last: K | None) -> Iterator[tuple[K, S]]:
        """As :meth:`range`, in reverse order."""
        return self._between(first, last, reverse=True)

    def all(self) -> Iterator[tuple[K, S]]:
        """Return all entries, in byte order of the keys."""
        return self._listed(self._with_keys(self.scan(None, None, reverse=False)))

    def reverse_all(self) -> Iterator[tuple[K, S]]:
        """As :meth:`all`, in reverse order."""
        return self._listed(self._with_keys(self.scan(None, None, reverse=True)))

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[K, S]]:
        """Return the entries whose serialized key starts with ``prefix``."""
        return self._listed(self.under(prefix))

    def under(self, prefix: bytes) -> Iterator[tuple[K, S]]:
        """As :meth:`prefix_scan`, for operators. They consume it immediately, so it is not tracked as open."""
        return self._with_keys(self.scan(prefix, after_prefix(prefix), reverse=False))

    def _between(self, first: K | None, last: K | None, *, reverse: bool) -> Iterator[tuple[K, S]]:
        low = None if first is None else self.key_bytes(first)
        end = None if last is None else self.key_bytes(last) + b"\0"  # the next possible key
        if low is not None and end is not None and low >= end:
            _logger.warning(
                "store %s: returning an empty range because its first key is greater than its last; keys are compared "
                "by their serialized bytes, which sort negative numbers after positive ones",
                self.name,
            )
            end = low
        return self._listed(self._with_keys(self.scan(low, end, reverse=reverse)))

    def _with_keys(self, entries: Iterator[tuple[bytes, S]]) -> Iterator[tuple[K, S]]:
        decode_key = self.codec.decode_key
        for key_bytes, stored in entries:
            try:
                key = decode_key(key_bytes)
            except Exception as error:
                raise self.codec.stored_error(error, key_bytes, is_key=True) from cause_of(error)
            yield key, stored

    def key_bytes(self, key: K) -> bytes:
        """Return the serialized key."""
        return self.codec.key_bytes(key)

    # -- conditional and bulk writes ---------------------------------------------------------------------------

    def put_if_absent(self, key: K, value: S) -> S | None:
        """Store ``value`` unless the key has a value. Returns the existing value, or None."""
        present = self.get(key)
        if present is None:
            self.put(key, value)
        return present

    def put_all(self, entries: Iterable[tuple[K, S | None]]) -> None:
        """Store entries one after the other. Each counts as a put."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: K) -> S | None:
        """Remove and return the value of ``key``. Logged even if the key had no value."""
        present = self.get(key)
        self.put(key, None)
        return present
