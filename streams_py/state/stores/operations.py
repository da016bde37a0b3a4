"""What every key-value store offers on top of getting, putting and scanning: the same for all of them."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from streams_py.serdes.reasons import cause_of
from streams_py.state.stores.bytes_store import after_prefix
from streams_py.state.stores.codec import StoreCodec
from streams_py.state.stores.open_iterators import ListsIterators

__all__ = ["KeyValueOperations"]

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

_logger = logging.getLogger(__name__)


class KeyValueOperations(ListsIterators, ABC, Generic[K, V, S]):
    """Reads by range and writes by need. ``S`` is what the store holds per key: V, or V with its timestamp."""

    codec: StoreCodec[K, V]

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the store."""

    @abstractmethod
    def get(self, key: K) -> S | None:
        """What is stored for ``key``."""

    @abstractmethod
    def put(self, key: K, value: S | None) -> None:
        """Store ``value``; None deletes."""

    @abstractmethod
    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, S]]:
        """Snapshot of the entries by serialized key, from ``first`` on and below ``end``; None is an open end."""

    # -- by range ----------------------------------------------------------------------------------------------

    def range(self, first: K | None, last: K | None) -> Iterator[tuple[K, S]]:
        """Entries from ``first`` to ``last``, both included, in byte order of the keys."""
        return self._between(first, last, reverse=False)

    def reverse_range(self, first: K | None, last: K | None) -> Iterator[tuple[K, S]]:
        """As :meth:`range`, backwards."""
        return self._between(first, last, reverse=True)

    def all(self) -> Iterator[tuple[K, S]]:
        """Every entry, in byte order of the keys."""
        return self._listed(self._with_keys(self.scan(None, None, reverse=False)))

    def reverse_all(self) -> Iterator[tuple[K, S]]:
        """Every entry, backwards."""
        return self._listed(self._with_keys(self.scan(None, None, reverse=True)))

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[K, S]]:
        """Entries whose serialized key starts with ``prefix``."""
        return self._listed(self.under(prefix))

    def under(self, prefix: bytes) -> Iterator[tuple[K, S]]:
        """As :meth:`prefix_scan`, for operators: they take it at once, so it is not listed as open."""
        return self._with_keys(self.scan(prefix, after_prefix(prefix), reverse=False))

    def _between(self, first: K | None, last: K | None, *, reverse: bool) -> Iterator[tuple[K, S]]:
        low = None if first is None else self.key_bytes(first)
        end = None if last is None else self.key_bytes(last) + b"\0"  # the next key there can be
        if low is not None and end is not None and low >= end:
            _logger.warning(
                "store %s: a range from a greater to a smaller key is empty; keys are ordered by their bytes, "
                "in which negative numbers come after positive ones",
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
        """The serialized key."""
        return self.codec.key_bytes(key)

    # -- by need -----------------------------------------------------------------------------------------------

    def put_if_absent(self, key: K, value: S) -> S | None:
        """What is stored already; or None, and then ``value`` is stored."""
        present = self.get(key)
        if present is None:
            self.put(key, value)
        return present

    def put_all(self, entries: Iterable[tuple[K, S | None]]) -> None:
        """Store entries one after the other; each counts as a put."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: K) -> S | None:
        """Remove and return what is stored. Logged even if there was nothing."""
        present = self.get(key)
        self.put(key, None)
        return present
