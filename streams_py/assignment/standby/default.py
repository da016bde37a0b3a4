"""Standby placement by load alone (Kafka Streams' ``DefaultStandbyTaskAssignor``).

For one task after the other, each standby goes to the least loaded client without the task. Ties go to the lowest
process id. The client is put back into the queue with its new load before the next task. The result is not balanced;
the high-availability assignor balances it afterwards.

No client's load changes while it is in the queue. So the order is total, and any priority queue returns the same
clients as Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace

from streams_py.assignment.assignors.cluster import Cluster
from streams_py.assignment.problem import Note, NoteKind


def assign_default_standbys(cluster: Cluster, tasks: Iterable[int], replicas: int) -> list[Note]:
    """Place ``replicas`` standbys of each task in the given order, if there are enough clients."""
    return fill_by_load(cluster, ((task, replicas) for task in tasks), replicas)


def fill_by_load(cluster: Cluster, remaining: Iterable[tuple[int, int]], replicas: int) -> list[Note]:
    """Place the given number of standbys for each (task, number).

    Returns notes for tasks that could not get all of their standbys.
    """
    notes: list[Note] = []
    queue = cluster.keys()
    heapify(queue)
    count, steps, size = cluster.count, cluster.key_steps, len(cluster)
    for task, missing in remaining:
        owner, hosts = cluster.active[task], cluster.standby[task]
        aside: list[int] = []
        while missing > 0 and queue:
            key = queue[0]
            client = key % size
            if client == owner or client in hosts:
                aside.append(heappop(queue))  # it has the task, maybe as the last standby placed
                continue
            hosts += (client,)
            count[client] += 1
            heapreplace(queue, key + steps[client])
            missing -= 1
        cluster.standby[task] = hosts
        for key in aside:
            heappush(queue, key)
        if missing > 0:
            notes.append(not_enough_clients(cluster, task, missing, replicas))
    return notes


def not_enough_clients(cluster: Cluster, task: int, missing: int, replicas: int) -> Note:
    """Return the warning for standbys that no client is left for."""
    name = cluster.tasks[task]
    return Note(
        NoteKind.NOT_ENOUGH_CLIENTS,
        name,
        f"cannot place {missing} of {replicas} standby replicas of task {name}: every client has the task already; "
        f"start more application instances or lower num.standby.replicas",
    )
