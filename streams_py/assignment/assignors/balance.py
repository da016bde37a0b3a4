"""Balancing of tasks over threads (Kafka Streams' ``balanceTasksOverThreads``).

For every ordered pair of clients, tasks move from the first to the second client, lowest id first. Tasks move as long
as this brings the two loads closer together without reversing their order. Loads count active and standby tasks alike,
whichever role is moved.

The rule "the move shrinks the difference and does not reverse it" is, for whole counts and positive capacities, the
same as ``(count_src - 1) / cap_src >= (count_dst + 1) / cap_dst`` in doubles. So a source whose left side is below the
smallest right side has no partner at all, and whole rows of the pair loop are skipped.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable

from streams_py.assignment.assignors.cluster import Cluster


def balance_active(cluster: Cluster) -> None:
    """Balance active tasks. No standbys may have been placed yet."""
    active = cluster.active

    def move(task: int, _src: int, dst: int) -> bool:
        active[task] = dst
        return True

    _balance(cluster, cluster.active_lists, move, None)


def balance_standby(cluster: Cluster, may_move: Callable[[int, int], bool] | None) -> None:
    """Balance standbys. ``may_move(src, dst)`` restricts the pairs; None allows every pair."""
    active, standby = cluster.active, cluster.standby

    def move(task: int, src: int, dst: int) -> bool:
        hosts = standby[task]
        if dst in hosts or active[task] == dst:
            return False
        standby[task] = (*[host for host in hosts if host != src], dst)
        return True

    _balance(cluster, cluster.standby_lists, move, may_move)


def _balance(
    cluster: Cluster,
    lists: Callable[[], list[list[int]]],
    move: Callable[[int, int, int], bool],
    may_move: Callable[[int, int], bool] | None,
) -> None:
    count, capacity = cluster.count, cluster.capacity
    clients = range(len(cluster))
    after_giving = [(n - 1) / cap for n, cap in zip(count, capacity)]
    after_getting = [(n + 1) / cap for n, cap in zip(count, capacity)]
    if not clients or max(after_giving) < min(after_getting):
        return
    tasks_of = lists()

    def give_from(src: int, dst: int) -> bool:
        kept: list[int] = []
        queue = tasks_of[src]
        position = 0
        while position < len(queue) and after_giving[src] >= after_getting[dst]:
            task = queue[position]
            position += 1
            if not move(task, src, dst):
                kept.append(task)
                continue
            insort(tasks_of[dst], task)
            for client, change in ((src, -1), (dst, 1)):
                count[client] += change
                after_giving[client] = (count[client] - 1) / capacity[client]
                after_getting[client] = (count[client] + 1) / capacity[client]
        if len(kept) == position:
            return False
        tasks_of[src] = kept + queue[position:]
        return True

    moved = True
    while moved:
        moved = False
        least = min(after_getting)
        for src in clients:
            if after_giving[src] < least:
                continue
            gave = False
            # While src gives tasks away its load only falls, so this list has all partners that it can have.
            for dst in [d for d in clients if after_getting[d] <= after_giving[src]]:
                if after_giving[src] >= after_getting[dst] and (may_move is None or may_move(src, dst)):
                    gave |= give_from(src, dst)
            if gave:
                moved = True
                least = min(after_getting)
