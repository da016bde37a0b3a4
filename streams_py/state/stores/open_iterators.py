"""The iterators of one store that somebody has begun and not ended: Kafka Streams' ``OpenIterators``.

Kafka Streams counts each one until its ``close``. In Python an iterator has ended when there is nothing more in it,
when it was closed, or when nobody holds it any more. So it is enough to know those that are held, weakly: a generator
that still has a frame is open. That costs something when an iterator is opened, and nothing for what it gives.

Operators of the library take all that they find at once, with every record; they do so past this list.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any, TypeVar

__all__ = ["ListsIterators", "OpenIterators"]

T = TypeVar("T")


class OpenIterators:
    """Any thread may open, end and ask. ``now_ms``: the wall clock."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._opened: dict[weakref.ref[Any], int] = {}
        self._forget = self._opened.pop
        self._now_ns: Callable[[], int] | None = None
        self._on_end: Callable[[int], None] = lambda took_ns: None

    def measure(self, now_ns: Callable[[], int], on_end: Callable[[int], None]) -> None:
        """From now on ``on_end`` hears how long each one was open. It is called by whoever ends it, also by a thread
        that collects garbage."""
        self._now_ns, self._on_end = now_ns, on_end

    def opened(self, entries: Iterator[T]) -> Iterator[T]:
        """The same entries, in an iterator that is listed until it has ended."""
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
            yield  # at once: so its end is seen also when nobody has taken anything from it
            yield from entries
        finally:
            self._on_end(now_ns() - began_ns)

    def since_ms(self) -> list[int]:
        """When each of those that are open was opened."""
        listed = self._opened.copy()  # as one step: others open and end meanwhile
        return [at_ms for known, at_ms in listed.items() if getattr(known(), "gi_frame", None) is not None]


class ListsIterators:
    """A store whose iterators are listed when somebody asks for that."""

    iterators: OpenIterators | None = None

    def _listed(self, entries: Iterator[T]) -> Iterator[T]:
        return entries if self.iterators is None else self.iterators.opened(entries)
