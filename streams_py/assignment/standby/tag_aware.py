"""Standby placement over client tags (KIP-708).

This is Kafka Streams' ``ClientTagAwareStandbyTaskAssignor``. The copies of a task should differ in every configured tag
(zone, cluster, ...). For each task with an active host, standbys are placed one by one on the least loaded client that
has no configured (key, value) in common with a host placed so far. A key no longer counts once all of its values are
used. Standbys that do not fit wait until every task had its first attempt. Then they go to the least loaded clients,
regardless of tags, in the order of a Java hash map of task ids.

Placing one by one can fail where another choice would have worked: the least loaded client for the first standby may be
the only one possible for the second. So when standbys of a task remain, we search for a set of clients that fits as a
whole (:mod:`~streams_py.assignment.standby.ideal_spread`). Without such a set, each standby goes to the client that
adds the most values, not just to the least loaded one. Kafka does neither; ``one_by_one`` gives Kafka's decisions.

Clients are grouped into classes with equal values. There is one heap for each class, and one heap of the smallest
elements of these heaps. So a blocked zone is skipped as a whole, even if its clients are the least loaded. A (key,
value) of only one client does not make a separate class: it can only block a client that has the task anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from streams_py.assignment.assignors.cluster import Cluster
from streams_py.assignment.java_order import in_hash_order, task_hash
from streams_py.assignment.problem import Note, NoteKind
from streams_py.assignment.standby.default import fill_by_load
from streams_py.assignment.standby.ideal_spread import PARTIAL_SETS_MAX, fits, spread_as_a_whole

_FIRST_HOSTS: Final = 1  # the active host


class TagAwareStandbys:
    """Places standbys in one cluster, and decides which later moves keep them spread."""

    def __init__(
        self,
        cluster: Cluster,
        tags: Sequence[Mapping[str, str]],
        keys: Sequence[str],
        *,
        one_by_one: bool = False,
        with_state: Callable[[int], Collection[int]] = lambda _task: (),
    ) -> None:
        """``tags[c]`` are all tags of client c; ``keys`` are the configured keys.

        ``with_state(t)`` returns the clients that have state of task t; they are preferred where we do not follow
        Kafka.
        """
        self._cluster = cluster
        self._tags = tags
        self._keys = tuple(keys)
        self.pairs = [frozenset(own.items()) for own in tags]
        self._values = [[own.get(key) for key in self._keys] for own in tags]
        self._distinct = [len({v for v in column if v is not None}) for column in _columns(self._values, self._keys)]
        self._notes: list[Note] = []
        self._noted_keys: set[str] = set()
        self._one_by_one = one_by_one
        self._with_state = with_state
        self._gaps = any(None in row for row in self._values)
        self._partial_sets_left = PARTIAL_SETS_MAX
        self._hopeless: set[int] = set()
        """Classes of active hosts for which no set of clients fits."""

    # -- placement -------------------------------------------------------------------------------------------

    def assign(self, tasks: Sequence[int], replicas: int) -> list[Note]:
        """Place standbys of the tasks, in the given order.

        As in Kafka, 0 replicas still place one standby for each task with an active host.
        """
        cluster = self._cluster
        classes = _ClientClasses(cluster, self._values)
        remaining: dict[int, int] = {}
        for task in tasks:
            left = replicas
            if cluster.active[task] >= 0:
                left = self._spread(task, replicas, classes)
            if left > 0:
                remaining[task] = left
        if remaining:
            order = in_hash_order(tasks, lambda task: task_hash(cluster.tasks[task]))
            queue = ((task, remaining[task]) for task in order if task in remaining)
            self._notes.extend(fill_by_load(cluster, queue, replicas))
        return self._notes

    def _spread(self, task: int, replicas: int, classes: _ClientClasses) -> int:
        """Make the first attempt for one task; return the number of standbys left to place."""
        cluster = self._cluster
        blocked: list[set[str]] = [set() for _ in self._keys]
        used, left, last = _FIRST_HOSTS, replicas, cluster.active[task]
        placed: list[int] = []
        while True:
            for position, value in enumerate(self._values[last]):
                if value is None:
                    continue
                if self._distinct[position] <= used:
                    blocked[position].clear()
                else:
                    blocked[position].add(value)
            self._note_unconfigured(last)
            client = classes.take_least(task, blocked)
            if client is None:
                break
            used += 1
            left -= 1
            cluster.place_standby(task, client)
            placed.append(client)
            last = client
            if left <= 0:
                break
        # If a client lacks a tag, Kafka's rule may lose track of a used value.
        better = left > 0 or (self._gaps and not fits(self._values, self._distinct, [cluster.active[task], *placed]))
        if better and not self._one_by_one and self._spread_as_a_whole(task, placed, replicas, classes):
            left = 0
        classes.put_back()
        if left > 0:
            self._notes.append(self._relaxed(task, left, replicas, blocked))
            if not self._one_by_one:
                left = self._spread_as_far_as_possible(task, left, classes)
        return left

    def _spread_as_a_whole(self, task: int, placed: Sequence[int], replicas: int, classes: _ClientClasses) -> bool:
        """Replace the standbys placed so far by a set of clients that fits, if there is one."""
        cluster = self._cluster
        active = cluster.active[task]
        if classes.class_of[active] in self._hopeless or not self._partial_sets_left:
            return False
        for client in placed:
            cluster.remove_standby(task, client)
        classes.put_back()
        candidates = self._candidates(task, replicas + 1, classes)
        chosen, tried = spread_as_a_whole(
            self._values, self._distinct, active, candidates, replicas, partial_sets_max=self._partial_sets_left
        )
        self._partial_sets_left -= tried
        if chosen is None:
            self._hopeless.add(classes.class_of[active])
        for client in chosen or placed:
            classes.take(client)
            cluster.place_standby(task, client)
        return chosen is not None

    def _candidates(self, task: int, of_each_class: int, classes: _ClientClasses) -> list[int]:
        """Return clients without the task: those with its state, then the least loaded per class."""
        cluster = self._cluster
        first = sorted(self._with_state(task), key=cluster.key)
        found = dict.fromkeys((*first, *classes.least_of_each(of_each_class)))
        return [client for client in found if not cluster.holds(client, task)]

    def _spread_as_far_as_possible(self, task: int, left: int, classes: _ClientClasses) -> int:
        """Place standbys where they add the most tag values; return the number not placed."""
        cluster = self._cluster
        copies = [cluster.active[task], *cluster.standby[task]]
        seen = [{self._values[client][position] for client in copies} | {None} for position in range(len(self._keys))]
        while left > 0:
            candidates = self._candidates(task, len(copies) + 1, classes)
            if not candidates:
                break
            chosen = max(candidates, key=lambda c: sum(v not in old for v, old in zip(self._values[c], seen)))
            classes.take(chosen)
            cluster.place_standby(task, chosen)
            classes.put_back()
            copies.append(chosen)
            for value, old in zip(self._values[chosen], seen):
                old.add(value)
            left -= 1
        return left

    # -- movement rules --------------------------------------------------------------------------------------

    def may_move(self, src: int, dst: int) -> bool:
        """Whether any standby may move from src to dst: dst must have every tag of src.

        This includes tags that are not configured.
        """
        return self.pairs[src] <= self.pairs[dst]

    # -- notes -----------------------------------------------------------------------------------------------

    def _relaxed(self, task: int, left: int, replicas: int, blocked: Sequence[set[str]]) -> Note:
        name = self._cluster.tasks[task]
        taken = {key: sorted(values) for key, values in zip(self._keys, blocked) if values}
        text = f"{left} of {replicas} standby replicas of task {name} cannot differ from its other copies in "
        if taken:
            wanted = " and ".join(f"{key} other than {', '.join(values)}" for key, values in taken.items())
            text += (
                f"{', '.join(taken)}; start an instance with {wanted}, or remove a key from rack.aware.assignment.tags"
            )
        else:
            text += f"{', '.join(self._keys)}: every client has the task already"
        return Note(NoteKind.TAGS_RELAXED, name, text)

    def _note_unconfigured(self, client: int) -> None:
        for key in self._tags[client]:
            if key not in self._keys and key not in self._noted_keys:
                self._noted_keys.add(key)
                text = f"client tag {key!r} is not used: rack.aware.assignment.tags lists {list(self._keys)}"
                self._notes.append(Note(NoteKind.TAG_NOT_CONFIGURED, None, text))


def _columns(values: list[list[str | None]], keys: Sequence[str]) -> list[list[str | None]]:
    return [[row[position] for row in values] for position in range(len(keys))]


class _ClientClasses:
    """All clients by class, least loaded first; whole classes can be skipped."""

    def __init__(self, cluster: Cluster, values: list[list[str | None]]) -> None:
        self._cluster = cluster
        carriers = Counter((position, v) for row in values for position, v in enumerate(row))
        numbers: dict[tuple[str | None, ...], int] = {}
        self.class_of: list[int] = []
        for row in values:
            shared = tuple(v if v is not None and carriers[position, v] > 1 else None for position, v in enumerate(row))
            self.class_of.append(numbers.setdefault(shared, len(numbers)))
        self._values = list(numbers)
        self._heaps: list[list[int]] = [[] for _ in numbers]
        for client, key in enumerate(cluster.keys()):
            self._heaps[self.class_of[client]].append(key)
        for heap in self._heaps:
            heapify(heap)
        # Smallest elements of the heaps. Outdated entries are dropped when they come up.
        self._tops: list[tuple[int, int]] = [(heap[0], number) for number, heap in enumerate(self._heaps)]
        heapify(self._tops)
        self._out: list[int] = []

    def take_least(self, task: int, blocked: Sequence[set[str]]) -> int | None:
        """Remove and return the least loaded client without the task and without blocked values."""
        cluster, tops = self._cluster, self._tops
        passed_over: list[tuple[int, int]] = []
        winner = None
        while tops and winner is None:
            top = heappop(tops)
            if passed_over and top == passed_over[-1]:  # a duplicate: the client was removed and put back
                continue
            key, number = top
            heap = self._heaps[number]
            if not heap or heap[0] != key:
                continue
            if any(v in values for v, values in zip(self._values[number], blocked)):
                passed_over.append(top)
                continue
            heappop(heap)
            if heap:
                heappush(tops, (heap[0], number))
            client = cluster.client_of(key)
            self._out.append(client)
            if not cluster.holds(client, task):
                winner = client
        for top in passed_over:
            heappush(tops, top)
        return winner

    def least_of_each(self, count: int) -> list[int]:
        """Return the ``count`` least loaded clients of each class, ordered by load.

        No client may be removed at that time.
        """
        keys: list[int] = []
        for heap in self._heaps:
            keys += sorted(heap[: 2**count - 1])[:count]  # the k least keys of a heap are on its first k levels
        return [self._cluster.client_of(key) for key in sorted(keys)]

    def take(self, client: int) -> None:
        """Remove a client, before its load changes."""
        number = self.class_of[client]
        heap = self._heaps[number]
        key = self._cluster.key(client)
        was_least = heap[0] == key
        heap.remove(key)
        heapify(heap)
        if was_least and heap:
            heappush(self._tops, (heap[0], number))
        self._out.append(client)

    def put_back(self) -> None:
        """Put back all removed clients with their current loads."""
        for client in self._out:
            key, number = self._cluster.key(client), self.class_of[client]
            heap = self._heaps[number]
            heappush(heap, key)
            if heap[0] == key:
                heappush(self._tops, (key, number))
        self._out.clear()
