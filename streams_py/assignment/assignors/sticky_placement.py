"""Sticky placement: keep tasks where they were, then spread the others.

The rules follow Kafka Streams' two sticky assignors (the internal one and the public ``StickyTaskAssignor``):

1. Previous active tasks stay, up to a quota of tasks per client.
2. Open tasks go to a former standby that has quota left.
3. The remaining tasks, ascending, go to the *best* client: the previous owner, otherwise a former standby, unless it is
   overloaded; otherwise the least loaded client.
4. Standbys are placed one by one on the best client that does not have the task.

"Least loaded" prefers clients in this order: a client without tasks; the least loaded client that holds a task with
which this task does not share a client yet (a new *pair*); the least loaded client. Ties, and the order of iteration in
steps 1, 2 and 4, follow the order of Java's hash maps and of the inputs.

Kafka keeps a set of all pairs, which grows with the square of the number of tasks. This set is not needed: tasks are
only ever added to clients, so two tasks are a pair exactly if a client holds both. And a task that no client holds is
not in any pair.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.explanation import Rule
from streams_py.assignment.java_order import (
    CHAINS_MATTER_MAX,
    DEFAULT_BUCKETS,
    HashSizing,
    buckets_by_size,
    in_hash_order,
    process_hash,
    set_copy_buckets,
    table_buckets,
    task_hash,
)
from streams_py.assignment.problem import Note, NoteKind
from streams_py.errors import IllegalStateError

_Rank = tuple[float, int]  # load, then the tie-breaker


@dataclass(frozen=True, slots=True)
class StickyClient:
    """One client. Previous tasks are ascending, and may no longer exist.

    Clients are in the order of Kafka Streams' container.
    """

    process_id: ProcessId
    capacity: int
    previous_active: Sequence[TaskId]
    previous_standby: Sequence[TaskId]


class StickyPlacement:
    """One placement in progress. Clients are numbers: positions in the given sequence."""

    def __init__(
        self,
        clients: Sequence[StickyClient],
        tasks: Collection[TaskId],
        *,
        preserve: bool,
        capacity_breaks_ties: bool,
        active_order_hashed: bool,
        sizing: HashSizing,
    ) -> None:
        """``preserve`` ignores the quota in step 1.

        The internal and the public assignor differ in ``capacity_breaks_ties`` and ``active_order_hashed``.
        """
        self.clients = clients
        self.tasks = tasks
        self.active: dict[TaskId, int] = {}
        self.standby: dict[TaskId, list[int]] = {}
        self.held: list[set[TaskId]] = [set() for _ in clients]
        self.notes: list[Note] = []
        self.rules: dict[tuple[TaskId, int], Rule] | None = None  # (task, client) -> reason; None if not requested
        self._preserve = preserve
        self._capacity_breaks_ties = capacity_breaks_ties
        self._sizing = sizing
        self._active_count = [0] * len(clients)
        self._hashes = [(h := process_hash(c.process_id)) ^ (h >> 16) for c in clients]
        total = sum(client.capacity for client in clients)
        if total <= 0:
            raise IllegalStateError("the clients have no threads: their total capacity must be more than 0")
        self._per_thread = len(tasks) // total
        self._previous_active = {t: number for number, c in enumerate(clients) for t in c.previous_active}
        self._previous_standby = self._index_standbys()
        everybody = list(range(len(clients)))
        if active_order_hashed:
            everybody = self._by_bucket(everybody, table_buckets(self._hashes))
        self._active_order = _LoadOrder(everybody, self._rank, self._is_idle)
        self._standby_orders: dict[int, _LoadOrder] = {}
        self._first_groups: tuple[dict[TaskId, int], list[frozenset[TaskId]]] | None = None

    def _index_standbys(self) -> dict[TaskId, list[int]]:
        """Map each task to its former standbys, ordered like a Java hash set of their process ids."""
        index: dict[TaskId, list[int]] = {}
        for number, client in enumerate(self.clients):
            for task in client.previous_standby:
                index.setdefault(task, []).append(number)
        for task, numbers in index.items():
            if len(numbers) > 1:
                index[task] = self._hashed(numbers, DEFAULT_BUCKETS)
        return index

    def _hashed(self, numbers: Sequence[int], buckets: int) -> list[int]:
        hashes = self._hashes
        return self._by_bucket(numbers, table_buckets([hashes[n] for n in numbers], buckets))

    def _by_bucket(self, numbers: Sequence[int], buckets: int) -> list[int]:
        hashes = self._hashes
        return sorted(numbers, key=lambda number: hashes[number] & (buckets - 1))

    # -- steps 1 to 3 ----------------------------------------------------------------------------------------

    def place_actives(self) -> None:
        """Assign every task an active host."""
        current = set(self.tasks)
        for task in in_hash_order(self._previous_active, task_hash):
            owner = self._previous_active[task]
            if task in current and (self._preserve or self._has_quota(owner)):
                self._give_active(task, owner)
                self._note(task, owner, Rule.PREVIOUS_OWNER)
        copied = set_copy_buckets(len(self.tasks), self._sizing)
        for task in in_hash_order(self.tasks, task_hash, buckets=copied):
            if task not in self.active:
                for client in self._previous_standby.get(task, ()):
                    if self._has_quota(client):
                        self._give_active(task, client)
                        self._note(task, client, Rule.FORMER_STANDBY)
                        break
        for task in sorted(current - self.active.keys()):
            best = self._best_active(task)
            self._give_active(task, best)
            self._note(task, best, self._rule_of_best(task, best))

    def _note(self, task: TaskId, client: int, rule: Rule) -> None:
        if self.rules is not None:
            self.rules[task, client] = rule

    def _rule_of_best(self, task: TaskId, client: int) -> Rule:
        if self._previous_active.get(task) == client:
            return Rule.PREVIOUS_OWNER
        return Rule.FORMER_STANDBY if client in self._previous_standby.get(task, ()) else Rule.LEAST_LOADED

    def _has_quota(self, client: int) -> bool:
        return self._active_count[client] < self.clients[client].capacity * self._per_thread

    def _give_active(self, task: TaskId, client: int) -> None:
        self.active[task] = client
        self._active_count[client] += 1
        self._give(task, client)

    def _give(self, task: TaskId, client: int) -> None:
        self.held[client].add(task)
        self._active_order.update(client)
        for order in self._standby_orders.values():
            order.update(client)

    def _best_active(self, task: TaskId) -> int:
        return self._best(
            task,
            lambda: self._active_order.idle() if self._active_order.has_idle() else self._active_order.least(),
            lambda former: self._least_of(former, lambda client: bool(self.held[client])),
            allowed=lambda _client: True,
            only=0 if len(self.clients) == 1 else None,
        )

    # -- step 4 ----------------------------------------------------------------------------------------------

    def place_standbys(self, tasks: Iterable[TaskId], replicas: int) -> None:
        """Assign each task, in the given order, its standbys."""
        for task in tasks:
            hosts = self.standby.setdefault(task, [])
            met = self._met(task)
            for placed in range(replicas):
                holders = {self.active[task], *hosts}
                if len(holders) == len(self.clients):
                    self.notes.append(_not_enough(task, replicas - placed, replicas))
                    break
                client = self._best_standby(task, holders, met)
                hosts.append(client)
                met |= self.held[client]
                self._give(task, client)
                self._note(task, client, self._rule_of_best(task, client))

    def _best_standby(self, task: TaskId, holders: set[int], met: set[TaskId]) -> int:
        held = self.held

        def meets_somebody(client: int) -> bool:
            return not held[client] <= met

        def least_loaded() -> int:
            order = self._standby_order(holders)
            if order.has_idle():
                return order.idle()
            return order.first(lambda client: client not in holders, meets_somebody)

        free = len(self.clients) - len(holders)
        only = next(c for c in range(len(self.clients)) if c not in holders) if free == 1 else None
        return self._best(
            task,
            least_loaded,
            lambda former: self._least_of(former, meets_somebody),
            allowed=lambda client: client not in holders,
            only=only,
        )

    def _met(self, task: TaskId) -> set[TaskId]:
        """Return the tasks that share a client with this task, including itself."""
        owner = self.active[task]
        if self._first_groups is None:
            met = set(self.held[owner])
        else:
            # After the rack optimisation, active tasks are pairs by their first placement, not by the new one.
            first_owner, groups = self._first_groups
            met = set(groups[first_owner[task]])
            met.update(other for other in self.held[owner] if self.active.get(other) != owner)
        return met

    def _standby_order(self, holders: set[int]) -> _LoadOrder:
        """Return all clients, ordered like a Java hash set of the clients without the task."""
        free = len(self.clients) - len(holders)
        if free > CHAINS_MATTER_MAX:
            buckets = buckets_by_size(free)
        else:
            buckets = table_buckets([h for number, h in enumerate(self._hashes) if number not in holders])
        order = self._standby_orders.get(buckets)
        if order is None:
            order = _LoadOrder(self._by_bucket(range(len(self.clients)), buckets), self._rank, self._is_idle)
            self._standby_orders[buckets] = order
        return order

    # -- rack optimisation -----------------------------------------------------------------------------------

    def replace_actives(self, owners: dict[TaskId, int]) -> None:
        """Change the owners of some tasks between steps 3 and 4; per-client counts must not change."""
        if self._first_groups is None:
            self._first_groups = dict(self.active), [frozenset(tasks) for tasks in self.held]
        for task, client in owners.items():
            self.held[self.active[task]].discard(task)
            self.active[task] = client
        for task, client in owners.items():
            self.held[client].add(task)

    # -- choosing a client -----------------------------------------------------------------------------------

    def _best(
        self,
        task: TaskId,
        least_loaded: Callable[[], int],
        least_of_former: Callable[[list[int]], int | None],
        *,
        allowed: Callable[[int], bool],
        only: int | None,
    ) -> int:
        if only is not None:
            return only

        def best_former_standby() -> int | None:
            former = self._previous_standby.get(task)
            if not former:
                return None
            copied = self._hashed(former, set_copy_buckets(len(former), self._sizing))
            return least_of_former([client for client in copied if allowed(client)])

        previous = self._previous_active.get(task)
        if previous is None or not allowed(previous):
            previous = best_former_standby()
        if previous is None:
            return least_loaded()
        if self._overloaded(previous):
            former = best_former_standby()
            return least_loaded() if former is None or self._overloaded(former) else former
        return previous

    def _least_of(self, candidates: list[int], meets_somebody: Callable[[int], bool]) -> int | None:
        """Apply the module's rule for the least loaded client to a short list."""
        if len(candidates) <= 1:
            return candidates[0] if candidates else None
        for client in candidates:
            if not self.held[client]:
                return client
        return min([c for c in candidates if meets_somebody(c)] or candidates, key=self._rank)

    def _rank(self, client: int) -> _Rank:
        capacity = self.clients[client].capacity
        return len(self.held[client]) / capacity, -capacity if self._capacity_breaks_ties else 0

    def _is_idle(self, client: int) -> bool:
        return not self.held[client]

    def _overloaded(self, client: int) -> bool:
        """Whether the client is full while another client is less loaded."""
        if len(self.held[client]) < self.clients[client].capacity:
            return False
        return self._rank(self._active_order.least()) < self._rank(client)


def _not_enough(task: TaskId, missing: int, replicas: int) -> Note:
    return Note(
        NoteKind.NOT_ENOUGH_CLIENTS,
        task,
        f"cannot place {missing} of {replicas} standby replicas of task {task}: every client has the task already; "
        f"start more application instances (more threads of one instance do not help) or lower num.standby.replicas",
    )


class _LoadOrder:
    """All clients by (rank, position in a given order), updated lazily; and the idle clients."""

    def __init__(self, order: list[int], rank: Callable[[int], _Rank], is_idle: Callable[[int], bool]) -> None:
        self._order = order
        self._rank = rank
        self._is_idle = is_idle
        self._position = {client: position for position, client in enumerate(order)}
        self._heap = [(rank(client), position, client) for position, client in enumerate(order)]
        heapify(self._heap)
        self._next_idle = 0

    def update(self, client: int) -> None:
        """Update the client after it received a task."""
        heappush(self._heap, (self._rank(client), self._position[client], client))

    def has_idle(self) -> bool:
        """Whether a client has no tasks. A client never becomes idle again."""
        while self._next_idle < len(self._order) and not self._is_idle(self._order[self._next_idle]):
            self._next_idle += 1
        return self._next_idle < len(self._order)

    def idle(self) -> int:
        """Return the first client without tasks."""
        return self._order[self._next_idle]

    def least(self) -> int:
        """Return the first client by rank."""
        heap = self._heap
        while heap[0][0] != self._rank(heap[0][2]):
            heappop(heap)
        return heap[0][2]

    def first(self, accept: Callable[[int], bool], prefer: Callable[[int], bool]) -> int:
        """Return the first accepted and preferred client, otherwise the first accepted one.

        At least one client must be accepted.
        """
        taken, heap, found = [], self._heap, None
        while heap:
            entry = heappop(heap)
            client = entry[2]
            if entry[0] != self._rank(client):
                continue
            taken.append(entry)
            if accept(client):
                if prefer(client):
                    found = client
                    break
                found = client if found is None else found
        for entry in taken:
            heappush(heap, entry)
        assert found is not None
        return found
