"""Does the leader assign as Kafka Streams' ``StreamsPartitionAssignor`` did? Checks one recorded assign step.

A case is a whole group: members with their subscription bytes, the cluster's topics and offsets, faults. It is run on
:class:`~streams_py.leader.leader.GroupLeader` with a cluster made of the case's own values, and everything that the
Java leader did is compared: topics described and created, offsets asked for, the stability it reported, and each
member's partitions and bytes. The leader runs with ``reference_behaviour``, because Kafka fails the whole group where
we refuse one member.

Cases whose result changed with the JVM's hash order are run in the emulated order of the JDK that recorded them, and
must be equal, too. What no check can notice is a change of an *input* that leads to the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from streams_protocol import (
    AssignmentInfo,
    DecodeError,
    HostInfo,
    ProcessId,
    TaskId,
    TopicPartition,
    decode_assignment_info,
    decode_subscription_info,
    encode_assignment_info,
    encode_subscription_info,
)
from streams_py.assignment.assignors.sticky import StickyTaskAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.java_order import HashSizing
from streams_py.assignment.problem import lag_from_offsets
from streams_py.errors import BrokerUnavailable, ConfigError, IllegalStateError, StreamsError
from streams_py.leader.drive import run_assign
from streams_py.leader.effects import (
    CreateTopics,
    DescribeTopics,
    Effect,
    FailAssign,
    FetchCommittedOffsets,
    ListEndOffsets,
    Log,
    NotifyAssignor,
    PublishAssignments,
    ReportError,
    RunAssignor,
    Wait,
)
from streams_py.leader.events import (
    AssignorFailed,
    AssignorReturned,
    AssignRequested,
    CommittedOffsetsFetched,
    EndOffsetsListed,
    Event,
    TopicsCreated,
    TopicsDescribed,
    WaitEnded,
)
from streams_py.leader.leader import GroupLeader
from streams_py.leader.settings import LeaderSettings
from streams_py.leader.threads import distribute_client
from streams_py.ports import AdminError, AdminErrorKind, MemberAssignment, MemberSubscription, PartitionInfo, TopicSpec
from streams_py.testing.conformance_case import NotSupportedCase
from streams_py.topology.metadata import InternalTopic, InternalTopicKind, SubtopologyTopics, TopologyMetadata

__all__ = ["run_leader_case", "run_threads_case"]

Case = Mapping[str, Any]

_SIZING: Final = HashSizing.JDK_18_AND_OLDER  # the vectors were recorded on JDK 17

# What the recorded programs configure: all topics get their record time from the producer.
_REPARTITION: Final = {"cleanup.policy": "delete", "segment.bytes": "52428800", "retention.ms": "-1"}
_CHANGELOG: Final = {"cleanup.policy": "compact"}
# A window store of five minutes, plus windowstore.changelog.additional.retention.ms.
_WINDOWED: Final = {"cleanup.policy": "compact,delete", "retention.ms": str(300_000 + 86_400_000)}
_CREATE_TIME: Final = {"message.timestamp.type": "CreateTime"}

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
        cluster = _Cluster(case)
        outcome = run_assign(GroupLeader(_settings(case)), _request(case), cluster.execute)
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


# -- input -----------------------------------------------------------------------------------------------------


def _settings(case: Case) -> LeaderSettings:
    config = dict(case["config"])
    if config.get("rack.aware.assignment.strategy", "none") != "none":
        raise NotSupportedCase("rack-aware assignment strategies")
    custom = config.get("task.assignor.class")
    if custom is not None and not custom.endswith(".StickyTaskAssignor"):
        raise NotSupportedCase(f"task assignor {custom}")
    return LeaderSettings(
        process_id=ProcessId.parse(case["leader_process_id"]),
        future_process_id=ProcessId.parse(case.get("future_process_id", "00000000-0000-0000-0000-000000000000")),
        assignment=AssignmentConfigs.of(config),
        internal_assignor=config.get("internal.task.assignor.class"),
        task_assignor=custom,
        hash_sizing=_SIZING,
        reference_behaviour=True,
    )


def _request(case: Case) -> AssignRequested:
    racks = dict(case["brokers"])
    return AssignRequested(
        now_ms=case["now_ms"],
        members={
            member["id"]: MemberSubscription(
                topics=tuple(member["topics"]),
                user_data=None if member["user_data"] is None else bytes.fromhex(member["user_data"]),
                owned=tuple(_partition(tp) for tp in member["owned"]),
                generation=member["generation"],
                rack=member["rack"],
            )
            for member in case["members"]
        },
        topics={name: _partitions(name, replicas, racks) for name, replicas in case["topics"].items()},
        topology=_topology(case["topology"]),
    )


def _partition(pair: Sequence[Any]) -> TopicPartition:
    topic, partition = pair
    return TopicPartition(topic, partition)


def _task(triple: Sequence[Any]) -> TaskId:
    subtopology, partition, name = triple
    return TaskId(subtopology, partition, name)


def _partitions(
    name: str, replicas: Iterable[Sequence[int]], racks: Mapping[int, str | None]
) -> tuple[PartitionInfo, ...]:
    return tuple(
        PartitionInfo(name, p, ids[0], tuple(ids), frozenset(rack for i in ids if (rack := racks[i]) is not None))
        for p, ids in enumerate(replicas)
    )


def _topology(topology: Case) -> TopologyMetadata:
    return TopologyMetadata(
        {sub["id"]: _subtopology(sub, topology["kind"]) for sub in topology["subtopologies"]},
        tuple(frozenset(group) for group in topology["copartition_groups"]),
    )


def _subtopology(sub: Case, kind: str) -> SubtopologyTopics:
    changelog = (_WINDOWED if kind == "windowed" else _CHANGELOG) | _CREATE_TIME
    repartition = {}
    for name, topic in sub["repartition_source_topics"].items():
        _equal(f"{name} enforced", topic["partitions"] is not None, topic["enforced"])
        repartition[name] = InternalTopic(
            name, InternalTopicKind.REPARTITION, topic["partitions"], _REPARTITION | _CREATE_TIME
        )
    return SubtopologyTopics(
        source_topics=frozenset(sub["source_topics"]),
        sink_topics=frozenset(sub["sink_topics"]),
        repartition_sources=repartition,
        changelogs={
            name: InternalTopic(name, InternalTopicKind.CHANGELOG, None, changelog) for name in sub["changelog_topics"]
        },
        source_changelogs=frozenset(sub["source_changelog_topics"]),
        stores=frozenset(sub["stores"]),
    )


def _check_inputs(case: Case) -> None:
    """Contradictions inside a case that the assign step itself would not notice."""
    ids = [member["id"] for member in case["members"]]
    _equal("order of the members", sorted(set(ids)), ids)
    existing = case["topics"] | case["internal_topics"]
    for kind in ("end_offsets", "committed"):
        for topic, offsets in case[kind].items():
            _equal(f"number of {kind} of {topic}", len(offsets), len(existing.get(topic, ())))
    for member in case["members"]:
        _check_user_data(member)


def _check_user_data(member: Case) -> None:
    data = bytes.fromhex(member["user_data"])
    try:
        info = decode_subscription_info(data)
    except DecodeError:
        return  # the result must be the exception
    if info.is_future:
        return
    again = encode_subscription_info(info)
    _equal(f"content of the user data of {member['id']}", decode_subscription_info(again), info)
    _equal(f"sorted bytes of the user data of {member['id']}", sorted(again), sorted(data))


# -- the cluster of a case ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Cluster:
    """Carries out effects with the case's values and notes what was asked."""

    case: Case
    described: set[str] = field(default_factory=set)
    created: dict[str, TopicSpec] = field(default_factory=dict)
    listed: set[TopicPartition] = field(default_factory=set)
    committed: set[TopicPartition] = field(default_factory=set)
    now_ms: int = 0
    leaderless: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.now_ms = self.case["now_ms"]
        self.leaderless = dict(self.case["faults"].get("leaderless", {}))

    def execute(self, effect: Effect) -> Event | None:
        match effect:
            case DescribeTopics():
                return TopicsDescribed(self._tick(), self.describe(effect.names))
            case CreateTopics():
                return TopicsCreated(self._tick(), {spec.name: self._create(spec) for spec in effect.specs})
            case Wait():
                return WaitEnded(self._tick())
            case ListEndOffsets():
                return EndOffsetsListed(self._tick(), self._end_offsets(effect.partitions))
            case FetchCommittedOffsets():
                self.committed |= set(effect.partitions)
                if "committed" in self.case["faults"]:
                    return CommittedOffsetsFetched(self._tick(), error=AdminError(AdminErrorKind.TIMED_OUT, "fault"))
                return CommittedOffsetsFetched(
                    self._tick(), {tp: self._committed_offset(tp) for tp in effect.partitions}
                )
            case RunAssignor():
                return self._run(effect)
            case NotifyAssignor() | ReportError() | Log() | PublishAssignments() | FailAssign():
                return None
            case _:
                assert_never(effect)

    def describe(self, names: Collection[str]) -> dict[str, tuple[PartitionInfo, ...] | AdminError]:
        self.described |= set(names)
        return {name: self._describe(name) for name in names}

    def _tick(self) -> int:
        self.now_ms += self.case["faults"].get("clock_tick_ms", 0)
        return self.now_ms

    def _describe(self, name: str) -> tuple[PartitionInfo, ...] | AdminError:
        racks = dict(self.case["brokers"])
        if self.leaderless.get(name, 0) > 0:
            self.leaderless[name] -= 1
            return AdminError(AdminErrorKind.LEADER_NOT_AVAILABLE, "fault")
        if name in self.created:
            brokers = [broker for broker, _ in self.case["brokers"]]
            replicas = [
                [brokers[p % len(brokers)], brokers[(p + 1) % len(brokers)]]
                for p in range(self.created[name].partitions)
            ]
            return _partitions(name, replicas, racks)
        known = self.case["topics"] | self.case["internal_topics"]
        if name not in known:
            return AdminError(AdminErrorKind.UNKNOWN_TOPIC, "unknown")
        return _partitions(name, known[name], racks)

    def _create(self, spec: TopicSpec) -> AdminError | None:
        if self.case["faults"].get("create_topics") == "exists":
            return AdminError(AdminErrorKind.ALREADY_EXISTS, "fault")
        self.created[spec.name] = spec
        return None

    def _end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | AdminError]:
        self.listed |= set(partitions)
        fault = self.case["faults"].get("list_offsets")
        if fault == "timeout":
            return {tp: AdminError(AdminErrorKind.TIMED_OUT, "fault") for tp in partitions}
        answered = sorted(partitions)[1:] if fault == "missing" else partitions
        return {tp: self.case["end_offsets"][tp.topic][tp.partition] for tp in answered}

    def _committed_offset(self, tp: TopicPartition) -> int | None:
        offsets: Sequence[int | None] = self.case["committed"].get(tp.topic, ())  # absent: nothing committed yet
        return offsets[tp.partition] if tp.partition < len(offsets) else None

    def _run(self, effect: RunAssignor) -> Event:
        assignor = StickyTaskAssignor(hash_sizing=_SIZING)
        assignor.configure(effect.configs)
        try:
            return AssignorReturned(self._tick(), assignor.assign(effect.application_state(self.describe)))
        except StreamsError as error:
            return AssignorFailed(self._tick(), error)


# -- results -----------------------------------------------------------------------------------------------------


def _compare(case: Case, cluster: _Cluster, outcome: PublishAssignments | FailAssign) -> None:
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
    _equal("stable", outcome.stable, result["stable"])
    _equal("members", list(outcome.assignments), [entry["member"] for entry in result["assignments"]])
    for entry in result["assignments"]:
        _compare_member(entry, outcome.assignments[entry["member"]], result)


def _spec(spec: TopicSpec) -> dict[str, object]:
    return {
        "partitions": spec.partitions,
        "replication_factor": spec.replication_factor,
        "config": dict(sorted(spec.config.items())),
    }


def _compare_member(entry: Case, ours: MemberAssignment, result: Case) -> None:
    member = entry["member"]
    _equal(f"partitions of {member}", [list(tp) for tp in ours.partitions], entry["partitions"])
    info = decode_assignment_info(ours.user_data)
    for name, value in _info_fields(info).items():
        _equal(f"{name} of {member}", value, entry["info"].get(name))
    _equal(f"info of {member}", sorted(_info_fields(info)), sorted(entry["info"]))
    for name, hosts in _host_fields(info).items():
        _equal(f"{name} of {member}", hosts, result[name])
    recorded = bytes.fromhex(entry["user_data"])
    try:
        theirs = decode_assignment_info(recorded)
    except DecodeError as error:
        raise _Different(f"user data of {member}: {error}") from error
    _equal(f"user data of {member}", theirs, info)
    _equal(f"next rebalance in the user data of {member}", theirs.next_rebalance_ms, info.next_rebalance_ms)
    _equal(f"length of the user data of {member}", len(ours.user_data), len(recorded))
    _equal(f"canonical of {member}", encode_assignment_info(theirs) == recorded, entry["canonical"])


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
