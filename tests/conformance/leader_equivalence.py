"""When two assignments of one group are equally good, where Java's own choice among equals cannot be repeated.

* The public sticky assignor walks stateful tasks by the identity hashes of their descriptions when it places standbys.
* Rack-aware placement (KIP-925) minimises a cost, and several placements have the lowest one; which of them Java's
  cycle cancelling reaches depends on the order in which it meets the cycles.

Everything that does not follow from such a choice is still compared exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streams_protocol import (
    AssignmentInfo,
    HostInfo,
    ProcessId,
    TaskId,
    TopicPartition,
    decode_assignment_info,
    decode_subscription_info,
)
from streams_py.assignment.problem import Placement
from streams_py.cli.groups.leader_cases import Case, RecordedCluster, RecordedExecutor
from streams_py.leader.observation import Decided, Fact, Gathered
from streams_py.ports import AdminError, MemberAssignment


class DifferentError(Exception):
    """The case does not hold; the text says why."""


def check_equal(what: str, ours: object, recorded: object) -> None:
    """Raise DifferentError unless both are equal."""
    if ours != recorded:
        raise DifferentError(f"{what}: {_short(ours)} here, {_short(recorded)} recorded")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "..."


@dataclass(frozen=True, slots=True)
class Entry:
    """One member's assignment, decoded; ``fields`` by the names that ``order_dependent`` uses."""

    fields: Mapping[str, object]
    info: AssignmentInfo
    partitions: tuple[TopicPartition, ...]

    @classmethod
    def of(cls, assignment: MemberAssignment) -> Entry:
        """What our leader published."""
        info = decode_assignment_info(assignment.user_data)
        fields = {"partitions": [list(tp) for tp in assignment.partitions]} | info_fields(info) | host_fields(info)
        return cls(fields, info, assignment.partitions)

    @classmethod
    def recorded(cls, entry: Case) -> Entry:
        """Return the assignments of the Java leader."""
        partitions = tuple(TopicPartition(*tp) for tp in entry["partitions"])
        return cls.of(MemberAssignment(partitions, bytes.fromhex(entry["user_data"])))


def compare_loosely(case: Case, stable: bool | None, ours: Mapping[str, Entry], recorded: Mapping[str, Entry]) -> None:
    """Standbys of the public sticky assignor, and what follows from them.

    What the case does not call order-dependent must be equal all the same, and so must be the clients of all active
    tasks and the number of standbys of each task. Both sides must keep the rules of a valid assignment.
    """
    loose = set(case["order_dependent"])
    if "stable" not in loose:
        check_equal("stable", stable, case["result"]["stable"])
    for member, entry in recorded.items():
        for name, value in entry.fields.items():
            if name not in loose or name == "partitions_by_host":
                check_equal(f"{name} of {member}", ours[member].fields[name], value)
    check_equal("number of standbys", _standby_counts(case, ours), _standby_counts(case, recorded))
    for side in (ours, recorded):
        _check_claims(case, side)


class Plan(RecordedExecutor):
    """Notes where the tasks of a recorded assign step are *going*. What members are sent is that without the tasks that
    are withheld, and which those are depends on the plan."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.facts: Gathered | None = None
        self.placements: Mapping[ProcessId, Placement] = {}

    def observe(self, fact: Fact) -> None:
        """As in the base class."""
        if isinstance(fact, Gathered):
            self.facts = fact
        elif isinstance(fact, Decided):
            self.placements = fact.placements or {}


def compare_costs(case: Case, cluster: RecordedCluster, ours: Plan, recorded: Plan) -> None:
    """Plans by rack: every client is to have as many active tasks, and as much is read from other racks.

    The optimiser keeps counts and minimises traffic, for stateful and for stateless tasks apart. ``recorded`` is the
    plan of a leader that was seen to send exactly what Java's sent.
    """
    check_equal("traffic and tasks of clients", _traffic(case, cluster, ours), _traffic(case, cluster, recorded))
    check_equal("number of standbys", _planned_standbys(ours), _planned_standbys(recorded))


def compare_delivery(case: Case, ours: Mapping[str, Entry], recorded: Mapping[str, Entry]) -> None:
    """What two plans of one group have in common when they are delivered."""
    for member, entry in recorded.items():
        for name in ("version", "commonly_supported", "error_code"):
            check_equal(f"{name} of {member}", ours[member].fields[name], entry.fields[name])
    for side in (ours, recorded):
        _check_claims(case, side)


def _check_claims(case: Case, side: Mapping[str, Entry]) -> None:
    claims = {tp: m["id"] for m in case["members"] for tp in (TopicPartition(*pair) for pair in m["owned"])}
    taken: set[TopicPartition] = set()
    for member, entry in side.items():
        for tp in entry.partitions:
            if tp in taken or claims.get(tp, member) != member:
                raise DifferentError(f"{tp} is given to {member} although somebody else has it")
            taken.add(tp)


def _standby_counts(case: Case, entries: Mapping[str, Entry]) -> dict[TaskId, int] | dict[TopicPartition, int]:
    """Standbys of each task, transient ones left out; nothing where they cannot be told apart."""
    if not any(member["owned"] for member in case["members"]):  # then nothing is withheld, so none is transient
        return dict(Counter(task for entry in entries.values() for task in entry.info.standby_tasks))
    infos = [decode_subscription_info(bytes.fromhex(member["user_data"])) for member in case["members"]]
    if not all(info.endpoint for info in infos):
        return {}
    any_entry = next(iter(entries.values()))  # all members get the same host maps
    return dict(Counter(tp for parts in any_entry.info.standby_partitions_by_host.values() for tp in parts))


def _planned_standbys(plan: Plan) -> dict[TaskId, int]:
    return dict(Counter(task for placement in plan.placements.values() for task in placement.standby))


def _traffic(case: Case, cluster: RecordedCluster, plan: Plan) -> dict[str, object]:
    """Partitions read from another rack, of stateful and stateless tasks; active partitions of each client."""
    rack_of = {process: member["rack"] for member, process in _processes(case)}
    facts = plan.facts
    foreign: Counter[bool] = Counter()
    partitions: Counter[ProcessId] = Counter()
    for process, placement in plan.placements.items():
        for task in placement.active:
            assert facts is not None, "nothing is placed before the facts are known"
            for tp in facts.table.inputs[task]:
                answer = cluster.describe_topics([tp.topic])[tp.topic]
                if isinstance(answer, AdminError):
                    raise DifferentError(f"topic {tp.topic} does not exist")
                partitions[process] += 1
                foreign[facts.table.is_stateful(task)] += rack_of[process] not in answer[tp.partition].racks
    return {"stateful": foreign[True], "stateless": foreign[False], "partitions": dict(partitions)}


def _processes(case: Case) -> list[tuple[Case, ProcessId]]:
    members = case["members"]
    return [(m, decode_subscription_info(bytes.fromhex(m["user_data"])).process_id) for m in members]


def info_fields(info: AssignmentInfo) -> dict[str, object]:
    """An AssignmentInfo without its host maps, as the vectors write it."""
    return {
        "version": info.version,
        "commonly_supported": info.commonly_supported_version,
        "active_tasks": [_task_fields(task) for task in info.active_tasks],
        "standby_tasks": [
            [_task_fields(task), [list(tp) for tp in sorted(parts)]]
            for task, parts in sorted(info.standby_tasks.items(), key=lambda item: item[0])
        ],
        "error_code": info.error_code,
        "next_rebalance_ms": info.next_rebalance_ms,
    }


def _task_fields(task: TaskId) -> list[object]:
    return [task.subtopology, task.partition, task.topology_name]


def host_fields(info: AssignmentInfo) -> dict[str, object]:
    """Its host maps, as the vectors write them."""

    def fields(hosts: Mapping[HostInfo, Collection[TopicPartition]]) -> list[object]:
        return [
            [host.host, host.port, [list(tp) for tp in sorted(parts)]]
            for host, parts in sorted(hosts.items(), key=lambda item: item[0])
        ]

    return {
        "partitions_by_host": fields(info.partitions_by_host),
        "standby_partitions_by_host": fields(info.standby_partitions_by_host),
    }
