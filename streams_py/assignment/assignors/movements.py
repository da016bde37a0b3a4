"""Movements from the desired placement to one that does not interrupt processing (KIP-441).

A desired client that is far behind would have to restore a task before it can run it. So a *caught-up* client runs the
task in the meantime, and the desired client gets a copy to warm up. Likewise, for a standby that is far behind, a
client with a smaller lag keeps a standby in the meantime. ``max.warmup.replicas`` bounds the additional copies of one
rebalance. When this budget is used up, the desired client gets no copy and has to wait for a later rebalance. Each
movement means that the placement is not final, so a probing rebalance follows.

Source: Kafka Streams' ``TaskMovement``. Lags: -2 means "running here", -3 means "unknown". An unknown lag is never
caught up. But as the smallest number it comes first among the clients that are not caught up.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import NamedTuple, TypeAlias

from streams_protocol import LATEST_OFFSET
from streams_py.assignment.assignors.cluster import Cluster
from streams_py.assignment.assignors.movement_queue import MovementQueue
from streams_py.assignment.configs import ACCEPTABLE_RECOVERY_LAG_MAX
from streams_py.assignment.heap import remove_at, rise
from streams_py.errors import IllegalStateError

_Behind: TypeAlias = tuple[int, int, int, "list[int] | None"]
"""(Number of caught-up clients, task, client that is behind, caught-up clients or None).

The list of caught-up clients is None if it is too long.
"""


class LagTable:
    """The lag of every client on every stateful task.

    It stores the reported lags, and one end-offset sum per task for all clients that did not report the task.
    """

    __slots__ = ("acceptable", "clients", "end", "reported")

    def __init__(self, reported: list[dict[int, int] | None], end: list[int], *, clients: int, acceptable: int) -> None:
        """``reported[t]`` maps client numbers to lags in records, or is None."""
        self.reported = reported
        self.end = end
        self.clients = clients
        self.acceptable = acceptable

    def lag(self, task: int, client: int) -> int:
        """Return the lag of a client on a task."""
        lags = self.reported[task]
        return self.end[task] if lags is None else lags.get(client, self.end[task])

    def is_caught_up(self, task: int, client: int) -> bool:
        """Whether the client can run the task immediately."""
        lag = self.lag(task, client)
        return lag == LATEST_OFFSET or 0 <= lag <= self.acceptable

    def behind(self, hosts: Iterable[Iterable[int]]) -> list[_Behind]:
        """Return the hosts that are not caught up although another client is strictly closer."""
        acceptable, clients = self.acceptable, self.clients
        found: list[_Behind] = []
        for task, (lags, of_task, end) in enumerate(zip(self.reported, hosts, self.end)):
            if lags is None:
                continue
            for client in of_task:
                lag = lags.get(client, end)
                if lag == LATEST_OFFSET or 0 <= lag <= acceptable:
                    continue
                # The shared end-offset sum counts as a lag only if some client did not report the task.
                if min(lags.values()) < lag or (end < lag and len(lags) < clients):
                    if 0 <= end <= acceptable:  # nearly all clients: too many to keep for each task
                        found.append((len(self.caught_up(task)), task, client, None))
                    else:
                        near = [c for c, lag in lags.items() if lag == LATEST_OFFSET or 0 <= lag <= acceptable]
                        found.append((len(near), task, client, near))
        return found

    def with_state(self, task: int) -> list[int]:
        """Return the clients that have at least some of the task's state."""
        limit = max(self.end[task], self.acceptable + 1)
        lags = self.reported[task] or {}
        return [client for client, lag in lags.items() if lag == LATEST_OFFSET or 0 <= lag < limit]

    def caught_up(self, task: int) -> list[int]:
        """Return the caught-up clients."""
        lags, acceptable = self.reported[task] or {}, self.acceptable
        if not 0 <= self.end[task] <= acceptable:
            return [c for c, lag in lags.items() if lag == LATEST_OFFSET or 0 <= lag <= acceptable]
        behind = {c for c, lag in lags.items() if lag != LATEST_OFFSET and not 0 <= lag <= acceptable}
        return [c for c in range(self.clients) if c not in behind]

    def most_caught_up(self, task: int, dest: int, ok: Callable[[int], bool]) -> int | None:
        """Return the first client by (lag, id) that is ``ok`` and comes before ``dest``.

        Its lag may equal the lag of dest.
        """
        lags, end = self.reported[task] or {}, self.end[task]
        best: tuple[int, int] = (lags.get(dest, end), dest)
        found = None
        for client, lag in lags.items():
            if (lag, client) < best and ok(client):
                best, found = (lag, client), client
        if (end, -1) < best:
            for client in range(self.clients):
                if (end, client) >= best:
                    break
                if client not in lags and ok(client):
                    return client
        return found


class Movement(NamedTuple):
    """A decision for one task: ``source`` keeps or takes it while ``dest`` waits or warms up."""

    task: int
    source: int
    dest: int
    active: bool
    swap: bool
    warms_up: bool


class MovementPlan:
    """Movements of active tasks first, then of standbys, with one warm-up budget."""

    def __init__(self, cluster: Cluster, lags: LagTable, *, max_warmup_replicas: int, record: bool = False) -> None:
        """``record``: keep every movement for an explanation."""
        self.cluster = cluster
        self.lags = lags
        self.budget = max_warmup_replicas
        self.warmups: list[tuple[int, int]] = []
        """(task, client) of every added copy, in order."""
        self.movements: list[Movement] = []
        """All movements in order, if they are recorded."""
        self._record = record

    def run(self) -> int:
        """Change the cluster and return the number of movements; 0 if the placement is final."""
        if self.lags.acceptable == ACCEPTABLE_RECOVERY_LAG_MAX:
            return 0
        return self._move_actives() + self._move_standbys()

    # -- actives ---------------------------------------------------------------------------------------------

    def _move_actives(self) -> int:
        cluster, lags = self.cluster, self.lags
        active, standbys = cluster.active, cluster.standby
        # One movement per task, so (number of caught-up clients, task) is distinct and a sort is Kafka's heap.
        planned = sorted(lags.behind(zip(active)))
        if not planned:
            return 0
        queue = MovementQueue(cluster.keys(), cluster.spread_hashes())
        keys, steps = queue.keys, cluster.key_steps
        for _, task, dest, near in planned:
            hosts = standbys[task]
            caught_up = lags.caught_up(task) if near is None else near
            source = queue.poll([c for c in caught_up if c in hosts], caught_up)
            polled = source is not None
            if source is None:
                source = lags.most_caught_up(task, dest, lambda _client: True)
                if source is None:
                    raise IllegalStateError(
                        f"task {cluster.tasks[task]} has to move, but no client is closer to caught up"
                    )
            active[task] = source
            src_key, dest_key = keys[source], keys[dest]
            swap = source in hosts
            if swap:  # the two clients exchange roles, which needs no warm-up
                standbys[task] = (*[host for host in hosts if host != source], dest)
            else:
                src_key += steps[source]
                if self._pays_for(task, dest):
                    standbys[task] = (*hosts, dest)
                else:
                    dest_key -= steps[dest]
            queue.put_back(source, src_key, dest, dest_key, polled)
            if self._record:
                self.movements.append(Movement(task, source, dest, True, swap, not swap and dest in standbys[task]))
        cluster.take_keys(keys)
        return len(planned)

    def _pays_for(self, task: int, dest: int) -> bool:
        """Whether the warm-up budget allows another copy on ``dest``; uses up the budget."""
        self.budget -= 1  # also below 0: only the sign matters
        if self.budget < 0:
            return False
        self.warmups.append((task, dest))
        return True

    # -- standbys --------------------------------------------------------------------------------------------

    def _move_standbys(self) -> int:
        cluster, lags = self.cluster, self.lags
        active, standbys = cluster.active, cluster.standby
        warming_up = frozenset(self.warmups)
        planned = [behind for behind in lags.behind(standbys) if (behind[1], behind[2]) not in warming_up]
        if not planned:
            return 0
        queue = MovementQueue(cluster.keys(), cluster.spread_hashes())
        keys, steps = queue.keys, cluster.key_steps
        done = 0
        for _, task, dest, near in _standby_order(planned):
            owner, hosts = active[task], standbys[task]
            caught_up = lags.caught_up(task) if near is None else near
            source = queue.poll([c for c in caught_up if c != owner and c not in hosts])
            polled = source is not None
            if source is None:
                source = lags.most_caught_up(task, dest, partial(_is_free, owner, hosts))
                if source is None:
                    continue
            done += 1
            dest_key = keys[dest]
            if self._pays_for(task, dest):
                standbys[task] = (*hosts, source)
            else:
                standbys[task] = (*[host for host in hosts if host != dest], source)
                dest_key -= steps[dest]
            queue.put_back(source, keys[source] + steps[source], dest, dest_key, polled)
            if self._record:
                self.movements.append(Movement(task, source, dest, False, False, dest in standbys[task]))
        cluster.take_keys(keys)
        return done


def _is_free(owner: int, hosts: Container[int], client: int) -> bool:
    return client != owner and client not in hosts


def _standby_order(planned: list[_Behind]) -> list[_Behind]:
    """Return the order of Kafka's movement heap, filled client by client with ascending tasks.

    Several movements of one task have equal keys. Then the exact moves within the heap's array decide, so a sort is not
    enough.
    """
    if len({behind[1] for behind in planned}) == len(planned):
        return sorted(planned)
    heap: list[_Planned] = []
    for behind in sorted(planned, key=lambda behind: (behind[2], behind[1])):
        heap.append(_Planned(behind))
        rise(heap, len(heap) - 1)
    order = []
    while heap:
        order.append(heap[0].behind)
        remove_at(heap, 0)
    return order


class _Planned:
    """A standby movement in the heap, compared only by its key."""

    __slots__ = ("behind", "key")

    def __init__(self, behind: _Behind) -> None:
        self.behind = behind
        self.key = behind[:2]

    def __lt__(self, other: _Planned) -> bool:
        return self.key < other.key
