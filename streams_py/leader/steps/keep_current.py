"""The assignment after the application's own assignor failed: every member keeps its tasks.

In Apache Kafka Streams the leader's thread fails, and the other members wait for the next rebalance, which fails in the
same way. Here every member keeps the active tasks that it owns and the standbys that it reported. The application
receives the error, and the leader's client requests another rebalance after a delay.

A member owns the partitions that it *claims*. No task moves, so the cooperative rule holds automatically: each
partition stays with the member that claims it. Tasks without an owner (their member is gone, or they were never
assigned) wait for the next attempt. Placing them is the assignor's job, and guessing would hide that it is broken. With
the eager protocol members give up all partitions before they join, and nothing remains to keep. That protocol is used
only during an upgrade from releases before 2.4.
"""

from __future__ import annotations

from collections.abc import Mapping

from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.leader.steps.decode import Group, consumer_order
from streams_py.leader.steps.encode import ClientThreads
from streams_py.leader.steps.state import ClientHistory
from streams_py.leader.steps.tasks import TaskTable
from streams_py.ports import MemberSubscription


def keep_current(
    group: Group,
    histories: Mapping[ProcessId, ClientHistory],
    table: TaskTable,
    members: Mapping[str, MemberSubscription],
    *,
    standbys_max: int,
) -> dict[ProcessId, ClientThreads]:
    """Return the tasks of each consumer according to its subscription.

    A task belongs to the member that claims its partitions. If several members claim them, the member with the newest
    generation owns the task, because the claims of the others are out of date. Standbys are stateful tasks that a
    client reported and runs nowhere as active; the first consumer that reported the task gets it. A client also reports
    old state that is still on its disk. So each task keeps at most ``standbys_max`` standbys
    (``num.standby.replicas``), those with the smallest lag.
    """
    owner = _owners(group, table, members)
    kept = _standbys(group, histories, table, owner, standbys_max)
    threads = {}
    for process_id, client in group.clients.items():
        active: dict[str, list[TaskId]] = {consumer: [] for consumer in client.consumers}
        standby: dict[str, list[TaskId]] = {consumer: [] for consumer in client.consumers}
        for consumer in client.consumers:
            active[consumer] = owner.get(consumer, [])
        taken = {task for mine in active.values() for task in mine}
        for consumer in client.consumers:
            for task in sorted(client.reported[consumer] & kept[process_id]):
                if task not in taken:
                    taken.add(task)
                    standby[consumer].append(task)
        threads[process_id] = ClientThreads(active, standby)
    return threads


def _standbys(
    group: Group,
    histories: Mapping[ProcessId, ClientHistory],
    table: TaskTable,
    owner: Mapping[str, list[TaskId]],
    standbys_max: int,
) -> dict[ProcessId, set[TaskId]]:
    """Return the standbys that each client keeps."""
    running = {
        (process, task) for process, c in group.clients.items() for m in c.consumers for task in owner.get(m, ())
    }
    copies: dict[TaskId, list[tuple[int, ProcessId]]] = {}
    for process_id in sorted(group.clients):
        history = histories[process_id]
        for task in history.standby:
            if table.is_stateful(task) and (process_id, task) not in running:
                copies.setdefault(task, []).append((history.lags[task], process_id))
    kept: dict[ProcessId, set[TaskId]] = {process_id: set() for process_id in group.clients}
    for task, found in copies.items():
        for _, process_id in sorted(found)[:standbys_max]:
            kept[process_id].add(task)
    return kept


def _owners(group: Group, table: TaskTable, members: Mapping[str, MemberSubscription]) -> dict[str, list[TaskId]]:
    """Return the active tasks of each usable member."""
    claims: dict[TopicPartition, str] = {}
    for member in sorted(members, key=lambda m: (members[m].generation, consumer_order(m))):
        claims.update(dict.fromkeys(members[member].owned, member))  # a newer generation overwrites
    usable = frozenset(group.members)
    owned: dict[str, list[TaskId]] = {}
    for task, inputs in sorted(table.inputs.items(), key=lambda item: item[0]):
        claimants = {claims[tp] for tp in inputs if tp in claims}
        if len(claimants) == 1 and (member := claimants.pop()) in usable:
            owned.setdefault(member, []).append(task)
    return owned
