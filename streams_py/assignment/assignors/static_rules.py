"""The placement rules of the static assignor.

A *static* client has a list of tasks, a *wildcard* client has none. A static task is on the list of at least one
current client; all other tasks are wildcard tasks. The rules are:

* A static task runs only on a client that lists it: on its previous owner, otherwise on the least loaded of the clients
  that list it and have its standby, otherwise on the least loaded client that lists it. Tasks that few clients
  list choose first.
* Wildcard tasks run only on wildcard clients, evenly over their threads. They stay with their previous owner up to its
  fair share. The remaining tasks go to clients below their share, preferably to clients with the task's standby.
* A standby goes to another client that lists the task, otherwise to a wildcard client as a backup for the time when no
  client lists the task. A static client never gets the standby of a task that it does not list.
* Without wildcard clients no client runs the wildcard tasks, unless they may *spill* over to the static clients.

The placement is stable: with the result as previous state, the next result is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from streams_protocol import LATEST_OFFSET
from streams_protocol.types import TaskId
from streams_py.assignment.explanation import Rule


@dataclass(frozen=True, slots=True)
class StaticClient:
    """A client. ``listed`` is None for a wildcard client.

    ``lag`` returns the lag of a task with a changelog, in records.
    """

    threads: int
    listed: Collection[TaskId] | None
    previous_active: Collection[TaskId]
    previous_standby: Collection[TaskId]
    lag: Callable[[TaskId], int]


@dataclass(frozen=True, slots=True)
class WarmUps:
    """Static tasks stay on a caught-up previous owner while the client that lists them warms up.

    ``acceptable_lag`` is in records. ``at_most`` is the maximum number of warm-ups.
    """

    acceptable_lag: int
    at_most: int


@dataclass(slots=True)
class StaticPlacement:
    """The placement, with client numbers by task.

    Attributes:
        followup: some tasks are not on their final client yet.
        desired: the client that lists the task and is still warming it up.
        rules: the reason for each (task, client), if requested.
    """

    active: dict[TaskId, int] = field(default_factory=dict)
    standby: dict[TaskId, list[int]] = field(default_factory=dict)
    unassigned: list[TaskId] = field(default_factory=list)
    standbys_missing: list[TaskId] = field(default_factory=list)
    followup: bool = False
    desired: dict[TaskId, int] = field(default_factory=dict)
    rules: dict[tuple[TaskId, int], Rule] | None = None


def place_static(
    clients: Sequence[StaticClient],
    tasks: Sequence[TaskId],
    logged: Collection[TaskId],
    *,
    standbys: int,
    spill: bool = False,
    warmups: WarmUps | None = None,
    tell: bool = False,
) -> StaticPlacement:
    """Place ``tasks``, which must be ascending.

    Args:
        clients: in ascending order of their process ids.
        logged: the tasks that have a changelog.
        tell: also return the rules.
    """
    placing = _Placing(clients, tasks, logged, standbys, spill, warmups)
    if tell:
        placing.result.rules = {}
    return placing.run()


class _Placing:
    def __init__(
        self,
        clients: Sequence[StaticClient],
        tasks: Sequence[TaskId],
        logged: Collection[TaskId],
        standbys: int,
        spill: bool,
        warmups: WarmUps | None,
    ) -> None:
        self._clients, self._tasks, self._logged = clients, tasks, logged
        self._standbys, self._spill, self._warmups = standbys, spill, warmups
        self._wild = {number: None for number, client in enumerate(clients) if client.listed is None}
        self._listers = _by_task(clients, lambda client: client.listed or ())
        self._owners = _by_task(clients, lambda client: client.previous_active)
        self._holders = _by_task(clients, lambda client: client.previous_standby)
        self._actives = [0] * len(clients)
        self._copies = [0] * len(clients)
        self.result = StaticPlacement()

    def run(self) -> StaticPlacement:
        static = [task for task in self._tasks if task in self._listers]
        wildcard = [task for task in self._tasks if task not in self._listers]
        for task in sorted(static, key=lambda task: (len(self._listers[task]), task)):
            client = self._lister(task)
            self._run(task, client, self._rule(task, client, Rule.LISTED_OWNER, Rule.LISTED_STANDBY, Rule.LISTED))
        if self._warmups is not None:
            self._wait_for_warmups(static, self._warmups)
        if self._wild:
            self._place_evenly(wildcard)
        elif self._spill and self._clients:
            self._place_spilled(wildcard)
        else:
            self.result.unassigned = wildcard
        if self._standbys:
            self._place_standbys()
        return self.result

    def _run(self, task: TaskId, client: int, rule: Rule) -> None:
        self.result.active[task] = client
        self._note(task, client, rule)
        self._actives[client] += 1
        self._copies[client] += 1

    def _note(self, task: TaskId, client: int, rule: Rule) -> None:
        if self.result.rules is not None:
            self.result.rules[task, client] = rule

    def _rule(self, task: TaskId, client: int, owner: Rule, standby: Rule, other: Rule) -> Rule:
        """Choose the rule by what the client had of the task before."""
        if client in self._owners.get(task, ()):
            return owner
        return standby if client in self._holders.get(task, ()) else other

    def _load(self, client: int) -> tuple[float, int]:
        return self._actives[client] / self._clients[client].threads, client

    def _full_load(self, client: int) -> tuple[float, int]:
        return self._copies[client] / self._clients[client].threads, client

    # -- static tasks ----------------------------------------------------------------------------------------

    def _lister(self, task: TaskId) -> int:
        listers = self._listers[task]
        for owner in self._owners.get(task, ()):
            if owner in listers:
                return owner
        holding = [client for client in self._holders.get(task, ()) if client in listers]
        return min(holding or listers, key=self._load)

    def _wait_for_warmups(self, static: Sequence[TaskId], warmups: WarmUps) -> None:
        left = warmups.at_most
        for task in static:
            chosen = self.result.active[task]
            if task not in self._logged or self._caught_up(chosen, task, warmups):
                continue
            owner = next((c for c in self._owners.get(task, ()) if self._caught_up(c, task, warmups)), None)
            if owner is None:
                continue
            self._actives[chosen] -= 1
            self._copies[chosen] -= 1
            self._run(task, owner, Rule.LISTED_LATER)
            self.result.followup = True
            self.result.desired[task] = chosen
            if left > 0:
                left -= 1
                self._add_standby(task, chosen, Rule.WARMING_UP)

    def _caught_up(self, client: int, task: TaskId, warmups: WarmUps) -> bool:
        lag = self._clients[client].lag(task)
        return lag == LATEST_OFFSET or 0 <= lag <= warmups.acceptable_lag

    # -- wildcard tasks --------------------------------------------------------------------------------------

    def _place_evenly(self, tasks: Sequence[TaskId]) -> None:
        threads = sum(self._clients[client].threads for client in self._wild)
        share = {client: len(tasks) * self._clients[client].threads // threads for client in self._wild}
        self._spread(tasks, share, extras=len(tasks) - sum(share.values()))

    def _place_spilled(self, tasks: Sequence[TaskId]) -> None:
        """Compute shares that even out the uneven load of the static tasks as far as possible."""
        share = dict.fromkeys(range(len(self._clients)), 0)
        heap = [self._load(client) for client in share]
        heapify(heap)
        for _ in tasks:
            client = heap[0][1]
            share[client] += 1
            heapreplace(heap, ((self._actives[client] + share[client]) / self._clients[client].threads, client))
        self._spread(tasks, share, extras=0)

    def _spread(self, tasks: Sequence[TaskId], share: dict[int, int], *, extras: int) -> None:
        """Keep tasks where they were up to each client's share, and place the rest.

        ``extras`` is the number of clients that get one task more than their share.
        """
        owned: dict[int, list[TaskId]] = {client: [] for client in share}
        released = []
        for task in tasks:
            owner = next((client for client in self._owners.get(task, ()) if client in share), None)
            if owner is None:
                released.append(task)
            else:
                owned[owner].append(task)
        without_extra = []
        for client, own in owned.items():
            if extras and len(own) > share[client]:
                share[client] += 1
                extras -= 1
            else:
                without_extra.append(client)
            released += own[share[client] :]
            for task in own[: share[client]]:
                self._run(task, client, Rule.UNLISTED_OWNER)
        room = {client: share[client] - len(own) for client, own in owned.items() if share[client] > len(own)}
        heap = [self._load(client) for client in room]
        heapify(heap)
        more: list[tuple[float, int]] | None = None
        for task in sorted(released):
            chosen = self._with_room(task, room, heap)
            if chosen is None:
                if more is None:
                    more = sorted((self._load(other) for other in without_extra), reverse=True)
                chosen = more.pop()[1]
            self._run(task, chosen, self._rule(task, chosen, Rule.UNLISTED, Rule.FORMER_STANDBY, Rule.UNLISTED))

    def _with_room(self, task: TaskId, room: dict[int, int], heap: list[tuple[float, int]]) -> int | None:
        """Reserve a place on a client below its share and return the client, or None.

        Prefers clients with the task's standby, otherwise the least loaded client.
        """
        chosen = min((c for c in self._holders.get(task, ()) if room.get(c)), key=self._load, default=None)
        while chosen is None and heap:
            client = heap[0][1]
            if not room[client]:
                heappop(heap)
            elif heap[0] != self._load(client):  # its load has changed
                heapreplace(heap, self._load(client))
            else:
                chosen = client
        if chosen is not None:
            room[chosen] -= 1
        return chosen

    # -- standbys --------------------------------------------------------------------------------------------

    def _place_standbys(self) -> None:
        heap = [self._full_load(client) for client in self._wild]
        heapify(heap)
        for task in self._tasks:
            if task in self._logged and task in self.result.active:
                self._place_standbys_of(task, heap)

    def _place_standbys_of(self, task: TaskId, heap: list[tuple[float, int]]) -> None:
        aside: list[int] = []
        for _ in range(self._standbys):
            free = [client for client in self._listers.get(task, ()) if not self._has(client, task)]
            least = min(free, key=self._full_load) if free else self._least_wild(task, heap, aside)
            if least is None:
                self.result.standbys_missing.append(task)
                break
            chosen = self._holder(task, free or self._wild, least)
            rule = self._rule(task, chosen, Rule.PREVIOUS_OWNER, Rule.FORMER_STANDBY, Rule.BACKUP)
            self._add_standby(task, chosen, rule)
        for client in aside:
            heappush(heap, self._full_load(client))

    def _least_wild(self, task: TaskId, heap: list[tuple[float, int]], aside: list[int]) -> int | None:
        while heap:
            client = heap[0][1]
            if heap[0] != self._full_load(client):  # its load has changed
                heapreplace(heap, self._full_load(client))
            elif self._has(client, task):
                heappop(heap)
                aside.append(client)
            else:
                return client
        return None

    def _holder(self, task: TaskId, candidates: Collection[int], least: int) -> int:
        """Return a client that already has the state, or ``least`` if their loads are too high.

        The load of a client with state may exceed the load of the least loaded candidate by at most one task.
        """
        bound = self._full_load(least)[0]
        return min(
            (
                client
                for client in (*self._owners.get(task, ()), *self._holders.get(task, ()))
                if (self._copies[client] - 1) / self._clients[client].threads <= bound
                and client in candidates
                and not self._has(client, task)
            ),
            key=self._full_load,
            default=least,
        )

    def _has(self, client: int, task: TaskId) -> bool:
        return self.result.active.get(task) == client or client in self.result.standby.get(task, ())

    def _add_standby(self, task: TaskId, client: int, rule: Rule) -> None:
        self._note(task, client, rule)
        self.result.standby.setdefault(task, []).append(client)
        self._copies[client] += 1


def _by_task(
    clients: Sequence[StaticClient], tasks_of: Callable[[StaticClient], Collection[TaskId]]
) -> dict[TaskId, list[int]]:
    """Return the clients that name each task, ascending."""
    found: dict[TaskId, list[int]] = {}
    for number, client in enumerate(clients):
        for task in tasks_of(client):
            found.setdefault(task, []).append(number)
    return found
