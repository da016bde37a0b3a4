"""What the group does when the application's own assignor fails: go on as before.

Apache Kafka Streams lets the leader's thread die, and the others wait for the next rebalance, which fails the same way.
Here every member keeps the active tasks that it owns and the standbys that it reported, the error goes to the
application, and the leader's client asks for another try after a while.

Ownership is what members *claim*. Nothing moves, so the cooperative rule holds by itself: each partition goes to a
member that claims it, or to nobody's loss. Tasks that nobody owns (their member is gone, or there never was an
assignment) wait for the next try: placing them is the assignor's business, and guessing would hide that it is broken.
With the eager protocol members give up everything before they join, so nothing is left to keep; that protocol exists
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

__all__ = ["keep_current"]


def keep_current(
    group: Group,
    histories: Mapping[ProcessId, ClientHistory],
    table: TaskTable,
    members: Mapping[str, MemberSubscription],
    *,
    standbys_max: int,
) -> dict[ProcessId, ClientThreads]:
    """The tasks of each consumer, as its subscription says it had them.

    A task belongs to the member that claims its partitions; where claims disagree, to the one of the newest generation
    (the others are out of date). Standbys are stateful tasks that a client reported and runs nowhere as active, given
    to the first consumer that reported them. What a client reports may as well lie on its disk from former times, so of
    each task no more than ``standbys_max`` copies are kept (``num.standby.replicas``), the most complete ones.
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
    """Standbys that each client keeps."""
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
    """Active tasks of each usable member."""
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
