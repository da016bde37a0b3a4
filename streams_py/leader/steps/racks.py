"""Whether the built-in assignors can use racks in this rebalance, and which racks (KIP-925).

This requires a rack strategy, one rack per client, and a known rack for every partition that counts: inputs for active
tasks, changelogs for standbys. The leader's metadata has no replicas of internal topics, so these are described first.
If any of this is missing, racks are not used. Source: Kafka Streams' ``RackAwareTaskAssignor``.

Kafka does not use racks as soon as one replica has no rack. Here such a replica is ignored if another replica of the
partition has a known rack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.assignment.configs import STRATEGY_NONE, AssignmentConfigs
from streams_py.assignment.problem import RackOptimiser, RackOptimiserFactory
from streams_py.assignment.rack import optimiser_for
from streams_py.leader.steps.decode import Group
from streams_py.leader.steps.tasks import TaskTable
from streams_py.ports import AdminError, PartitionInfo


@dataclass(frozen=True, slots=True)
class RackQuestion:
    """The racks of clients, and the topics to describe before racks can be used.

    ``topics`` may be empty.
    """

    racks_of: Mapping[ProcessId, str]
    topics: tuple[str, ...]
    table: TaskTable
    metadata: Mapping[str, Sequence[PartitionInfo]]
    configs: AssignmentConfigs

    def answer(
        self,
        described: Mapping[str, tuple[PartitionInfo, ...] | AdminError],
        factory: RackOptimiserFactory | None = None,
    ) -> tuple[RackOptimiser | None, str]:
        """Return (optimiser, ""), or (None, the reason why racks cannot be used).

        ``factory`` creates the optimiser; None for the built-in one.
        """
        known: dict[TopicPartition, frozenset[str]] = {}
        for name, infos in self.metadata.items():
            known |= {TopicPartition(name, info.partition): named_racks(info) for info in infos}
        for name in self.topics:
            found = described.get(name)
            if found is None or isinstance(found, AdminError):
                return None, f"topic {name} cannot be described"
            known |= {TopicPartition(name, info.partition): named_racks(info) for info in found}
        active: dict[TaskId, list[frozenset[str]]] = {}
        standby: dict[TaskId, list[frozenset[str]]] = {}
        for task, inputs in self.table.inputs.items():
            active[task] = [known.get(tp, frozenset()) for tp in inputs]
            standby[task] = [known.get(tp, frozenset()) for tp in _changelogs(self.table, task)]
        charged = dict(self.table.task_of)
        if self.configs.num_standby_replicas:
            charged |= {tp: task for task in self.table.stateful for tp in _changelogs(self.table, task)}
        unknown = next((tp for tp in sorted(charged) if not known.get(tp)), None)
        if unknown is not None:
            return None, f"no replica of {unknown} has a known rack; set broker.rack on every broker"
        optimiser = (factory or optimiser_for)(
            active_racks=active,
            standby_racks=standby,
            client_racks=self.racks_of,
            strategy=self.configs.rack_aware_assignment_strategy,
        )
        return optimiser, ""


def named_racks(info: PartitionInfo) -> frozenset[str]:
    """Return the racks of a partition's replicas. An empty name means no rack, as for clients."""
    return info.racks - {""}


def client_racks(group: Group) -> tuple[Mapping[ProcessId, str], str]:
    """Return the rack of every client and an error text.

    The error is that a member has no rack, or that the members of one client have different racks.
    """
    racks: dict[ProcessId, str] = {}
    for process_id in sorted(group.clients):
        named = group.clients[process_id].racks
        missing = next((member for member, rack in named.items() if not rack), None)
        if missing is not None or not named:
            return {}, f"member {missing} of client {process_id} has no rack"
        if len(set(named.values())) > 1:
            return (
                {},
                f"the members of client {process_id} are in different racks, {', '.join(map(str, named.values()))}",
            )
        racks[process_id] = str(next(iter(named.values())))
    return racks, ""


def rack_question(
    group: Group, table: TaskTable, metadata: Mapping[str, Sequence[PartitionInfo]], configs: AssignmentConfigs
) -> tuple[RackQuestion | None, str]:
    """Return (the question, ""), or (None, the reason why racks cannot be used).

    The reason is empty when no rack strategy is configured.
    """
    if configs.rack_aware_assignment_strategy == STRATEGY_NONE:
        return None, ""
    racks_of, wrong = client_racks(group)
    if wrong:
        return None, f"{wrong}; every instance needs client.rack, the same one for all of its threads"
    inputs = {tp.topic for tp in table.task_of}
    wanted = {name for name in inputs if any(not info.replicas for info in metadata.get(name, ()))}
    if configs.num_standby_replicas:
        wanted |= {tp.topic for task in table.stateful for tp in _changelogs(table, task)}
    return RackQuestion(racks_of, tuple(sorted(wanted)), table, metadata, configs), ""


def _changelogs(table: TaskTable, task: TaskId) -> tuple[TopicPartition, ...]:
    return (*table.changelogs.get(task, ()), *table.source_changelogs.get(task, ()))
