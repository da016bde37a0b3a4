"""A binary heap with exactly the element moves of Java's ``PriorityQueue``, and with live keys.

Two structures of Kafka Streams' high-availability assignor are array heaps in which equal keys, or keys that changed
while their element was inside, reach the result. Neither a sorted container nor :mod:`heapq` gives the same answers
there: ``heapq`` sinks an element to the bottom and lets it rise again, Java stops as soon as the element fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import lt
from typing import Any, Protocol, TypeVar

__all__ = ["Ordered", "Sortable", "is_heap", "remove_at", "rise", "sink"]


class Sortable(Protocol):
    """What a heap compares. Any: comparing with its own kind is the caller's affair, as in ``sorted``."""

    def __lt__(self, other: Any, /) -> bool: ...


class Ordered(Sortable, Protocol):
    """A key that can also be tested against an interval."""

    def __le__(self, other: Any, /) -> bool: ...
    def __hash__(self) -> int: ...


K = TypeVar("K", bound=Sortable)


def rise(array: list[K], slot: int) -> None:
    """Swap the element up while it is strictly smaller than its parent."""
    x = array[slot]
    while slot > 0:
        parent = (slot - 1) >> 1
        if not x < array[parent]:
            break
        array[slot] = array[parent]
        slot = parent
    array[slot] = x


def sink(array: list[K], slot: int) -> bool:
    """Swap the element down while its smaller child (left on a tie) is strictly smaller; whether it moved."""
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
    """Take the element in a slot out; the last element of the array fills the gap."""
    last = array.pop()
    if slot == len(array):
        return
    array[slot] = last
    if not sink(array, slot):
        rise(array, slot)


def is_heap(array: Sequence[K]) -> bool:
    """Whether no element is smaller than its parent."""
    return not any(map(lt, array[1::2], array)) and not any(map(lt, array[2::2], array))  # left, right children
