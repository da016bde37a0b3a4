"""The choice of the client that takes over a task, as Kafka Streams' queue would make it.

Kafka Streams keeps all clients in a binary heap, least loaded first (``ConstrainedPrioritySet``). ``poll(task)``
removes clients until one qualifies and puts the other clients back *in hash order*. Later the winner and the task's
previous host are put back with their new loads. So half of all clients pass through the heap for every movement.

The winner is almost always the candidate with the smallest key, so the heap is not needed. There is one exception: the
load of the previous host changes *while it is in the heap*. For a moment the heap may be out of order, and a later poll
may return clients in an order that differs from their keys. This class tracks how far the disorder can reach, as
disjoint closed intervals of keys in which the order is *doubtful*:

* Take an array that is a heap once the keys of each doubtful interval are treated as equal. Every later push, pop or
  remove with the exact keys preserves this property, and pops return keys in this coarser order. So the keys alone
  decide a poll, unless its smallest candidate shares a doubtful interval with another candidate.
* A poll without candidates removes all clients and puts them back, which removes all doubt. A poll with a winner does
  the same for all keys below the winner.
* A changed key makes an interval doubtful only as far as the keys that it was compared with while it was stale.
* Disorder requires that the previous host is on the path from the last slot to the root, at least two levels up. The
  clients that the poll just put back fill the last slots. If there are enough of them, the top of that path has only
  smaller keys (``enough_pushes``).

If the keys cannot decide, the array is built: starting at the last point at which its shape is known, the class replays
all later events with the exact moves of :mod:`streams_py.assignment.heap`. While an array is in order and its keys are
distinct, :mod:`heapq` builds the same array faster; for an array out of order it does not.
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


class _Shape(Enum):
    """The shape of the array at the last known point."""

    CLIENT_ORDER = "pushed in client order"
    DRAINED = "pushed in hash order after a drain"
    ARRAY = "given"


_Step: TypeAlias = "tuple[int, int, int, int, bool] | None"
"""An event: (src, its previous key, dest, its previous key, polled) of a movement.

None stands for a poll that emptied the heap. Each movement adds one or two events, and they are read only when an array
is built, so they are plain tuples.
"""


class _PutBack(NamedTuple):
    """A movement with the keys after it."""

    src: int
    src_key: int
    dest: int
    dest_key: int
    polled: bool


class MovementQueue:
    """All clients, ordered by keys that change as tasks move.

    Between two movements every client is in the queue. A movement is one or more calls of ``poll``, then ``put_back``.
    """

    def __init__(self, keys: list[int], spread_hashes: Sequence[int]) -> None:
        """Take over the list ``keys``. ``keys[c]`` modulo the number of clients is always c."""
        self.keys = keys
        self.doubtful: list[tuple[int, int]] = []
        self._hashes = spread_hashes
        self._enough = enough_pushes(len(keys))
        self._log: list[_Step] = []
        self._shape = _Shape.CLIENT_ORDER
        self._point_array: list[int] = []
        self._winner_out = False  # whether the winner of a poll was not yet put back at the last known point
        self._least = _LeastClients(keys)

    def poll(self, candidates: Sequence[int], otherwise: Sequence[int] = ()) -> int | None:
        """Return the candidate that the heap would yield first, or None without a candidate.

        If ``candidates`` is empty, a second poll chooses among ``otherwise``. The winner is out of the queue until it
        is put back.
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
        """Record that a task moved from ``dest`` to ``src``, with the new keys of both.

        The key of src must not shrink. ``polled``: src was the winner of the last poll.
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
        """Whether the poll put back enough smaller clients that no stale key was compared."""
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
            # The poll order within a hash bucket is unknown. So no doubt is left, but the history is still needed.
            self._log.append(None)
            self.doubtful = []
        else:
            self._log.clear()
            self._shape = _Shape.DRAINED
            self._winner_out = False

    # -- the literal array -----------------------------------------------------------------------------------

    def _poll_literally(self, candidates: Collection[int]) -> int:
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
        """Return (keys at the last known point, events since then)."""
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
    """Answers whether at least a given number of keys are below a key, without reading all keys.

    Holds the clients that had the smallest keys at some moment. While ``watching``, the owner adds every client whose
    key shrinks. So no other client is below the largest key of that moment.
    """

    def __init__(self, keys: Sequence[int]) -> None:
        """The owner keeps and changes the list ``keys``."""
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
    """The array itself, which holds keys; a key identifies its client.

    While the array is in order, one poll consists of hundreds of pops and pushes, so they run without a Python loop.
    """

    def __init__(self, array: list[int], keys: list[int], hashes: Sequence[int]) -> None:
        self.array = array
        self.in_order = is_heap(array)
        self._keys = keys
        self._hashes = hashes
        self._buckets: dict[int, dict[int, int]] = {}
        """Bucket of each key, by number of buckets. Old keys may stay: a key keeps its client."""

    def poll(self, wanted: Collection[int]) -> int | None:
        """Pop until a wanted client comes; put the other clients back in hash order."""
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
        """Carry out the rest of a movement, after its last poll."""
        array, keys = self.array, self._keys
        src, src_key, dest, dest_key, polled = step
        slot = array.index(keys[dest])
        array[slot] = dest_key  # its load changed while it was in the heap
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
        """Sort like a Java hash set of the clients, filled in the given order, iterates them."""
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
    """Return how many smaller clients must be put back so that a stale key cannot be compared.

    ``size`` is the size of the heap. The clients go into the slots before the last one, in slot order. A client whose
    path to the root shares the next unproven node with the path of the last slot proves that this node is smaller. All
    nodes but those of the two lowest levels must be proven.
    """
    last = size  # slots count from 1, so the path of a slot consists of the prefixes of its binary number
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
