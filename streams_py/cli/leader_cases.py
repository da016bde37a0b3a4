"""A recorded assign step as input: the group, the topology, the settings, and a cluster that answers from the case.

One JSON object per line: one whole group per case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from streams_protocol import ProcessId, TopicPartition
from streams_py.assignment.assignors.sticky import StickyTaskAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.java_order import HashSizing
from streams_py.assignment.problem import RackOptimiserFactory
from streams_py.errors import StreamsError
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
from streams_py.leader.settings import LeaderSettings
from streams_py.ports import AdminError, AdminErrorKind, MemberSubscription, PartitionInfo, TopicSpec
from streams_py.topology.metadata import InternalTopic, InternalTopicKind, SubtopologyTopics, TopologyMetadata

__all__ = ["Case", "RecordedCluster", "case_request", "case_settings"]

Case = Mapping[str, Any]
"""One line of the file."""

_SIZING: Final = HashSizing.JDK_18_AND_OLDER  # the vectors were recorded on JDK 17

# What the recorded programs configure: all topics get their record time from the producer.
_REPARTITION: Final = {"cleanup.policy": "delete", "segment.bytes": "52428800", "retention.ms": "-1"}
_CHANGELOG: Final = {"cleanup.policy": "compact"}
# A window store of five minutes, plus windowstore.changelog.additional.retention.ms.
_WINDOWED: Final = {"cleanup.policy": "compact,delete", "retention.ms": str(300_000 + 86_400_000)}
_CREATE_TIME: Final = {"message.timestamp.type": "CreateTime"}


def case_settings(case: Case, rack_optimiser: RackOptimiserFactory | None = None) -> LeaderSettings:
    """The leader's settings. ValueError for an assignor that we lack."""
    config = dict(case["config"])
    custom = config.get("task.assignor.class")
    if custom is not None and not custom.endswith(".StickyTaskAssignor"):
        raise ValueError(f"the case was decided by the task assignor {custom}, which is not here")
    return LeaderSettings(
        process_id=ProcessId.parse(case["leader_process_id"]),
        future_process_id=ProcessId.parse(case.get("future_process_id", "00000000-0000-0000-0000-000000000000")),
        assignment=AssignmentConfigs.of(config),
        internal_assignor=config.get("internal.task.assignor.class"),
        task_assignor=custom,
        hash_sizing=_SIZING,
        rack_optimiser=rack_optimiser,
        reference_behaviour=True,
    )


def case_request(case: Case) -> AssignRequested:
    """The request to assign. ValueError or KeyError for a case that is not in the format."""
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
        if topic["enforced"] != (topic["partitions"] is not None):
            raise ValueError(f"repartition topic {name}: enforced is {topic['enforced']}, which contradicts its count")
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


# -- the cluster of a case ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class RecordedCluster:
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
