"""A binary heap with the element moves of Java's ``PriorityQueue``, and with changing keys.

Two structures of Kafka Streams' high-availability assignor are array heaps. Their result depends on the order of equal
keys, and on keys that changed while their element was in the heap. Neither a sorted container nor :mod:`heapq` gives
the same result there: ``heapq`` sinks an element to the bottom and lets it rise again, while Java stops as soon as the
element fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import lt
from typing import Any, Protocol, TypeVar


class Sortable(Protocol):
    """An element of a heap. As in ``sorted``, the caller ensures that elements are comparable."""

    def __lt__(self, other: Any, /) -> bool: ...


class Ordered(Sortable, Protocol):
    """A key that can also be compared with the bounds of an interval."""

    def __le__(self, other: Any, /) -> bool: ...
    def __hash__(self) -> int: ...


K = TypeVar("K", bound=Sortable)


def rise(array: list[K], slot: int) -> None:
    """Move the element up while it is strictly smaller than its parent."""
    x = array[slot]
    while slot > 0:
        parent = (slot - 1) >> 1
        if not x < array[parent]:
            break
        array[slot] = array[parent]
        slot = parent
    array[slot] = x


def sink(array: list[K], slot: int) -> bool:
    """Move the element down while a child is strictly smaller; return whether it moved.

    It moves to the smaller child, or to the left one if both are equal.
    """
    x, start, size = array[slot], slot, len(array)
    while (child := 2 * slot + 1) < size:
        right = child + 1
        if right < size and array[right] < array[child]:
            child = right
        if not array[child] < x:
            break
        array[slot] = array[child]
        slot = child
    array[slot] = x
    return slot != start


def remove_at(array: list[K], slot: int) -> None:
    """Remove the element in a slot; the last element of the array fills the gap."""
    last = array.pop()
    if slot == len(array):
        return
    array[slot] = last
    if not sink(array, slot):
        rise(array, slot)


def is_heap(array: Sequence[K]) -> bool:
    """Whether no element is smaller than its parent."""
    return not any(map(lt, array[1::2], array)) and not any(map(lt, array[2::2], array))  # left, right children
