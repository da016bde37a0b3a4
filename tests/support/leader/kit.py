"""A cluster in memory, and short notations for the members of a group."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from streams_protocol import (
    LATEST_SUPPORTED_VERSION,
    AssignmentInfo,
    SubscriptionInfo,
    decode_assignment_info,
    encode_subscription_info,
)
from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.assignment.api import ApplicationState, AssignmentError, GroupAssignment, TaskAssignment
from streams_py.assignment.assignors.answer import trusted_answer
from streams_py.assignment.assignors.registry import assignor_name
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.errors import StreamsError
from streams_py.leader.drive import run_assign
from streams_py.leader.effects import (
    CreateTopics,
    Effect,
    FailAssign,
    ListEndOffsets,
    Log,
    NotifyAssignor,
    PublishAssignments,
    ReportError,
)
from streams_py.leader.events import AssignRequested, Event
from streams_py.leader.executor import Executor
from streams_py.leader.leader import GroupLeader
from streams_py.leader.settings import LeaderSettings
from streams_py.ports import AdminError, AdminErrorKind, MemberSubscription, PartitionInfo, TopicSpec
from streams_py.topology.physical.metadata import InternalTopic, InternalTopicKind, SubtopologyTopics, TopologyMetadata

NOW_MS = 1_700_000_000_000
TIMED_OUT = AdminError(AdminErrorKind.TIMED_OUT, "timed out")


def pid(number: int) -> ProcessId:
    """Return a process id that sorts like its number."""
    return ProcessId(uuid.UUID(int=number))


def tp(text: str) -> TopicPartition:
    """Parse a partition such as ``in-3``."""
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))


def tps(text: str) -> tuple[TopicPartition, ...]:
    return tuple(tp(part) for part in text.split())


def task(text: str) -> TaskId:
    return TaskId.parse(text)


def tasks(text: str) -> list[TaskId]:
    return [TaskId.parse(part) for part in text.split()]


# -- topologies --------------------------------------------------------------------------------------------------


def changelog(name: str) -> InternalTopic:
    return InternalTopic(name, InternalTopicKind.CHANGELOG, None, {"cleanup.policy": "compact"})


def repartition(name: str, partitions: int | None = None) -> InternalTopic:
    return InternalTopic(name, InternalTopicKind.REPARTITION, partitions, {"cleanup.policy": "delete"})


def sub(
    sources: str,
    *,
    sinks: str = "",
    stores: str = "",
    unlogged: str = "",
    repartitions: Mapping[str, int | None] | None = None,
    source_changelogs: str = "",
) -> SubtopologyTopics:
    """A sub-topology; a store ``s`` has the changelog ``app-s-changelog``."""
    names = [f"app-{store}-changelog" for store in stores.split()]
    return SubtopologyTopics(
        source_topics=frozenset(sources.split()),
        sink_topics=frozenset(sinks.split()),
        repartition_sources={name: repartition(name, count) for name, count in (repartitions or {}).items()},
        changelogs={name: changelog(name) for name in names},
        source_changelogs=frozenset(source_changelogs.split()),
        stores=frozenset([*stores.split(), *unlogged.split()]),
    )


STATELESS = TopologyMetadata({0: sub("in", sinks="out")})
COUNT = TopologyMetadata({0: sub("in", stores="counts")})
REPARTITIONED = TopologyMetadata(
    {0: sub("in", sinks="app-r"), 1: sub("app-r", stores="counts", repartitions={"app-r": None})}
)


# -- members -----------------------------------------------------------------------------------------------------


def member(
    process: int,
    *,
    owned: str = "",
    sums: Mapping[str, int] | None = None,
    version: int = LATEST_SUPPORTED_VERSION,
    latest: int | None = None,
    endpoint: str | None = None,
    error_code: int = 0,
    tags: Mapping[str, str] | None = None,
    rack: str | None = None,
    generation: int = 1,
) -> MemberSubscription:
    """A member of client ``process``; a higher version than the newest is a future member."""
    if version > LATEST_SUPPORTED_VERSION:
        data = version.to_bytes(4, "big") + (latest or version).to_bytes(4, "big") + b"\xde\xad"
    else:
        latest_supported = -1 if version < 3 else (latest or LATEST_SUPPORTED_VERSION)
        data = encode_subscription_info(
            SubscriptionInfo(
                pid(process),
                version,
                latest_supported,
                endpoint,
                {task(text): total for text, total in (sums or {}).items()},
                1,
                error_code,
                tags or {},
            )
        )
    return MemberSubscription(("in",), data, tps(owned), generation, rack)


# -- the cluster -------------------------------------------------------------------------------------------------


@dataclass
class FakeCluster:
    """Topics with partition counts. ``faults`` maps an effect's type to a replacement answer."""

    topics: dict[str, int] = field(default_factory=lambda: {"in": 4})
    end_offset: int = 100
    end_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, int | None] = field(default_factory=dict)
    faults: dict[type[Effect], Callable[[Effect], Event]] = field(default_factory=dict)
    assignor: Callable[[ApplicationState], TaskAssignment] | None = None
    racks: tuple[str, ...] = ("r0",)
    now_ms: int = NOW_MS
    seen: list[Effect] = field(default_factory=list)

    def metadata(self, names: Iterable[str]) -> dict[str, tuple[PartitionInfo, ...]]:
        return {name: self._infos(name) for name in names if name in self.topics}

    def _infos(self, name: str) -> tuple[PartitionInfo, ...]:
        count = len(self.racks)
        return tuple(
            PartitionInfo(name, p, p % count, (p % count,), frozenset({self.racks[p % count]}))
            for p in range(self.topics[name])
        )

    def __post_init__(self) -> None:
        access = _Access(self)
        self.executor = Executor(access, access, access, group="app")

    def execute(self, effect: Effect) -> Event | None:
        self.seen.append(effect)
        fault = self.faults.get(type(effect))
        return self.executor.carry_out(effect) if fault is None else fault(effect)

    def describe(self, names: Iterable[str]) -> dict[str, tuple[PartitionInfo, ...] | AdminError]:
        unknown = AdminError(AdminErrorKind.UNKNOWN_TOPIC, "unknown topic")
        return {name: self._infos(name) if name in self.topics else unknown for name in names}

    def of(self, kind: type[Effect]) -> list[Effect]:
        """Return the effects of one kind, in order."""
        return [effect for effect in self.seen if type(effect) is kind]

    @property
    def created(self) -> dict[str, TopicSpec]:
        return {s.name: s for effect in self.seen if isinstance(effect, CreateTopics) for s in effect.specs}

    @property
    def listed(self) -> set[TopicPartition]:
        return {p for effect in self.seen if isinstance(effect, ListEndOffsets) for p in effect.partitions}

    @property
    def reported(self) -> list[StreamsError]:
        return [effect.error for effect in self.seen if isinstance(effect, ReportError)]

    @property
    def notified(self) -> list[tuple[GroupAssignment, AssignmentError]]:
        return [(e.assignment, e.error) for e in self.seen if isinstance(e, NotifyAssignor)]

    @property
    def logged(self) -> str:
        return "\n".join(effect.text for effect in self.seen if isinstance(effect, Log))


class _Access:
    """The cluster, the clock and the assignor of a FakeCluster, with the executor's interfaces."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def now_ms(self) -> int:
        return self._cluster.now_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self._cluster.now_ms += duration_ms

    def describe_topics(self, names: Collection[str]) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        return self._cluster.describe(names)

    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]:
        self._cluster.topics |= {spec.name: spec.partitions for spec in specs}
        return dict.fromkeys([spec.name for spec in specs])

    def list_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | AdminError]:
        return {p: self._cluster.end_offsets.get(p, self._cluster.end_offset) for p in partitions}

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        return {p: self._cluster.committed.get(p) for p in partitions}

    def ask(self, chosen: object, configs: Mapping[str, object], state: ApplicationState) -> TaskAssignment:
        assert self._cluster.assignor is not None
        return trusted_answer(assignor_name(chosen), self._cluster.assignor(state))

    def notify(self, notice: NotifyAssignor) -> None:
        """Do nothing: ``seen`` has the notices."""


# -- running -----------------------------------------------------------------------------------------------------


class CheckedLeader(GroupLeader):
    """A leader that validates its state after every event."""

    def handle(self, event: Event) -> tuple[Effect, ...]:
        effects = super().handle(event)
        self.validate_state()
        return effects


@dataclass
class Outcome:
    """The result of a request."""

    result: PublishAssignments | FailAssign
    cluster: FakeCluster

    @property
    def published(self) -> PublishAssignments:
        assert isinstance(self.result, PublishAssignments), self.result
        return self.result

    @property
    def error(self) -> Exception:
        assert isinstance(self.result, FailAssign), self.result
        return self.result.error

    @property
    def infos(self) -> dict[str, AssignmentInfo]:
        return {m: decode_assignment_info(a.user_data) for m, a in self.published.assignments.items()}

    @property
    def partitions(self) -> dict[str, tuple[TopicPartition, ...]]:
        return {m: a.partitions for m, a in self.published.assignments.items()}

    @property
    def codes(self) -> dict[str, int]:
        return {m: info.error_code for m, info in self.infos.items()}

    def active(self, name: str) -> list[str]:
        return sorted({str(t) for t in self.infos[name].active_tasks}, key=task)

    def standby(self, name: str) -> list[str]:
        return [str(t) for t in sorted(self.infos[name].standby_tasks)]

    def next_ms(self, name: str) -> int:
        return self.infos[name].next_rebalance_ms


def settings(**changes: object) -> LeaderSettings:
    """Return settings of a leader with process id 1; fields of AssignmentConfigs may be passed directly."""
    fields = AssignmentConfigs.__dataclass_fields__
    configs = {name: changes.pop(name) for name in list(changes) if name in fields}
    return LeaderSettings(
        process_id=pid(1),
        future_process_id=pid(0xFFFF),
        assignment=AssignmentConfigs(**configs),  # type: ignore[arg-type]  # names were checked above
        **changes,  # type: ignore[arg-type]  # tests give what the fields take
    )


def assign(
    members: Mapping[str, MemberSubscription],
    topology: TopologyMetadata = COUNT,
    cluster: FakeCluster | None = None,
    **changes: object,
) -> Outcome:
    """Run one assign step; optionally compare subscriptions with the topology's topics."""
    cluster = cluster if cluster is not None else FakeCluster()
    named = topology.source_topics if changes.pop("compare_topics", False) else frozenset()
    subscribed = topology.source_topics.union(*(sent.topics for sent in members.values()))
    request = AssignRequested(cluster.now_ms, members, cluster.metadata(subscribed), topology, named)
    return Outcome(run_assign(CheckedLeader(settings(**changes)), request, cluster.execute), cluster)
