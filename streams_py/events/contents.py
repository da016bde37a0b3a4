"""The contents of a rebalance's records: the tasks to assign, the clients, and the tasks that each client got.

They are created on the emitter's thread from the leader's values, which no longer change.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from streams_protocol import UNKNOWN_OFFSET_SUM
from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.problem import Placement
from streams_py.events.model import ClientPart, Consumer, OffsetSums, Racks, SubtopologySlice, ThreadTasks
from streams_py.events.reasons import Reasons
from streams_py.leader.observation import Decided, Gathered
from streams_py.leader.steps.decode import Client
from streams_py.ports import AdminError, MemberAssignment, PartitionInfo

Described = Mapping[str, tuple[PartitionInfo, ...] | AdminError]

_FUTURE_CLIENT: Final = "future"


def slices_of(facts: Gathered, described: Described) -> list[SubtopologySlice]:
    """Return one slice per sub-topology, in ascending order."""
    table = facts.table
    by_sub: dict[tuple[str, int], int] = {}
    for task in sorted(table.tasks):
        key = (task.name, task.subtopology)
        by_sub[key] = max(by_sub.get(key, 0), task.partition + 1)
    found: dict[str, tuple[PartitionInfo, ...]] = {
        name: infos for name, infos in described.items() if not isinstance(infos, AdminError)
    }
    known = {**facts.topics, **found}
    return [_slice(facts, known, name, sub, count) for (name, sub), count in by_sub.items()]


def _slice(
    facts: Gathered, known: Mapping[str, Sequence[PartitionInfo]], name: str, sub: int, count: int
) -> SubtopologySlice:
    topics = facts.request.topology.subtopologies[sub]
    sources = sorted(topics.source_topics)
    changelogs = sorted({*topics.changelogs, *topics.source_changelogs})
    end = None
    if topics.is_logged:
        end = [facts.ends.sums.get(TaskId(sub, p, name or None), UNKNOWN_OFFSET_SUM) for p in range(count)]
    return SubtopologySlice(
        sub=f"{name}__{sub}" if name else str(sub),
        first=0,
        count=count,
        stateful=bool(topics.stores),
        logged=topics.is_logged,
        stores=sorted(topics.stores),
        sources=sources,
        changelogs=changelogs,
        end=end,
        racks=_racks({topic: known.get(topic, ()) for topic in sorted({*sources, *changelogs})}, count),
    )


def _racks(topics: Mapping[str, Sequence[PartitionInfo]], count: int) -> Racks | None:
    names = sorted({rack for infos in topics.values() for info in infos for rack in info.racks})
    if not names:
        return None
    index = {rack: number for number, rack in enumerate(names)}
    by_topic = {}
    for topic, infos in topics.items():
        racks = {info.partition: sorted(index[rack] for rack in info.racks) for info in infos}
        by_topic[topic] = [racks.get(p, []) for p in range(count)]
    return Racks(names, by_topic)


# -- clients and their tasks -------------------------------------------------------------------------------------------


def clients_of(
    rebalance_id: str,
    facts: Gathered,
    decision: Decided,
    assignments: Mapping[str, MemberAssignment],
    reasons: Reasons,
    *,
    future: ProcessId,
) -> list[ClientPart]:
    """Return one part per client, by process id. ``future``: the id for all members with a newer protocol."""
    clients = _Clients(rebalance_id, facts, decision, assignments, reasons, future)
    return [clients.part(process, client) for process, client in sorted(facts.group.clients.items())]


class _Clients:
    """The client parts of one rebalance."""

    def __init__(
        self,
        rebalance_id: str,
        facts: Gathered,
        decision: Decided,
        assignments: Mapping[str, MemberAssignment],
        reasons: Reasons,
        future: ProcessId,
    ) -> None:
        self._rebalance_id = rebalance_id
        self._facts = facts
        self._decision = decision
        self._assignments = assignments
        self._reasons = reasons
        self._future = future
        self._warmups: dict[ProcessId, set[TaskId]] = {}
        for task, process in decision.warmups:
            self._warmups.setdefault(process, set()).add(task)

    def part(self, process: ProcessId, client: Client) -> ClientPart:
        history = self._facts.histories[process]
        placement = self._placement(process)
        warmup = self._warmups.get(process, set()) & set(placement.standby)
        standby = [task for task in placement.standby if task not in warmup]
        sums = sorted(client.sums.items())
        return ClientPart(
            rebalance_id=self._rebalance_id,
            part=0,
            parts=0,
            client=_FUTURE_CLIENT if process == self._future else str(process),
            slice=0,
            slices=1,
            host=None if client.host is None else str(client.host),
            rack=client.rack,
            tags=client.tags,
            consumers=[self._consumer(member, client) for member in client.consumers],
            prev_active=sorted(history.active),
            prev_standby=sorted(history.standby),
            sums=OffsetSums(tuple(task for task, _ in sums), tuple(value for _, value in sums)),
            active=placement.active,
            standby=standby,
            warmup=sorted(warmup),
            threads=[self._thread(process, member) for member in client.consumers],
            reasons=self._reasons.of_client(process, placement.active, standby, sorted(warmup)),
        )

    def _placement(self, process: ProcessId) -> Placement:
        placements = self._decision.placements
        if placements is None:
            threads = self._decision.threads[process]
            return Placement(
                sorted(task for mine in threads.active.values() for task in mine),
                sorted(task for mine in threads.standby.values() for task in mine),
            )
        found = placements.get(process, Placement([], []))
        return Placement(sorted(found.active), sorted(found.standby))

    def _consumer(self, member: str, client: Client) -> Consumer:
        version, supported = _versions(self._facts.request.members[member].user_data)
        task_of = self._facts.table.task_of
        owned = {task_of[tp] for tp, owner in client.owner.items() if owner == member and tp in task_of}
        return Consumer(member, version, supported, sorted(owned))

    def _thread(self, process: ProcessId, member: str) -> ThreadTasks:
        """Return the tasks of a member. A task is withheld as a whole, so its first partition shows whether it is."""
        threads, inputs = self._decision.threads[process], self._facts.table.inputs
        sent = frozenset(self._assignments[member].partitions)
        active: list[TaskId] = []
        withheld: list[TaskId] = []
        for task in sorted(threads.active[member]):
            (active if inputs[task][0] in sent else withheld).append(task)
        return ThreadTasks(active, sorted(threads.standby[member]), withheld)


def _versions(user_data: bytes | None) -> tuple[int, int]:
    """Return version and latest supported version from a SubscriptionInfo. -1: it does not contain the value."""
    if user_data is None or len(user_data) < 4:
        return -1, -1
    (version,) = struct.unpack_from(">i", user_data)
    if version < 3 or len(user_data) < 8:
        return version, -1
    return version, struct.unpack_from(">i", user_data, 4)[0]
