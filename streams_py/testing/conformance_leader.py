"""Does the leader assign as Kafka Streams' ``StreamsPartitionAssignor`` did? Checks one recorded assign step.

A case is a whole group: members with their subscription bytes, the cluster's topics and offsets, faults. It is run on
:class:`~streams_py.leader.leader.GroupLeader` with a cluster made of the case's own values, and everything that the
Java leader did is compared: topics described and created, offsets asked for, the stability it reported, and each
member's partitions and bytes. The leader runs with ``reference_behaviour``, because Kafka fails the whole group where
we refuse one member.

Cases whose result changed with the JVM's hash order are run in the emulated order of the JDK that recorded them. Most
are equal then; where Java followed the identity hashes of its objects, which nobody can repeat, everything else must be
equal and the rest must be as good. What no check can notice is a change of an *input* that leads to the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from streams_protocol import (
    AssignmentInfo,
    DecodeError,
    HostInfo,
    ProcessId,
    SubscriptionInfo,
    TaskId,
    TopicPartition,
    decode_assignment_info,
    decode_subscription_info,
    encode_assignment_info,
    encode_subscription_info,
)
from streams_py.assignment.problem import lag_from_offsets
from streams_py.errors import BrokerUnavailable, ConfigError, IllegalStateError, StreamsError
from streams_py.leader.drive import run_assign
from streams_py.leader.effects import FailAssign, PublishAssignments
from streams_py.leader.leader import GroupLeader
from streams_py.leader.threads import distribute_client
from streams_py.ports import MemberAssignment, TopicSpec
from streams_py.testing.leader_cases import Case, RecordedCluster, case_request, case_settings

__all__ = ["run_leader_case", "run_threads_case"]

# Java class -> how our error for the same failure is recognised.
_EXCEPTIONS: Final[Mapping[str, Callable[[Exception], bool]]] = {
    "java.nio.BufferUnderflowException": lambda e: isinstance(e, DecodeError),
    "java.lang.IllegalStateException": lambda e: isinstance(e, IllegalStateError),
    "java.lang.IllegalArgumentException": lambda e: type(e) is StreamsError and "did not answer" in str(e),
    "org.apache.kafka.common.config.ConfigException": lambda e: isinstance(e, ConfigError),
    "org.apache.kafka.common.errors.TimeoutException": lambda e: isinstance(e, BrokerUnavailable),
    "org.apache.kafka.streams.errors.StreamsException": (lambda e: type(e) is StreamsError and "exists with" in str(e)),
}


class _Different(Exception):
    """The case does not hold; the text says why."""


def run_leader_case(case: Case) -> str | None:
    """Run one recorded assign step: None when everything is equal, else the first difference.

    Raises NotSupportedCase for an assignor or a strategy that does not exist here.
    """
    try:
        _check_inputs(case)
        cluster = RecordedCluster(case)
        outcome = run_assign(GroupLeader(case_settings(case)), case_request(case), cluster.execute)
        _compare(case, cluster, outcome)
    except _Different as difference:
        return str(difference)
    return None


def _equal(what: str, ours: object, recorded: object) -> None:
    if ours != recorded:
        raise _Different(f"{what}: {_short(ours)} here, {_short(recorded)} recorded")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "..."


def _check_inputs(case: Case) -> None:
    """Contradictions inside a case that the assign step itself would not notice."""
    ids = [member["id"] for member in case["members"]]
    _equal("order of the members", sorted(set(ids)), ids)
    for topic, offsets in (case["end_offsets"] | case["committed"]).items():
        existing = case["internal_topics"].get(topic) or case["topics"].get(topic, ())
        _equal(f"number of offsets of {topic}", len(offsets), len(existing))
    for topic, partitions in (case["topics"] | case["internal_topics"]).items():
        for replicas in partitions:
            _equal(f"replicas of {topic}", len(set(replicas)), len(replicas))
    subtopologies = case["topology"]["subtopologies"]
    sources = sorted({topic for sub in subtopologies for topic in sub["source_topics"]})
    logged = {sub["id"] for sub in subtopologies if sub["changelog_topics"] or sub["source_changelog_topics"]}
    clients: dict[ProcessId, object] = {}
    for member in case["members"]:
        _equal(f"topics of {member['id']}", sources, member["topics"])
        info = _check_user_data(member)
        if info is not None:
            shared = (info.version, info.endpoint, dict(info.client_tags), member["rack"])
            _equal(f"what the threads of {info.process_id} share", clients.setdefault(info.process_id, shared), shared)
            _equal("tasks without changelog", set(), {task.subtopology for task in info.task_offset_sums} - logged)


def _check_user_data(member: Case) -> SubscriptionInfo | None:
    """The decoded subscription of a member that can be read."""
    data = bytes.fromhex(member["user_data"])
    try:
        info = decode_subscription_info(data)
    except DecodeError:
        return None  # the result must be the exception
    if info.is_future:
        return None
    again = encode_subscription_info(info)
    _equal(f"content of the user data of {member['id']}", decode_subscription_info(again), info)
    _equal(f"bytes of the user data of {member['id']}, sorted", sorted(again), sorted(data))
    return info


# -- results -----------------------------------------------------------------------------------------------------


def _compare(case: Case, cluster: RecordedCluster, outcome: PublishAssignments | FailAssign) -> None:
    result = case["result"]
    _equal("topics described", sorted(cluster.described), result["described_topics"])
    _equal("end offsets asked for", [list(tp) for tp in sorted(cluster.listed)], result["listed_offsets"])
    _equal("committed offsets asked for", [list(tp) for tp in sorted(cluster.committed)], result["committed_asked"])
    _equal("topics created", {name: _spec(spec) for name, spec in cluster.created.items()}, result["created_topics"])
    if isinstance(outcome, FailAssign):
        java = result["exception"]
        if java is None or java not in _EXCEPTIONS or not _EXCEPTIONS[java](outcome.error):
            raise _Different(f"exception: {outcome.error!r} here, {java} recorded")
        _equal("assignments after an exception", False, "assignments" in result)
        _equal("stable after an exception", None, result["stable"])
        return
    _equal("exception", None, result["exception"])
    _equal("members", list(outcome.assignments), [entry["member"] for entry in result["assignments"]])
    subtopology_of = {topic: sub["id"] for sub in case["topology"]["subtopologies"] for topic in sub["source_topics"]}
    for entry in result["assignments"]:
        _check_entry(entry, result)
        pairs = zip(entry["partitions"], entry["info"]["active_tasks"], strict=True)
        for (topic, partition), task in pairs:
            _equal(f"task of {topic}-{partition}", [subtopology_of.get(topic), partition, None], task)
    ours = {member: _Entry.of(assignment) for member, assignment in outcome.assignments.items()}
    recorded = {entry["member"]: _Entry.recorded(entry) for entry in result["assignments"]}
    try:
        _equal("stable", outcome.stable, result["stable"])
        for member, entry in recorded.items():
            _equal(f"assignment of {member}", ours[member].fields, entry.fields)
    except _Different:
        if not case["order_dependent"] or "task.assignor.class" not in case["config"]:
            raise
        _compare_loosely(case, outcome.stable, ours, recorded)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One member's assignment, decoded; ``fields`` by the names that ``order_dependent`` uses."""

    fields: Mapping[str, object]
    info: AssignmentInfo
    partitions: tuple[TopicPartition, ...]

    @classmethod
    def of(cls, assignment: MemberAssignment) -> _Entry:
        info = decode_assignment_info(assignment.user_data)
        fields = {"partitions": [list(tp) for tp in assignment.partitions]} | _info_fields(info) | _host_fields(info)
        return cls(fields, info, assignment.partitions)

    @classmethod
    def recorded(cls, entry: Case) -> _Entry:
        partitions = tuple(TopicPartition(*tp) for tp in entry["partitions"])
        return cls.of(MemberAssignment(partitions, bytes.fromhex(entry["user_data"])))


def _check_entry(entry: Case, result: Case) -> None:
    """The recorded parts of one assignment must agree with each other, down to the last byte."""
    member, data = entry["member"], bytes.fromhex(entry["user_data"])
    try:
        info = decode_assignment_info(data)
    except DecodeError as error:
        raise _Different(f"user data of {member}: {error}") from error
    _equal(f"info of {member}", _info_fields(info), entry["info"])
    for name, hosts in _host_fields(info).items():
        _equal(f"{name} of {member}", hosts, result[name])
    canonical = encode_assignment_info(info)
    _equal(f"canonical of {member}", canonical == data, entry["canonical"])
    _equal(f"length of the user data of {member}", len(canonical), len(data))


def _compare_loosely(
    case: Case, stable: bool | None, ours: Mapping[str, _Entry], recorded: Mapping[str, _Entry]
) -> None:
    """The public sticky assignor follows identity hashes in Java: who hosts a standby, and what follows from that.

    What the case does not call order-dependent must be equal all the same, and so must be the clients of all active
    tasks and the number of standbys of each task. Both sides must keep the rules of a valid assignment.
    """
    loose = set(case["order_dependent"])
    if "stable" not in loose:
        _equal("stable", stable, case["result"]["stable"])
    for member, entry in recorded.items():
        for name, value in entry.fields.items():
            if name not in loose or name == "partitions_by_host":
                _equal(f"{name} of {member}", ours[member].fields[name], value)
    _equal("number of standbys", _standby_counts(case, ours), _standby_counts(case, recorded))
    claims = {tp: m["id"] for m in case["members"] for tp in (TopicPartition(*pair) for pair in m["owned"])}
    for side in (ours, recorded):
        taken: set[TopicPartition] = set()
        for member, entry in side.items():
            for tp in entry.partitions:
                if tp in taken or claims.get(tp, member) != member:
                    raise _Different(f"{tp} is given to {member} although somebody else has it")
                taken.add(tp)


def _standby_counts(case: Case, entries: Mapping[str, _Entry]) -> dict[TaskId, int] | dict[TopicPartition, int]:
    """Standbys of each task, transient ones left out; nothing where they cannot be told apart."""
    if not any(member["owned"] for member in case["members"]):  # then nothing is withheld, so none is transient
        return dict(Counter(task for entry in entries.values() for task in entry.info.standby_tasks))
    infos = [decode_subscription_info(bytes.fromhex(member["user_data"])) for member in case["members"]]
    if not all(info.endpoint for info in infos):
        return {}
    any_entry = next(iter(entries.values()))  # all members get the same host maps
    return dict(Counter(tp for parts in any_entry.info.standby_partitions_by_host.values() for tp in parts))


def _spec(spec: TopicSpec) -> dict[str, object]:
    return {
        "partitions": spec.partitions,
        "replication_factor": spec.replication_factor,
        "config": dict(sorted(spec.config.items())),
    }


def _info_fields(info: AssignmentInfo) -> dict[str, object]:
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


def _host_fields(info: AssignmentInfo) -> dict[str, object]:
    def fields(hosts: Mapping[HostInfo, Collection[TopicPartition]]) -> list[object]:
        return [
            [host.host, host.port, [list(tp) for tp in sorted(parts)]]
            for host, parts in sorted(hosts.items(), key=lambda item: item[0])
        ]

    return {
        "partitions_by_host": fields(info.partitions_by_host),
        "standby_partitions_by_host": fields(info.standby_partitions_by_host),
    }


# -- tasks to threads ----------------------------------------------------------------------------------------------


def run_threads_case(case: Case) -> str | None:
    """Distribute one client's tasks over its threads and compare every list, order included."""
    lags = {TaskId.parse(task): lag for task, lag in case["lags"].items()}
    reported = {
        consumer: {TaskId.parse(task): offset for task, offset in tasks.items()}
        for consumer, tasks in case["previous"].items()
    }
    try:
        _check_lags(case, lags, reported)
        active, standby = distribute_client(
            stateful=[task for task in map(TaskId.parse, case["active"]) if task in lags],
            standby=[TaskId.parse(task) for task in case["standby"]],
            stateless=[task for task in map(TaskId.parse, case["active"]) if task not in lags],
            consumers=case["consumers"],
            previous=lambda consumer: sorted(
                (task for task in reported.get(consumer, ()) if task in lags), key=lambda task: (lags[task], task)
            ),
        )
        ours = {
            consumer: {"active": list(map(str, active[consumer])), "standby": list(map(str, standby[consumer]))}
            for consumer in case["consumers"]
        }
        _equal("consumers", sorted(ours), sorted(case["result"]))
        for consumer, lists in case["result"].items():
            _equal(f"tasks of {consumer}", ours[consumer], lists)
    except _Different as difference:
        return str(difference)
    return None


def _check_lags(case: Case, lags: Mapping[TaskId, int], reported: Mapping[str, Mapping[TaskId, int]]) -> None:
    """The table of lags must follow from the end offsets and the reported sums, the last consumer winning."""
    sums: dict[TaskId, int] = {}
    for consumer in case["consumers"]:
        sums.update(reported.get(consumer, {}))
    expected = {
        TaskId.parse(task["id"]): lag_from_offsets(sums.get(TaskId.parse(task["id"]), 0), task["end"])
        for task in case["tasks"]
        if task["stateful"]
    }
    _equal("lags", expected, dict(lags))
    known = {task["id"] for task in case["tasks"]}
    _equal("tasks that do not exist", set(), {*case["active"], *case["standby"]} - known)
