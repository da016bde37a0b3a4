"""Java's ``PriorityQueue`` for elements whose keys change while they are in the heap.

The literal assignors use two of these heaps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from streams_py.assignment.heap import Sortable, remove_at, rise

T = TypeVar("T")


class BinaryHeap(Generic[T]):
    """A heap of elements whose key is computed again at every comparison."""

    def __init__(self, key: Callable[[T], Sortable]) -> None:
        self._array: list[_Live[T]] = []
        self._key = key

    def __len__(self) -> int:
        return len(self._array)

    def push(self, element: T) -> None:
        self._array.append(_Live(element, self._key))
        rise(self._array, len(self._array) - 1)

    def pop(self) -> T:
        """Remove and return the element in slot 0; IndexError when empty."""
        first = self._array[0]
        remove_at(self._array, 0)
        return first.element

    def remove(self, element: T) -> None:
        """Remove the lowest slot that holds ``element``; ValueError when it is not in the heap."""
        for slot, live in enumerate(self._array):
            if live.element == element:
                remove_at(self._array, slot)
                return
        raise ValueError(f"{element!r} is not in the heap")


class _Live(Generic[T]):
    __slots__ = ("element", "key")

    def __init__(self, element: T, key: Callable[[T], Sortable]) -> None:
        self.element = element
        self.key = key

    def __lt__(self, other: _Live[T]) -> bool:
        return self.key(self.element) < other.key(other.element)
