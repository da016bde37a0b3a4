"""The high-availability assignor as a literal implementation of its rules, for comparison only.

It is slow: it examines every client for every task, looks up lags as in a full table, and has a movement queue that is
a real heap, emptied and refilled at every poll.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.java_order import in_hash_order, process_hash, task_hash
from streams_py.assignment.problem import AssignmentProblem, ClientInput
from tests.support.assignment.binary_heap import BinaryHeap

UNLIMITED = 2**63 - 1
Rule = Callable[["Client", TaskId], bool]


class Client:
    """A client during the placement."""

    def __init__(self, given: ClientInput, problem: AssignmentProblem) -> None:
        self.id = given.process_id
        self.capacity = given.capacity
        self.tags = given.tags
        self.active: set[TaskId] = set()
        self.standby: set[TaskId] = set()
        self._lags = {task: problem.lag(given, task) for task in problem.end_offset_sums}

    def lag(self, task: TaskId) -> int:
        return self._lags[task]

    def has(self, task: TaskId) -> bool:
        return task in self.active or task in self.standby

    @property
    def count(self) -> int:
        return len(self.active) + len(self.standby)

    @property
    def load(self) -> float:
        return self.count / self.capacity


class PriorityQueue:
    """Kafka Streams' ConstrainedPrioritySet."""

    def __init__(self, allowed: Rule, weight: Callable[[Client], float] = lambda client: client.load) -> None:
        self._heap: BinaryHeap[Client] = BinaryHeap(lambda client: (weight(client), client.id))
        self._members: set[ProcessId] = set()
        self._allowed = allowed

    def offer(self, client: Client) -> None:
        if client.id in self._members:
            self._heap.remove(client)
        self._members.add(client.id)
        self._heap.push(client)

    def offer_all(self, clients: Iterable[Client]) -> None:
        for client in clients:
            self.offer(client)

    def poll(self, task: TaskId, also: Callable[[Client], bool] = lambda client: True) -> Client | None:
        rejected: list[Client] = []
        winner = None
        while len(self._heap) and winner is None:
            client = self._heap.pop()
            self._members.discard(client.id)
            if self._allowed(client, task) and also(client):
                winner = client
            else:
                rejected.append(client)
        self.offer_all(in_hash_order(rejected, lambda client: process_hash(client.id)))
        return winner


def decide(problem: AssignmentProblem) -> tuple[dict[ProcessId, tuple[list[TaskId], list[TaskId]]], bool]:
    """Return the tasks of every client, and whether a probing rebalance is needed."""
    clients = sorted((Client(given, problem) for given in problem.clients), key=lambda client: client.id)
    stateful = sorted(problem.end_offset_sums)
    for number, task in enumerate(stateful):
        clients[number % len(clients)].active.add(task)
    balance(clients, lambda client: client.active, lambda _src, _dst: True)
    replicas = problem.configs.num_standby_replicas
    if replicas:
        keys = problem.configs.rack_aware_assignment_tags
        if keys:
            tag_aware_standbys(clients, stateful, replicas, keys)
            balance(clients, lambda c: c.standby, lambda src, dst: src.tags.items() <= dst.tags.items())
        else:
            queue = PriorityQueue(lambda client, task: not client.has(task))
            queue.offer_all(clients)
            for task in stateful:
                fill(queue, task, replicas)
            balance(clients, lambda client: client.standby, lambda _src, _dst: True)
    moved = Movements(problem, clients, stateful).run()
    queue = PriorityQueue(lambda _client, _task: True, lambda client: len(client.active) / client.capacity)
    queue.offer_all(clients)
    for task in sorted(set(problem.tasks) - set(stateful)):
        least = queue.poll(task)
        assert least is not None
        least.active.add(task)
        queue.offer(least)
    return {client.id: (sorted(client.active), sorted(client.standby)) for client in clients}, moved > 0


def balance(
    clients: list[Client], role: Callable[[Client], set[TaskId]], may_move: Callable[[Client, Client], bool]
) -> None:
    moved = True
    while moved:
        moved = False
        for src in clients:
            for dst in clients:
                if src is dst:
                    continue
                for task in sorted(role(src)):
                    if not improves(src, dst):
                        break
                    if not dst.has(task) and may_move(src, dst):
                        role(src).remove(task)
                        role(dst).add(task)
                        moved = True


def improves(src: Client, dst: Client) -> bool:
    skew = src.load - dst.load
    after = (src.count - 1) / src.capacity - (dst.count + 1) / dst.capacity
    return skew > 0 and 0 <= after < skew


def fill(queue: PriorityQueue, task: TaskId, missing: int) -> None:
    while missing > 0 and (client := queue.poll(task)) is not None:
        client.standby.add(task)
        missing -= 1
        queue.offer(client)


def tag_aware_standbys(clients: list[Client], stateful: list[TaskId], replicas: int, keys: Iterable[str]) -> None:
    values: dict[str, set[str]] = {}
    for client in clients:
        for key, value in client.tags.items():
            values.setdefault(key, set()).add(value)
    remaining = dict.fromkeys(in_hash_order(stateful, task_hash), replicas)
    blocked: set[tuple[str, str]] = set()
    queue = PriorityQueue(lambda client, task: not client.has(task) and not blocked & set(client.tags.items()))
    for task in stateful:
        for host in [client for client in clients if task in client.active]:
            queue.offer_all(clients)
            blocked.clear()
            used, last = 1, host
            while True:
                for key, value in last.tags.items():
                    if key not in keys:
                        continue
                    if len(values[key]) <= used:
                        blocked -= {(key, any_value) for any_value in values[key]}
                    else:
                        blocked.add((key, value))
                found = queue.poll(task)
                if found is None:
                    break
                found.standby.add(task)
                used, last = used + 1, found
                remaining[task] -= 1
                if remaining[task] <= 0:
                    del remaining[task]
                    break
    blocked.clear()
    queue.offer_all(clients)
    for task, missing in remaining.items():
        fill(queue, task, missing)


def has_standby(task: TaskId) -> Callable[[Client], bool]:
    return lambda client: task in client.standby


class Movement:
    """A task that moves to a client that is not ready for it."""

    def __init__(self, task: TaskId, dest: Client) -> None:
        self.task = task
        self.dest = dest


class Movements:
    """Active, then standby movements."""

    def __init__(self, problem: AssignmentProblem, clients: list[Client], stateful: list[TaskId]) -> None:
        acceptable = problem.configs.acceptable_recovery_lag
        self.clients = clients
        self.budget = problem.configs.max_warmup_replicas
        self.warmups: set[tuple[ProcessId, TaskId]] = set()
        self.caught_up = {
            task: {
                client.id
                for client in clients
                if acceptable == UNLIMITED or client.lag(task) == -2 or 0 <= client.lag(task) <= acceptable
            }
            for task in stateful
        }
        self.by_lag = {task: self.ranked(task) for task in stateful}

    def ranked(self, task: TaskId) -> list[Client]:
        return sorted(self.clients, key=lambda client: (client.lag(task), client.id))

    def needs_move(self, task: TaskId, client: Client) -> bool:
        if client.id in self.caught_up[task]:
            return False
        return self.by_lag[task][0].lag(task) < client.lag(task)

    def queue(self) -> PriorityQueue:
        queue = PriorityQueue(lambda client, task: client.id in self.caught_up[task])
        queue.offer_all(self.clients)
        return queue

    def most_caught_up(self, move: Movement, ok: Callable[[Client], bool]) -> Client | None:
        for client in self.by_lag[move.task]:
            if client is move.dest:
                return None
            if ok(client):
                return client
        return None

    def plan(self, role: Callable[[Client], set[TaskId]]) -> BinaryHeap[Movement]:
        heap: BinaryHeap[Movement] = BinaryHeap(lambda move: (len(self.caught_up[move.task]), move.task))
        for client in self.clients:
            for task in sorted(role(client)):
                if (client.id, task) not in self.warmups and self.needs_move(task, client):
                    heap.push(Movement(task, client))
        return heap

    def run(self) -> int:
        moves = self.plan(lambda client: client.active)
        planned = len(moves)
        queue = self.queue()
        while len(moves):
            move = moves.pop()
            task = move.task
            src = queue.poll(task, has_standby(task))
            src = src or queue.poll(task) or self.most_caught_up(move, lambda _client: True)
            assert src is not None
            if task in src.standby:
                src.standby.remove(task)
                move.dest.active.remove(task)
                move.dest.standby.add(task)
            else:
                move.dest.active.remove(task)
                if self.budget > 0:
                    move.dest.standby.add(task)
                    self.warmups.add((move.dest.id, task))
                self.budget -= 1
            src.active.add(task)
            queue.offer_all([src, move.dest])
        return planned + self.move_standbys()

    def move_standbys(self) -> int:
        moves, queue, executed = self.plan(lambda client: client.standby), self.queue(), 0
        while len(moves):
            move = moves.pop()

            def free(client: Client, task: TaskId = move.task) -> bool:
                return not client.has(task)

            src = queue.poll(move.task, free) or self.most_caught_up(move, free)
            if src is None:
                continue
            src.standby.add(move.task)
            if self.budget <= 0:
                move.dest.standby.remove(move.task)
            self.budget -= 1
            queue.offer_all([src, move.dest])
            executed += 1
        return executed
