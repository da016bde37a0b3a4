"""Fakes for the emitter, and a leader whose assign steps are recorded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from streams_py.errors import BrokerUnavailableError
from streams_py.events.codec import EventRecord, decode_event
from streams_py.events.draft import Draft
from streams_py.events.emitter import Emitter, Limits
from streams_py.events.model import ClientPart, Envelope, Event, RebalanceHeader, TasksPart
from streams_py.events.parts import WholeRebalance, join_rebalance
from streams_py.events.topic import EventTopic, EventTopicSettings
from streams_py.events.watch import AssignWatch
from streams_py.leader.drive import run_assign
from streams_py.leader.effects import Effect, EnterStep, FailAssign, Observe, PublishAssignments
from streams_py.leader.events import AssignRequested
from streams_py.leader.events import Event as LeaderEvent
from streams_py.leader.leader import GroupLeader
from streams_py.leader.settings import LeaderSettings
from streams_py.ports import AdminError, AdminErrorKind, MemberSubscription, PartitionInfo, TopicSpec
from streams_py.topology.physical.metadata import TopologyMetadata
from tests.support.leader.kit import COUNT, FakeCluster, settings

ENVELOPE = Envelope(group="app", process="p1", run="r1", seq=7, at_ms=1_700_000_000_000, mono_us=5_000_000, dropped=0)


@dataclass
class FakeProducer:
    """Keeps what it is sent. ``error`` is what every record ends with; reports come from ``poll`` and ``flush``."""

    error: str | None = None
    sent: list[tuple[str, EventRecord]] = field(default_factory=list)
    waiting: list[Callable[[str | None], None]] = field(default_factory=list)
    is_silent: bool = False
    is_closed: bool = False

    def send(self, topic: str, record: EventRecord, on_delivery: Callable[[str | None], None]) -> None:
        self.sent.append((topic, record))
        self.waiting.append(on_delivery)

    def poll(self, timeout_ms: int) -> None:
        if not self.is_silent:
            reports, self.waiting = self.waiting, []
            for report in reports:
                report(self.error)

    def flush(self, timeout_ms: int) -> int:
        self.poll(timeout_ms)
        return len(self.waiting)

    def close(self) -> None:
        self.is_closed = True

    @property
    def events(self) -> list[Event]:
        decoded = [decode_event(record.value) for _, record in self.sent]
        return [event for event in decoded if isinstance(event, Event)]


class FakeAdmin:
    """Knows ``topics``; ``describing`` and ``creating`` are errors to answer with."""

    def __init__(
        self,
        topics: Collection[str] = (),
        *,
        describing: AdminError | BrokerUnavailableError | None = None,
        creating: AdminError | None = None,
    ) -> None:
        self.topics = set(topics)
        self.describing = describing
        self.creating = creating
        self.created: list[TopicSpec] = []
        self.asked = 0

    def describe_topics(
        self, names: Collection[str] | None = None
    ) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        self.asked += 1
        if isinstance(self.describing, BrokerUnavailableError):
            raise self.describing
        unknown = self.describing or AdminError(AdminErrorKind.UNKNOWN_TOPIC, "unknown topic")
        return {name: () if name in self.topics else unknown for name in names or ()}

    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]:
        self.created += specs
        if self.creating is None:
            self.topics |= {spec.name for spec in specs}
        return {spec.name: self.creating for spec in specs}


@dataclass
class Background:
    """An emitter with fakes around it. It is not started: events wait until :meth:`run`."""

    limits: Limits = field(default_factory=Limits)
    producer: FakeProducer = field(default_factory=FakeProducer)
    admin: FakeAdmin = field(default_factory=FakeAdmin)

    def __post_init__(self) -> None:
        self.topic = EventTopic(EventTopicSettings(name="app-assignment-events"), self.admin)
        self.emitter = Emitter(
            group="app",
            process="p1",
            run="r1",
            topic=self.topic,
            make_producer=lambda: self.producer,
            limits=self.limits,
            clock_ms=lambda: 1_700_000_000_000,
            monotonic_us=lambda: 5_000_000,
        )

    def run(self, timeout_s: float = 10.0) -> Mapping[str, int]:
        """Start, send everything, end; the counters."""
        self.emitter.start()
        self.emitter.close(timeout_s)
        return self.emitter.counters()


@dataclass
class Recorded:
    """What a watched assign step published, and the drafts it left."""

    result: PublishAssignments | FailAssign
    drafts: list[Draft]

    @property
    def events(self) -> list[Event]:
        decoded = [decode_event(record.value) for draft in self.drafts for record in draft.records(ENVELOPE)]
        return [event for event in decoded if isinstance(event, Event)]

    @property
    def whole(self) -> WholeRebalance:
        return whole(self.events)


def whole(events: Sequence[Event]) -> WholeRebalance:
    """The one rebalance in these events."""
    bodies = [e.body for e in events if isinstance(e.body, RebalanceHeader | TasksPart | ClientPart)]
    joined = join_rebalance({body.part: body for body in bodies})
    assert joined is not None
    return joined


class Recorder:
    """A leader that is watched, for several rounds."""

    def __init__(self, *, generation: int = 1, member: str = "leader", **changes: object) -> None:
        self.settings: LeaderSettings = settings(**changes)
        self.generation = generation
        self.member = member
        self.drafts: list[Draft] = []
        self._ticks = 0
        self.watch = AssignWatch(
            self.drafts.append,
            self.settings,
            group="app",
            forming=lambda: (self.generation, self.member),
            monotonic_us=self._tick,
        )
        self.leader = GroupLeader(self.settings)

    def _tick(self) -> int:
        self._ticks += 1_000
        return self._ticks

    def _execute(self, cluster: FakeCluster, effect: Effect) -> LeaderEvent | None:
        match effect:
            case EnterStep(fact) | Observe(fact):
                self.watch.observe(fact)
        return cluster.execute(effect)

    def assign(
        self,
        members: Mapping[str, MemberSubscription],
        topology: TopologyMetadata = COUNT,
        cluster: FakeCluster | None = None,
        assignor: object = None,
    ) -> Recorded:
        cluster = cluster if cluster is not None else FakeCluster()
        request = AssignRequested(cluster.now_ms, members, cluster.metadata(topology.source_topics), topology)
        self.watch.began(members)
        try:
            result = run_assign(self.leader, request, partial(self._execute, cluster))
        except BaseException as error:
            self.watch.ended(error, assignor)
            raise
        self.watch.ended(result, assignor)
        self.generation += 1
        return Recorded(result, [self.drafts[-1]])
