"""From a client's tasks to its threads: balanced within one task, and sticky.

Kafka Streams' ``StreamsPartitionAssignor.assignTasksToThreads``. One procedure runs three times per client, for
stateful actives, standbys and stateless actives, over a shared load per consumer. Each run has three steps:

* A. a stateful task goes back to the thread that reported it, up to the share every thread is due;
* B. threads below their share take the remaining tasks in turn;
* C. what is left over goes, one each, to threads that are exactly at their share, former owners first.

Any order would do in the last half of step C, but Java walks the array of a binary heap there, and stateless tasks are
not sticky: whenever leadership moved between a Java and a Python member, every thread of the group would swap some
of them. So the heap is mirrored here operation by operation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from streams_protocol.types import TaskId
from streams_py.assignment.java_order import in_hash_order, task_hash
from streams_py.errors import TaskAssignmentError

__all__ = ["PreviousTasks", "distribute", "distribute_client", "tasks_by_lag"]

PreviousTasks = Callable[[str], Sequence[TaskId]]
"""Stateful tasks that a consumer reported, as :func:`tasks_by_lag` has them."""


def tasks_by_lag(tasks: Iterable[TaskId], lags: Mapping[TaskId, int], first: Collection[TaskId]) -> tuple[TaskId, ...]:
    """Tasks by (lag, task), those in ``first`` before the others."""
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
    """(actives, standbys) of each consumer of one client; the order within a list is the order of placement.

    ``consumers`` are ascending. ``standby_in_hash_order`` is for placements of a custom assignor, whose standbys Java
    keeps in a hash set.
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

    The order of ``tasks`` decides only which of the surplus tasks goes to which thread. ``previous`` None means not
    sticky. TaskAssignmentError when tasks run out before every thread has its share, which balanced loads exclude.
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
    """Java's ``PriorityQueue`` of task ids, down to the order of its array.

    Two heaps with the same content can differ in the array, and only the exact sequence of operations gives Java's.
    While the array happens to be sorted (a heap too, and the common case in the standby stage), positions are found
    by bisection.
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
