"""A recorded assign step as input: group, topology, settings, and a recorded cluster.

A file contains one JSON object per line. Each line is one case: one whole group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from streams_protocol import ProcessId, TopicPartition
from streams_py.assignment.api import ApplicationState, TaskAssignment
from streams_py.assignment.assignors.sticky import StickyTaskAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.java_order import HashSizing
from streams_py.assignment.problem import RackOptimiserFactory
from streams_py.errors import BrokerUnavailableError
from streams_py.leader.effects import NotifyAssignor
from streams_py.leader.events import AssignRequested
from streams_py.leader.executor import Executor
from streams_py.leader.settings import LeaderSettings
from streams_py.ports import AdminError, AdminErrorKind, MemberSubscription, PartitionInfo, TopicSpec
from streams_py.topology.physical.metadata import InternalTopic, InternalTopicKind, SubtopologyTopics, TopologyMetadata

Case = Mapping[str, Any]
"""One line of the file, decoded."""

_SIZING: Final = HashSizing.JDK_18_AND_OLDER  # the cases were recorded on JDK 17

# Topic configurations of the recorded programs. In all topics, producers set the timestamps of records.
_REPARTITION: Final = {"cleanup.policy": "delete", "segment.bytes": "52428800", "retention.ms": "-1"}
_CHANGELOG: Final = {"cleanup.policy": "compact"}
# A window store of five minutes, plus windowstore.changelog.additional.retention.ms.
_WINDOWED: Final = {"cleanup.policy": "compact,delete", "retention.ms": str(300_000 + 86_400_000)}
_CREATE_TIME: Final = {"message.timestamp.type": "CreateTime"}


def case_settings(case: Case, rack_optimiser: RackOptimiserFactory | None = None) -> LeaderSettings:
    """Return the leader's settings.

    Raises ValueError if this library does not have the case's assignor.
    """
    config = dict(case["config"])
    custom = config.get("task.assignor.class")
    if custom is not None and not custom.endswith(".StickyTaskAssignor"):
        raise ValueError(f"the task assignor {custom} decided the case; this library does not have it")
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
    """Return the request to assign.

    Raises ValueError or KeyError if the case is not in the expected format.
    """
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


class RecordedCluster:
    """A cluster, a clock and an assignor with the values of a case.

    Keeps the arguments of all requests.
    """

    def __init__(self, case: Case) -> None:
        self._faults: Case = case["faults"]
        self._case = case
        self._now_ms: int = case["now_ms"]
        self._leaderless: dict[str, int] = dict(self._faults.get("leaderless", {}))
        self.described: set[str] = set()
        self.created: dict[str, TopicSpec] = {}
        self.listed: set[TopicPartition] = set()
        self.committed: set[TopicPartition] = set()

    # -- the clock, which advances with every request -----------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the time of the case."""
        return self._now_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Advance the clock by one tick, regardless of the duration."""
        self._now_ms += self._faults.get("clock_tick_ms", 0)

    # -- the cluster -----------------------------------------------------------------------------------------------

    def describe_topics(self, names: Collection[str]) -> dict[str, tuple[PartitionInfo, ...] | AdminError]:
        """Return topics of the case and topics that were created since."""
        self.sleep_ms(0)
        self.described |= set(names)
        return {name: self._describe(name) for name in names}

    def _describe(self, name: str) -> tuple[PartitionInfo, ...] | AdminError:
        racks = dict(self._case["brokers"])
        if self._leaderless.get(name, 0) > 0:
            self._leaderless[name] -= 1
            return AdminError(AdminErrorKind.LEADER_NOT_AVAILABLE, "fault")
        if name in self.created:
            brokers = [broker for broker, _ in self._case["brokers"]]
            replicas = [
                [brokers[p % len(brokers)], brokers[(p + 1) % len(brokers)]]
                for p in range(self.created[name].partitions)
            ]
            return _partitions(name, replicas, racks)
        known = self._case["topics"] | self._case["internal_topics"]
        if name not in known:
            return AdminError(AdminErrorKind.UNKNOWN_TOPIC, "unknown")
        return _partitions(name, known[name], racks)

    def create_topics(self, specs: Collection[TopicSpec]) -> dict[str, AdminError | None]:
        """Create topics as the port specifies, or fail as the case specifies."""
        self.sleep_ms(0)
        if self._faults.get("create_topics") == "exists":
            return {spec.name: AdminError(AdminErrorKind.ALREADY_EXISTS, "fault") for spec in specs}
        self.created |= {spec.name: spec for spec in specs}
        return dict.fromkeys([spec.name for spec in specs])

    def list_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | AdminError]:
        """Return end offsets of the case."""
        self.sleep_ms(0)
        self.listed |= set(partitions)
        fault = self._faults.get("list_offsets")
        if fault == "timeout":
            return {tp: AdminError(AdminErrorKind.TIMED_OUT, "fault") for tp in partitions}
        answered = sorted(partitions)[1:] if fault == "missing" else partitions
        return {tp: self._case["end_offsets"][tp.topic][tp.partition] for tp in answered}

    def committed_offsets(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return committed offsets of the case."""
        self.sleep_ms(0)
        self.committed |= set(partitions)
        if "committed" in self._faults:
            raise BrokerUnavailableError("fault")
        return {tp: self._committed_offset(tp) for tp in partitions}

    def _committed_offset(self, tp: TopicPartition) -> int | None:
        offsets: Sequence[int | None] = self._case["committed"].get(tp.topic, ())  # absent: nothing committed yet
        return offsets[tp.partition] if tp.partition < len(offsets) else None

    # -- the assignor ------------------------------------------------------------------------------------------------

    def ask(self, chosen: object, configs: Mapping[str, object], state: ApplicationState) -> TaskAssignment:
        """Ask the public sticky assignor, the only one that cases name."""
        self.sleep_ms(0)
        assignor = StickyTaskAssignor(hash_sizing=_SIZING)
        assignor.configure(configs)
        return assignor.assign(state)

    def notify(self, notice: NotifyAssignor) -> None:
        """Do nothing: a case has no listener."""


class RecordedExecutor(Executor):
    """Carries out effects with the values of a case."""

    def __init__(self, case: Case) -> None:
        self.cluster = RecordedCluster(case)
        super().__init__(self.cluster, self.cluster, self.cluster, group="")
