"""The queue that picks who takes over a task, without running the queue.

Kafka Streams keeps all clients in a binary heap, least loaded first (``ConstrainedPrioritySet``). ``poll(task)`` takes
clients out until one qualifies, puts the others back *in hash order*, and the winner and the task's previous host are
put back after their loads changed. Half of all clients go through the heap for every movement.

The winner is almost always simply the least of the few candidates, so the heap need not exist. Almost: the previous
host's load changes *while it is inside*, so for a moment the heap may be out of order, and a later poll may meet
clients in another order than that of their keys. This class tracks how far the disorder can reach, as disjoint closed
intervals of keys in which the order is *doubtful*:

* If an array is a heap once the keys of each doubtful interval are merged into one, every later push, pop or remove
  with the exact keys keeps it so, and pops come out in merged order. Hence a poll is decided by keys alone unless its
  least candidate shares a doubtful interval with another candidate.
* A poll without candidates takes everything out and puts it back: no doubt is left. A poll with a winner does so for
  everything below the winner.
* A changed key makes an interval doubtful only as far as the keys it was compared with while stale.
* The disorder needs the previous host on the path from the last slot to the root, two levels up or more. The clients
  that the poll just put back fill the last slots; if they are enough, the top of that path holds only smaller keys
  (``enough_pushes``).

When keys cannot decide, the array is built after all: from the last point at which its shape is known, by replaying
what happened since, with the literal moves of :mod:`streams_py.assignment.heap`. While an array is in order and its
keys are distinct, :mod:`heapq` makes the same array faster; out of order it does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial
from heapq import heappop, heappush
from itertools import repeat
from typing import NamedTuple, TypeAlias

from streams_py.assignment.heap import is_heap, remove_at
from streams_py.assignment.java_order import CHAINS_MATTER_MAX, buckets_by_size, table_buckets

__all__ = ["MovementQueue", "enough_pushes"]


class _Shape(Enum):
    """How the array looked at the last known point."""

    CLIENT_ORDER = "pushed in client order"
    DRAINED = "pushed in hash order after a drain"
    ARRAY = "given"


_Step: TypeAlias = "tuple[int, int, int, int, bool] | None"
"""What happened: (src, its key before, dest, its key before, polled) of a movement, or None for a poll that emptied the
heap. There is one or two for each movement and they are read only when an array is built, so they stay plain."""


class _PutBack(NamedTuple):
    """The same with the keys after the movement."""

    src: int
    src_key: int
    dest: int
    dest_key: int
    polled: bool


class MovementQueue:
    """All clients, ordered by keys that change as tasks move.

    Between two movements every client is a member. A movement is: ``poll`` one or more times, then ``put_back``.
    """

    def __init__(self, keys: list[int], spread_hashes: Sequence[int]) -> None:
        """``keys[c]`` is c modulo the number of clients, for good; the list is owned by the queue from now on."""
        self.keys = keys
        self.doubtful: list[tuple[int, int]] = []
        self.arrays_built = 0
        self._hashes = spread_hashes
        self._enough = enough_pushes(len(keys))
        self._log: list[_Step] = []
        self._shape = _Shape.CLIENT_ORDER
        self._point_array: list[int] = []
        self._winner_out = False  # at the point, the winner of a poll was not put back yet
        self._least = _LeastClients(keys)

    def poll(self, candidates: Sequence[int], otherwise: Sequence[int] = ()) -> int | None:
        """The candidate that the heap would yield first, else one of the ``otherwise``, asked for in a second poll.

        None when there is none. The winner is out until it is put back.
        """
        if not candidates:
            self._drain()
            candidates = otherwise
            if not candidates:
                return None
        keys = self.keys
        if len(candidates) == 1:
            winner = candidates[0]
        elif len(candidates) == 2:
            winner, other = candidates
            if keys[other] < keys[winner]:
                winner = other
        else:
            winner = min(candidates, key=keys.__getitem__)
        if self.doubtful:
            key = keys[winner]
            for low, high in self.doubtful:
                if low <= key <= high and sum(low <= keys[c] <= high for c in candidates) > 1:
                    return self._poll_literally(candidates)
            self.doubtful = [interval for interval in self.doubtful if not interval[1] < key]
        return winner

    def put_back(self, src: int, src_key: int, dest: int, dest_key: int, polled: bool) -> None:
        """A task went from ``dest`` to ``src``; both have new keys, src not a smaller one than before.

        ``polled``: src was the last poll's winner.
        """
        keys = self.keys
        old_src, old_dest = keys[src], keys[dest]
        if dest_key < old_dest:
            if not polled:
                self._doubt(dest_key, old_dest)
            elif dest_key < src_key < old_dest and not self._harmless(old_src):
                self._doubt(src_key, old_dest)
            if self._least.watching:
                self._least.clients.add(dest)
        elif old_dest < dest_key:
            self._doubt(old_dest, dest_key)
        self._log.append((src, old_src, dest, old_dest, polled))
        keys[src] = src_key
        keys[dest] = dest_key

    def _harmless(self, src_key: int) -> bool:
        """Whether the poll put back so many smaller clients that a stale key cannot have been met."""
        if self.doubtful and not src_key < self.doubtful[0][0]:
            return False
        return self._least.are_below(src_key, self._enough)

    def _doubt(self, low: int, high: int) -> None:
        apart = []
        for interval in self.doubtful:
            if interval[1] < low or high < interval[0]:
                apart.append(interval)
            else:
                low = interval[0] if interval[0] < low else low
                high = interval[1] if high < interval[1] else high
        apart.append((low, high))
        apart.sort()
        self.doubtful = apart

    def _drain(self) -> None:
        if self.doubtful:
            # The order in which clients of one hash bucket came out is unknown: the doubt is gone, not the history.
            self._log.append(None)
            self.doubtful = []
        else:
            self._log.clear()
            self._shape = _Shape.DRAINED
            self._winner_out = False

    # -- the literal array -----------------------------------------------------------------------------------

    def _poll_literally(self, candidates: Collection[int]) -> int:
        self.arrays_built += 1
        keys, steps = self._history()
        replay = _Replay(self._array_at_point(keys), keys, self._hashes)
        winner_out = self._winner_out
        for step in steps:
            if step is None:
                replay.poll(())
                continue
            if step.polled and not winner_out:
                replay.poll((step.src,))
            winner_out = False
            replay.put_back(step)
        winner = replay.poll(candidates)
        assert winner is not None
        self._log.clear()
        self._shape = _Shape.ARRAY
        self._point_array = replay.array
        self._winner_out = True
        key = self.keys[winner]
        if replay.in_order:
            self.doubtful = []
        else:
            self.doubtful = [interval for interval in self.doubtful if not interval[1] < key]
        return winner

    def _history(self) -> tuple[list[int], list[_PutBack | None]]:
        """(keys at the last known point, what happened since)."""
        keys = list(self.keys)
        steps: list[_PutBack | None] = []
        for step in reversed(self._log):
            if step is None:
                steps.append(None)
            else:
                src, src_before, dest, dest_before, polled = step
                steps.append(_PutBack(src, keys[src], dest, keys[dest], polled))
                keys[src], keys[dest] = src_before, dest_before
        steps.reverse()
        return keys, steps

    def _array_at_point(self, keys: list[int]) -> list[int]:
        if self._shape is _Shape.ARRAY:
            return self._point_array
        array: list[int] = []
        if self._shape is _Shape.DRAINED:
            number = table_buckets(self._hashes)
            keys = sorted(sorted(keys), key=lambda key: self._hashes[key % len(keys)] & (number - 1))
        for key in keys:
            heappush(array, key)
        return array


class _LeastClients:
    """Answers "are so many keys below this one?" from few keys instead of all.

    Holds the clients that had the least keys at some moment. Its owner adds everybody whose key falls while it is
    ``watching``; so nobody else is below the largest key of that moment.
    """

    def __init__(self, keys: Sequence[int]) -> None:
        """``keys`` stays the owner's, who changes it."""
        self.clients: set[int] = set()
        self.watching = False
        self._keys = keys
        self._top: int | None = None
        self._size_max = 0

    def are_below(self, key: int, wanted: int) -> bool:
        """Whether at least ``wanted`` clients have smaller keys."""
        if self._count(key) >= wanted:
            return True
        if self._top is not None and key <= self._top and len(self.clients) <= self._size_max:
            return False
        size = 2 * wanted + 16
        least = sorted(range(len(self._keys)), key=self._keys.__getitem__)[:size]
        self.clients, self._top, self._size_max = set(least), self._keys[least[-1]], 4 * size
        self.watching = True
        return self._count(key) >= wanted

    def _count(self, key: int) -> int:
        keys = self._keys
        return sum([keys[client] < key for client in self.clients])


class _Replay:
    """The array itself, holding keys; a key names its client.

    In order, hundreds of pops and pushes make one poll, so they run without a Python loop.
    """

    def __init__(self, array: list[int], keys: list[int], hashes: Sequence[int]) -> None:
        self.array = array
        self.in_order = is_heap(array)
        self._keys = keys
        self._hashes = hashes
        self._buckets: dict[int, dict[int, int]] = {}
        """By number of buckets: the bucket of each key. Old keys may stay, each names its client for good."""

    def poll(self, wanted: Collection[int]) -> int | None:
        """Pop until a wanted client comes; put the others back in hash order."""
        array, keys = self.array, self._keys
        winner = None
        if not self.in_order:
            rejected, winner = self._pop_literally({keys[client]: client for client in wanted})
        elif wanted:
            winner = min(wanted, key=keys.__getitem__)
            rejected = list(iter(partial(heappop, array), keys[winner]))
        else:
            rejected = sorted(array)
            array.clear()
        deque(map(heappush, repeat(array), self._in_hash_order(rejected)), maxlen=0)
        self.in_order = self.in_order or is_heap(array)
        return winner

    def _pop_literally(self, winners: Mapping[int, int]) -> tuple[list[int], int | None]:
        array = self.array
        rejected: list[int] = []
        while array:
            key = array[0]
            remove_at(array, 0)
            if key in winners:
                return rejected, winners[key]
            rejected.append(key)
        return rejected, None

    def put_back(self, step: _PutBack) -> None:
        """The rest of a movement, after its last poll."""
        array, keys = self.array, self._keys
        src, src_key, dest, dest_key, polled = step
        slot = array.index(keys[dest])
        array[slot] = dest_key  # its load changed while it was inside
        stays = self.in_order and dest_key <= keys[dest] and (slot == 0 or array[(slot - 1) >> 1] < dest_key)
        if not polled:
            remove_at(array, array.index(keys[src]))
        heappush(array, src_key)
        remove_at(array, array.index(dest_key))
        heappush(array, dest_key)
        self.in_order = stays or is_heap(array)
        keys[src], keys[dest] = src_key, dest_key
        for number, bucket_of in self._buckets.items():
            bucket_of[src_key] = self._hashes[src] & (number - 1)
            bucket_of[dest_key] = self._hashes[dest] & (number - 1)

    def _in_hash_order(self, rejected: list[int]) -> list[int]:
        """As a Java hash set of the clients, filled in the given order, iterates them."""
        keys, hashes = self._keys, self._hashes
        if len(rejected) > CHAINS_MATTER_MAX:
            number = buckets_by_size(len(rejected))
        else:
            number = table_buckets([hashes[key % len(keys)] for key in rejected])
        bucket_of = self._buckets.get(number)
        if bucket_of is None:
            bucket_of = {key: h & (number - 1) for key, h in zip(keys, hashes)}
            self._buckets[number] = bucket_of
        return sorted(rejected, key=bucket_of.__getitem__)


@lru_cache(maxsize=64)
def enough_pushes(size: int) -> int:
    """How many smaller clients, put back just before, keep a stale key out of the way in a heap of this size.

    They went into the slots before the last one, in slot order. Each of them whose path to the root shares the next
    unproven node with the path of the last slot proves that node smaller; all but the two lowest levels are needed.
    """
    last = size  # slots counted from 1, so that a slot's path is its binary prefixes
    depth = last.bit_length() - 1
    needed = depth - 2

    def proves(pushes: int) -> bool:
        proven = 0
        for slot in range(last - pushes, last):
            shift = max(last.bit_length(), slot.bit_length())
            a, b = last << (shift - last.bit_length()), slot << (shift - slot.bit_length())
            shared = shift - (a ^ b).bit_length() - 1  # depth of the lowest node on both paths
            if proven <= shared:
                proven += 1
                if proven >= needed:
                    return True
        return proven >= needed

    low, high = 0, max(0, size - 1)
    if not proves(high):
        return size
    while low < high:
        middle = (low + high) // 2
        if proves(middle):
            high = middle
        else:
            low = middle + 1
    return low
