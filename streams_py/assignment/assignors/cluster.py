"""The working state of a placement, with clients and stateful tasks as numbers.

Numbers follow the order of the ids (clients by process id, tasks by task id). So ascending numbers are ascending ids,
and the ids themselves are used only for input and output. The size of all structures grows with the number of task
*copies*, never with tasks times clients: 100,000 tasks on 1,000 clients are an ordinary input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import lcm

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.java_order import process_hash
from streams_py.assignment.problem import AssignmentProblem, ClientInput


class Cluster:
    """Clients with their load, and stateful tasks with their hosts.

    ``count[c]`` is the number of tasks of client c in either role. ``active[t]`` is a client or -1. ``standby[t]`` are
    clients; no code whose result depends on the order iterates them. A task has few standbys, and a tuple takes a
    quarter of the memory of a set.
    """

    __slots__ = ("active", "capacity", "count", "hashes", "key_steps", "process_ids", "standby", "tasks", "uniform")

    def __init__(self, process_ids: Sequence[ProcessId], capacity: Sequence[int], tasks: Sequence[TaskId]) -> None:
        """Ids must be ascending, capacities at least 1."""
        self.process_ids = process_ids
        self.capacity = list(capacity)
        self.tasks = tasks
        self.count = [0] * len(process_ids)
        self.active = [-1] * len(tasks)
        self.standby: list[tuple[int, ...]] = [()] * len(tasks)
        self.uniform = len(set(self.capacity)) <= 1
        common, size = lcm(*set(self.capacity)), len(process_ids)
        self.key_steps = [common // of_client * size for of_client in self.capacity]
        """Increase of a client's key for each additional task."""
        self.hashes: list[int] | None = None

    def __len__(self) -> int:
        return len(self.process_ids)

    def key(self, client: int) -> int:
        """Return a client's sort key by (load, process id), which also identifies the client.

        Loads are fractions. They are brought to a common denominator here, because whole numbers compare exactly and
        faster.
        """
        return self.count[client] * self.key_steps[client] + client

    def keys(self) -> list[int]:
        """Return the keys of all clients."""
        return [count * step + client for client, (count, step) in enumerate(zip(self.count, self.key_steps))]

    def client_of(self, key: int) -> int:
        """Return the client of a key."""
        return key % len(self.process_ids)

    def take_keys(self, keys: Sequence[int]) -> None:
        """Set every client's count from its key."""
        self.count[:] = [key // step for key, step in zip(keys, self.key_steps)]

    def load(self, client: int) -> float:
        """Return the average number of tasks per thread of the client."""
        return self.count[client] / self.capacity[client]

    def holds(self, client: int, task: int) -> bool:
        """Whether the client has the task in either role."""
        return self.active[task] == client or client in self.standby[task]

    def spread_hashes(self) -> list[int]:
        """Return the mixed hash of each process id, as a Java hash table uses it; computed once."""
        if self.hashes is None:
            raw = [process_hash(process_id) for process_id in self.process_ids]
            self.hashes = [h ^ (h >> 16) for h in raw]
        return self.hashes

    def place_standby(self, task: int, client: int) -> None:
        """Add a standby. The client must not have the task."""
        self.standby[task] += (client,)
        self.count[client] += 1

    def remove_standby(self, task: int, client: int) -> None:
        """Remove a standby."""
        self.standby[task] = tuple(host for host in self.standby[task] if host != client)
        self.count[client] -= 1

    def active_lists(self) -> list[list[int]]:
        """Return the active tasks of each client, ascending."""
        lists: list[list[int]] = [[] for _ in self.process_ids]
        for task, client in enumerate(self.active):
            if client >= 0:
                lists[client].append(task)
        return lists

    def standby_lists(self) -> list[list[int]]:
        """Return the standby tasks of each client, ascending."""
        lists: list[list[int]] = [[] for _ in self.process_ids]
        for task, clients in enumerate(self.standby):
            for client in clients:
                lists[client].append(task)
        return lists


def reported_lags(
    problem: AssignmentProblem, clients: Iterable[ClientInput], number_of: Mapping[TaskId, int]
) -> list[dict[int, int] | None]:
    """Return, for each task number, the lags by client that reported it, or None.

    Clients are numbered in the given order.
    """
    reported: list[dict[int, int] | None] = [None] * len(number_of)
    for client, given in enumerate(clients):
        for task, lag in given.lags.items():
            number = number_of.get(task)
            if number is None:
                continue
            lags = reported[number]
            if lags is None:
                reported[number] = {client: lag}
            else:
                lags[client] = lag
    return reported
