"""From the desired placement to one that does not interrupt processing (KIP-441).

A client that is to run a task but is far behind would have to restore first. So a *caught-up* client runs it meanwhile
and the desired client gets a copy to warm up. Likewise a standby that is far behind keeps a better one alive elsewhere.
``max.warmup.replicas`` bounds the extra copies of one rebalance; when the budget is used up the desired client gets
nothing and has to wait for a later rebalance. Each movement means that the placement is not final yet, so another
(probing) rebalance follows.

Answers to Kafka Streams' ``TaskMovement``. Lags: -2 is "running here", -3 "unknown"; unknown is never caught up, yet as
the smallest number it ranks first among the clients that are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from streams_py.assignment.assignors.cluster import Cluster
from streams_py.assignment.assignors.movement_queue import MovementQueue
from streams_py.assignment.configs import ACCEPTABLE_RECOVERY_LAG_MAX
from streams_py.assignment.heap import remove_at, rise
from streams_py.assignment.problem import LATEST_OFFSET
from streams_py.errors import IllegalStateError

__all__ = ["LagTable", "Movement", "MovementPlan"]


class LagTable:
    """Who is how far behind: the lags that were reported, and one end-offset sum per task for everybody else."""

    __slots__ = ("acceptable", "clients", "end", "reported")

    def __init__(self, reported: list[dict[int, int] | None], end: list[int], *, clients: int, acceptable: int) -> None:
        """``reported[t]`` maps client numbers to lags in records, or is None."""
        self.reported = reported
        self.end = end
        self.clients = clients
        self.acceptable = acceptable

    def lag(self, task: int, client: int) -> int:
        """Lag of a client on a task."""
        lags = self.reported[task]
        return self.end[task] if lags is None else lags.get(client, self.end[task])

    def is_caught_up(self, task: int, client: int) -> bool:
        """Whether the client may run the task at once."""
        lag = self.lag(task, client)
        return lag == LATEST_OFFSET or 0 <= lag <= self.acceptable

    def needs_move(self, task: int, client: int) -> bool:
        """Whether the client is not caught up and some other client is strictly nearer to it."""
        lags = self.reported[task]
        if lags is None:
            return False
        end = self.end[task]
        lag = lags.get(client, end)
        if lag == LATEST_OFFSET or 0 <= lag <= self.acceptable:
            return False
        # The shared end-offset sum counts as a lag only if somebody really did not report.
        return min(lags.values()) < lag or (len(lags) < self.clients and end < lag)

    def caught_up_count(self, task: int) -> int:
        """Number of caught-up clients."""
        lags, acceptable = self.reported[task] or {}, self.acceptable
        count = sum(lag == LATEST_OFFSET or 0 <= lag <= acceptable for lag in lags.values())
        if 0 <= self.end[task] <= acceptable:
            count += self.clients - len(lags)
        return count

    def caught_up(self, task: int) -> Iterable[int]:
        """The caught-up clients, in no particular order."""
        lags, acceptable = self.reported[task] or {}, self.acceptable
        if not 0 <= self.end[task] <= acceptable:
            return [c for c, lag in lags.items() if lag == LATEST_OFFSET or 0 <= lag <= acceptable]
        behind = {c for c, lag in lags.items() if lag != LATEST_OFFSET and not 0 <= lag <= acceptable}
        return [c for c in range(self.clients) if c not in behind]

    def most_caught_up(self, task: int, dest: int, ok: Callable[[int], bool]) -> int | None:
        """First client by (lag, id) that is ``ok``, looking no further than ``dest``; its lag may equal dest's."""
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
    """What was decided for one task: ``source`` keeps or takes it while ``dest`` waits or warms up."""

    task: int
    source: int
    dest: int
    active: bool
    swap: bool
    warms_up: bool


class MovementPlan:
    """Active movements first, then standby movements, on one warm-up budget."""

    def __init__(self, cluster: Cluster, lags: LagTable, *, max_warmup_replicas: int) -> None:
        self.cluster = cluster
        self.lags = lags
        self.budget = max_warmup_replicas
        self.warmups: set[tuple[int, int]] = set()
        self.movements: list[Movement] = []

    def run(self) -> int:
        """Change the cluster; the number of movements, 0 when the placement is final."""
        if self.lags.acceptable == ACCEPTABLE_RECOVERY_LAG_MAX:
            return 0
        reported = [task for task, lags in enumerate(self.lags.reported) if lags is not None]
        self._move_actives(reported)
        self._move_standbys(reported)
        return len(self.movements)

    def _queue(self) -> MovementQueue:
        cluster = self.cluster
        return MovementQueue(cluster.keys(), cluster.spread_hashes())

    # -- actives ---------------------------------------------------------------------------------------------

    def _move_actives(self, reported: list[int]) -> None:
        cluster, lags = self.cluster, self.lags
        # One movement per task, so (number of caught-up clients, task) is distinct and a sort is Kafka's heap.
        planned = sorted(
            (lags.caught_up_count(task), task) for task in reported if lags.needs_move(task, cluster.active[task])
        )
        if not planned:
            return
        queue = self._queue()
        for _, task in planned:
            dest, standby = cluster.active[task], cluster.standby[task]
            source = queue.poll([c for c in standby if lags.is_caught_up(task, c)])
            polled = source is not None
            if source is None:
                source = queue.poll(list(lags.caught_up(task)))
                polled = source is not None
            if source is None:
                source = lags.most_caught_up(task, dest, lambda _client: True)
            if source is None:
                raise IllegalStateError(f"task {cluster.tasks[task]} was to move but no client is nearer to caught up")
            before = cluster.count[source], cluster.count[dest]
            if source in standby:
                self._swap(task, source, dest)
            else:
                self._move(task, source, dest)
            self._settle(queue, source, dest, before, polled=polled)

    def _settle(self, queue: MovementQueue, source: int, dest: int, before: tuple[int, int], *, polled: bool) -> None:
        keys, count, cluster = queue.keys, self.cluster.count, self.cluster
        src_key = keys[source] if count[source] == before[0] else cluster.key(source)
        dest_key = keys[dest] if count[dest] == before[1] else cluster.key(dest)
        queue.put_back(source, src_key, dest, dest_key, polled=polled)

    def _swap(self, task: int, source: int, dest: int) -> None:
        """The source has a standby: the two exchange roles. Costs no warm-up, and makes none."""
        hosts = self.cluster.standby[task]
        hosts.discard(source)
        hosts.add(dest)
        self.cluster.active[task] = source
        self.movements.append(Movement(task, source, dest, active=True, swap=True, warms_up=False))

    def _move(self, task: int, source: int, dest: int) -> None:
        cluster = self.cluster
        cluster.active[task] = source
        cluster.count[source] += 1
        warms_up = self.budget > 0
        if warms_up:
            cluster.standby[task].add(dest)
            self.warmups.add((task, dest))
        else:
            cluster.count[dest] -= 1
        self.budget -= 1  # also when it was used up: only its sign matters
        self.movements.append(Movement(task, source, dest, active=True, swap=False, warms_up=warms_up))

    # -- standbys --------------------------------------------------------------------------------------------

    def _move_standbys(self, reported: list[int]) -> None:
        cluster, lags = self.cluster, self.lags
        planned = [
            (dest, task)
            for task in reported
            for dest in cluster.standby[task]
            if (task, dest) not in self.warmups and lags.needs_move(task, dest)
        ]
        if not planned:
            return
        queue = self._queue()
        for task, dest in _standby_order(planned, lags):
            source, polled = self._standby_source(queue, task, dest)
            if source is None:
                continue
            before = cluster.count[source], cluster.count[dest]
            cluster.place_standby(task, source)
            warms_up = self.budget > 0
            if not warms_up:
                cluster.standby[task].discard(dest)
                cluster.count[dest] -= 1
            self.budget -= 1
            self._settle(queue, source, dest, before, polled=polled)
            self.movements.append(Movement(task, source, dest, active=False, swap=False, warms_up=warms_up))

    def _standby_source(self, queue: MovementQueue, task: int, dest: int) -> tuple[int | None, bool]:
        active, standby = self.cluster.active[task], self.cluster.standby[task]

        def free(client: int) -> bool:
            return client != active and client not in standby

        source = queue.poll([c for c in self.lags.caught_up(task) if free(c)])
        if source is not None:
            return source, True
        return self.lags.most_caught_up(task, dest, free), False


def _standby_order(planned: list[tuple[int, int]], lags: LagTable) -> list[tuple[int, int]]:
    """(task, dest) in the order of Kafka's movement heap, filled client by client, tasks ascending.

    Several movements of one task have equal keys; then the array's own moves decide, and no sort will do.
    """
    planned.sort()
    size = {task: lags.caught_up_count(task) for task in {task for _, task in planned}}
    if len(size) == len(planned):
        return sorted(((task, dest) for dest, task in planned), key=lambda m: (size[m[0]], m[0]))
    heap: list[_Planned] = []
    for dest, task in planned:
        heap.append(_Planned((size[task], task), task, dest))
        rise(heap, len(heap) - 1)
    order = []
    while heap:
        order.append((heap[0].task, heap[0].dest))
        remove_at(heap, 0)
    return order


class _Planned:
    """A standby movement in the heap: compares by its key alone."""

    __slots__ = ("dest", "key", "task")

    def __init__(self, key: tuple[int, int], task: int, dest: int) -> None:
        self.key = key
        self.task = task
        self.dest = dest

    def __lt__(self, other: _Planned) -> bool:
        return self.key < other.key
