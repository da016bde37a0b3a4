"""Distribution of a client's tasks over its threads: balanced and sticky.

Source: Kafka Streams' ``StreamsPartitionAssignor.assignTasksToThreads``. The same procedure runs three times per client
(for stateful actives, standbys and stateless actives) and adds up one load per consumer. Each run has three steps:

* A. A stateful task returns to the thread that reported it, up to the share of each thread.
* B. Threads below their share take the remaining tasks in turn.
* C. Threads that are exactly at their share take one surplus task each, former owners first.

In the last half of step C any order would be correct. But Java iterates the array of a binary heap there, and stateless
tasks are not sticky. With another order, all threads of the group would exchange some stateless tasks whenever the
leadership moves between a Java member and a Python member. So this module mirrors the heap operation by operation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from streams_protocol.types import TaskId
from streams_py.assignment.java_order import in_hash_order, task_hash
from streams_py.errors import TaskAssignmentError

PreviousTasks = Callable[[str], Sequence[TaskId]]
"""Returns the stateful tasks that a consumer reported, ordered as by :func:`tasks_by_lag`."""


def tasks_by_lag(tasks: Iterable[TaskId], lags: Mapping[TaskId, int], first: Collection[TaskId]) -> tuple[TaskId, ...]:
    """Sort tasks by (lag, task), with the tasks in ``first`` before all others."""
    return tuple(sorted(tasks, key=lambda task: (task not in first, lags[task], task)))


def distribute_client(
    *,
    stateful: Iterable[TaskId],
    standby: Iterable[TaskId],
    stateless: Iterable[TaskId],
    consumers: Sequence[str],
    previous: PreviousTasks,
    standby_in_hash_order: bool = False,
) -> tuple[dict[str, list[TaskId]], dict[str, list[TaskId]]]:
    """Return (actives, standbys) of each consumer of one client, in the order of placement.

    Args:
        consumers: in ascending order.
        standby_in_hash_order: True for placements of a custom assignor, whose standbys Java keeps in a hash set.
    """
    load = dict.fromkeys(consumers, 0)
    known = {consumer: previous(consumer) for consumer in consumers}
    actives = distribute(in_hash_order(sorted(stateful), task_hash), consumers, load, known)
    standbys_sorted = sorted(standby)
    ordered = in_hash_order(standbys_sorted, task_hash) if standby_in_hash_order else standbys_sorted
    standbys = distribute(ordered, consumers, load, known)
    for consumer, tasks in distribute(in_hash_order(sorted(stateless), task_hash), consumers, load, None).items():
        actives[consumer] += tasks
    return actives, standbys


def distribute(
    tasks: Collection[TaskId],
    consumers: Sequence[str],
    load: dict[str, int],
    previous: Mapping[str, Sequence[TaskId]] | None,
) -> dict[str, list[TaskId]]:
    """Spread ``tasks`` over ``consumers`` (ascending) and add the result to ``load``.

    The order of ``tasks`` decides only which surplus task goes to which thread. ``previous`` None means not sticky.

    Raises:
        TaskAssignmentError: there are not enough tasks to give every thread its share. Balanced loads exclude this.
    """
    out: dict[str, list[TaskId]] = {consumer: [] for consumer in consumers}
    if not tasks:
        return out
    share = (len(tasks) + sum(load.values())) // len(consumers)
    pool = _TaskHeap(tasks)
    skipped: dict[TaskId, str] = {}
    below: deque[str] = deque()
    for consumer in consumers:
        mine, target = out[consumer], share - load[consumer]
        for task in previous[consumer] if previous is not None else ():
            if task in pool:
                if len(mine) < target:
                    mine.append(task)
                    pool.remove(task)
                else:
                    skipped[task] = consumer
        if len(mine) < target:
            below.append(consumer)
    while below:
        consumer = below.popleft()
        if not pool:
            raise TaskAssignmentError("ran out of tasks although some threads are below their share; report this")
        out[consumer].append(pool.take_smallest())
        if len(out[consumer]) + load[consumer] < share:
            below.append(consumer)
    if pool:
        _place_surplus(pool, out, {c: None for c in consumers if len(out[c]) + load[c] == share}, skipped)
    for consumer, mine in out.items():
        load[consumer] += len(mine)
    return out


def _place_surplus(
    pool: _TaskHeap, out: dict[str, list[TaskId]], at_share: dict[str, None], skipped: Mapping[TaskId, str]
) -> None:
    for task in sorted(skipped):
        consumer = skipped[task]
        if consumer in at_share and task in pool:
            out[consumer].append(task)
            pool.remove(task)
            del at_share[consumer]
    for task, consumer in zip(pool.in_array_order(), at_share, strict=False):
        out[consumer].append(task)


class _TaskHeap:
    """Java's ``PriorityQueue`` of task ids, including the order of its array.

    Two heaps with the same content can have different arrays. Only the same sequence of operations gives Java's array.
    A sorted array is a heap, too, and the common case for standbys. While the array is sorted, positions are found by
    bisection.
    """

    def __init__(self, tasks: Iterable[TaskId]) -> None:
        self._array = list(tasks)
        self._members = set(self._array)
        for i in range(len(self._array) // 2 - 1, -1, -1):
            self._down(i, self._array[i])

    def __len__(self) -> int:
        return len(self._array)

    def __contains__(self, task: TaskId) -> bool:
        return task in self._members

    def in_array_order(self) -> list[TaskId]:
        return list(self._array)

    def take_smallest(self) -> TaskId:
        smallest, last = self._array[0], self._array.pop()
        if self._array:
            self._down(0, last)
        self._members.discard(smallest)
        return smallest

    def remove(self, task: TaskId) -> None:
        i = self._position(task)
        self._members.discard(task)
        last = self._array.pop()
        if i == len(self._array):
            return
        self._down(i, last)
        if self._array[i] is last:
            self._up(i, last)

    def _position(self, task: TaskId) -> int:
        i = bisect_left(self._array, task)
        if i < len(self._array) and self._array[i] == task:
            return i
        return self._array.index(task)

    def _down(self, i: int, x: TaskId) -> None:
        array, size = self._array, len(self._array)
        while i < size // 2:
            child = 2 * i + 1
            if child + 1 < size and array[child + 1] < array[child]:
                child += 1
            if x <= array[child]:
                break
            array[i] = array[child]
            i = child
        array[i] = x

    def _up(self, i: int, x: TaskId) -> None:
        array = self._array
        while i > 0:
            parent = (i - 1) // 2
            if x >= array[parent]:
                break
            array[i] = array[parent]
            i = parent
        array[i] = x
