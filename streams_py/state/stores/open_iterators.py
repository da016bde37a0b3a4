"""The open iterators of one store (Kafka Streams' ``OpenIterators``).

Kafka Streams counts an iterator as open until its ``close``. In Python, an iterator is finished when it is exhausted,
closed, or no longer referenced. So weak references are enough: a generator that still has a frame is open. Tracking
costs something when an iterator is opened, and nothing per entry.

Operators of this library consume their iterators immediately, for every record. These iterators are not tracked.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any, TypeVar

T = TypeVar("T")


class OpenIterators:
    """The open iterators of one store. Thread-safe. ``now_ms``: the wall clock."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._opened: dict[weakref.ref[Any], int] = {}
        self._forget = self._opened.pop
        self._now_ns: Callable[[], int] | None = None
        self._on_end: Callable[[int], None] = lambda took_ns: None

    def measure(self, now_ns: Callable[[], int], on_end: Callable[[int], None]) -> None:
        """From now on, call ``on_end`` with the time that each finished iterator was open, in ns.

        It is called on the thread that finishes the iterator, which may be in the middle of a garbage collection.
        """
        self._now_ns, self._on_end = now_ns, on_end

    def opened(self, entries: Iterator[T]) -> Iterator[T]:
        """Return an iterator over the same entries that is tracked until it is finished."""
        iterator: Iterator[Any]
        if self._now_ns is not None:
            iterator = self._until_its_end(entries, self._now_ns)
            next(iterator)
        elif isinstance(entries, GeneratorType):
            iterator = entries
        else:
            iterator = (entry for entry in entries)
        self._opened[weakref.ref(iterator, self._forget)] = self._now_ms()
        return iterator

    def _until_its_end(self, entries: Iterator[T], now_ns: Callable[[], int]) -> Iterator[Any]:
        began_ns = now_ns()
        try:
            yield  # the caller resumes it once, so that the finally clause runs even if no entry is ever read
            yield from entries
        finally:
            self._on_end(now_ns() - began_ns)

    def since_ms(self) -> list[int]:
        """Return the times in ms at which the open iterators were opened."""
        listed = self._opened.copy()  # atomic: other threads open and finish iterators meanwhile
        return [at_ms for known, at_ms in listed.items() if getattr(known(), "gi_frame", None) is not None]


class ListsIterators:
    """A store whose open iterators can be tracked."""

    iterators: OpenIterators | None = None
    """None: iterators are not tracked."""

    def _listed(self, entries: Iterator[T]) -> Iterator[T]:
        return entries if self.iterators is None else self.iterators.opened(entries)
