"""The initial shape of a simulated group: topology, topics, brokers, settings and first members.

Plain values, drawn from a seed by :func:`draw_shape`. Groups are small on purpose. A few tasks are enough to reveal
bugs of placement and membership, and a small group runs many more rebalances per second.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from streams_protocol import LATEST_SUPPORTED_VERSION
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.testing.simulator.releases import FUTURE_VERSION
from streams_py.topology.physical.metadata import InternalTopic, InternalTopicKind, SubtopologyTopics, TopologyMetadata

ASSIGNORS: Final = ("high_availability", "legacy_sticky", "sticky", "fallback", "static", "custom")
"""Assignors that can be simulated.

"custom" is an assignor of the application, which a fault can make misbehave. With "static", every third process
requests the tasks of the first sub-topology, and every third one requests partitions 1 to 3 of all sub-topologies."""

_HOME: Final = "app"


def subtopology(
    sources: str,
    *,
    sinks: str = "",
    stores: str = "",
    unlogged: str = "",
    repartitions: Mapping[str, int | None] | None = None,
    source_changelogs: str = "",
) -> SubtopologyTopics:
    """Create a sub-topology. Names are separated by spaces; a store ``s`` has the changelog ``app-s-changelog``."""
    names = [f"{_HOME}-{store}-changelog" for store in stores.split()]
    return SubtopologyTopics(
        source_topics=frozenset(sources.split()),
        sink_topics=frozenset(sinks.split()),
        repartition_sources={
            name: InternalTopic(name, InternalTopicKind.REPARTITION, count, {"cleanup.policy": "delete"})
            for name, count in (repartitions or {}).items()
        },
        changelogs={
            name: InternalTopic(name, InternalTopicKind.CHANGELOG, None, {"cleanup.policy": "compact"})
            for name in names
        },
        source_changelogs=frozenset(source_changelogs.split()),
        stores=frozenset([*stores.split(), *unlogged.split(), *source_changelogs.split()]),
    )


_REPARTITION: Final = f"{_HOME}-by-key-repartition"

_TOPOLOGIES: Final[Mapping[str, TopologyMetadata]] = {
    "stateless": TopologyMetadata({0: subtopology("in", sinks="out")}),
    "count": TopologyMetadata({0: subtopology("in", stores="counts")}),
    "two stores": TopologyMetadata({0: subtopology("in", stores="counts sums", unlogged="cache")}),
    "repartition": TopologyMetadata(
        {
            0: subtopology("in", sinks=_REPARTITION),
            1: subtopology(_REPARTITION, stores="counts", repartitions={_REPARTITION: None}),
        }
    ),
    "join": TopologyMetadata({0: subtopology("in other", stores="left right")}, (frozenset({"in", "other"}),)),
    "table": TopologyMetadata({0: subtopology("table", source_changelogs="table"), 1: subtopology("in")}),
    "many": TopologyMetadata(
        {
            0: subtopology("in", stores="a"),
            1: subtopology("other", stores="b c"),
            2: subtopology("table", unlogged="cache"),
            3: subtopology("third", stores="d"),
        }
    ),
    "mixed": TopologyMetadata(
        {
            0: subtopology("in", sinks=_REPARTITION),
            1: subtopology(f"{_REPARTITION} other", stores="counts", repartitions={_REPARTITION: None}),
            2: subtopology("table", source_changelogs="table"),
            3: subtopology("third", unlogged="cache"),
        }
    ),
}


@dataclass(frozen=True, slots=True)
class ProcessShape:
    """An application instance at the start."""

    threads: int = 1
    """Number of stream threads."""
    newest: int = LATEST_SUPPORTED_VERSION
    """Newest protocol version that the process supports; ``FUTURE_VERSION`` is a release that does not exist yet."""
    upgrade_from: str | None = None
    """Its ``upgrade.from``, or None."""


Upgrading = tuple[int, str | None]
"""Target of a rolling bounce: (newest protocol version, ``upgrade.from``)."""
UpgradePath = tuple[Upgrading, ...]
"""Rolling bounces in order. A bounce starts when all processes have completed the previous one."""


@dataclass(frozen=True, slots=True)
class GroupShape:
    """A group at its start. ``racks`` and ``zones`` (a client tag) of the clients are chosen by process number."""

    topology: str = "count"
    """Name of the topology."""
    partitions: Mapping[str, int] = field(default_factory=lambda: {"in": 4})
    """Source topic -> number of partitions."""
    broker_racks: tuple[str, ...] = ("r0",)
    """Racks of the brokers."""
    assignor: str = "high_availability"
    """Name of the assignor."""
    assignor_class: str = ""
    """With ``assignor`` "custom": the user's ``package.module:Class``, or "" for the simulator's own."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings of the application, passed to the assignor's ``configure``."""
    configs: AssignmentConfigs = field(default_factory=AssignmentConfigs)
    """Settings of the assignment."""
    processes: tuple[ProcessShape, ...] = (ProcessShape(),)
    """The processes."""
    upgrades: UpgradePath = ()
    """How processes change to another release during the run."""
    end_points: bool = True
    """Whether processes have an ``application.server``."""
    racks: tuple[str, ...] = ()
    """Racks of the clients."""
    zones: tuple[str, ...] = ()
    """Values of the client tag ``zone``."""
    static_members: bool = False
    """Whether members have a ``group.instance.id``."""
    wipe_when_killed: bool = False
    """Whether a killed process leaves no checkpoints, as with exactly-once."""
    restore_records_per_s: int = 2_000
    """Speed at which a store is restored, in records per second."""
    drift_records_per_s: int = 5
    """Speed at which changelogs grow, in records per second."""
    session_timeout_ms: int = 10_000
    """Session timeout of the members, in ms."""
    max_poll_interval_ms: int = 20_000
    """Poll interval of the members, in ms."""
    heartbeat_interval_ms: int = 3_000
    """Heartbeat interval of the members, in ms."""

    @property
    def metadata(self) -> TopologyMetadata:
        """Metadata of the topology."""
        return _TOPOLOGIES[self.topology]


def draw_shape(rng: random.Random, *, assignor: str | None = None) -> GroupShape:
    """Draw a random group.

    Args:
        rng: Source of random numbers.
        assignor: Name of an assignor in :data:`ASSIGNORS`, or ``package.module:Class``. Default: random.
    """
    topology = rng.choice(sorted(_TOPOLOGIES))
    own = assignor if assignor is not None and ":" in assignor else ""
    chosen = "custom" if own else assignor or rng.choices(ASSIGNORS, weights=(60, 12, 14, 2, 6, 12))[0]
    partitions = _draw_partitions(rng, topology)
    replicas = rng.choice((0, 0, 1, 1, 1, 2))
    # The drift between a member's report and the leader's request for end offsets must stay below the acceptable lag.
    acceptable_lag, drift = rng.choice(((0, 0), (100, 0), (100, 1), (10_000, 1), (10_000, 20)))
    zones: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()
    strategy = "none"
    if rng.random() < 0.3:
        racks = tuple(rng.choice(("r0", "r1", "r2")) for _ in range(8))
        strategy = rng.choice(("none", "min_traffic", "balance_subtopology"))
    if rng.random() < 0.2:
        zones = tuple(rng.choice(("z0", "z1", "z2")) for _ in range(8))
    shape = GroupShape(
        topology=topology,
        partitions=partitions,
        broker_racks=("r0", "r1", "r2") if racks else ("r0",),
        assignor=chosen,
        assignor_class=own,
        configs=AssignmentConfigs(
            acceptable_recovery_lag=acceptable_lag,
            max_warmup_replicas=rng.choice((1, 2, 2, 4)),
            num_standby_replicas=replicas,
            probing_rebalance_interval_ms=60_000,
            rack_aware_assignment_tags=("zone",) if zones else (),
            rack_aware_assignment_strategy=strategy,
        ),
        processes=tuple(ProcessShape(rng.choice((1, 1, 2, 3))) for _ in range(rng.randint(1, 4))),
        end_points=rng.random() < 0.8,
        racks=racks,
        zones=zones,
        static_members=rng.random() < 0.15,
        wipe_when_killed=rng.random() < 0.3,
        restore_records_per_s=rng.choice((200, 2_000, 50_000)),
        drift_records_per_s=drift,
    )
    return _with_versions(rng, shape) if rng.random() < 0.4 else shape


def _draw_partitions(rng: random.Random, topology: str) -> dict[str, int]:
    sources = _TOPOLOGIES[topology].source_topics - {_REPARTITION}
    counts = {name: rng.randint(1, 6) for name in sorted(sources)}
    for group in _TOPOLOGIES[topology].copartition_groups:
        same = rng.randint(1, 6)
        counts |= {name: same for name in group if name in counts}
    return counts


_EAGER_UPGRADES: Final[Mapping[int, str]] = {1: "0.10.0", 2: "1.1", 3: "2.0", 4: "2.3"}
"""Value of ``upgrade.from`` for the first bounce, by the newest version of releases with the eager protocol only."""


def _with_versions(rng: random.Random, shape: GroupShape) -> GroupShape:
    """Give the processes other releases and an allowed upgrade path."""
    match rng.choice(("upgrade", "upgrade", "future", "mix", "two bounces")):
        case "upgrade":
            old = rng.randint(5, LATEST_SUPPORTED_VERSION - 1)
            news: list[int] = [old] * len(shape.processes)
            path: UpgradePath = ((LATEST_SUPPORTED_VERSION, None),)
        case "future":
            news = [LATEST_SUPPORTED_VERSION] * len(shape.processes)
            path = ((FUTURE_VERSION, None),)
        case "mix":
            news = [rng.randint(5, FUTURE_VERSION) for _ in shape.processes]
            path = rng.choice((((LATEST_SUPPORTED_VERSION, None),), ((FUTURE_VERSION, None),)))
        case _:
            old = rng.randint(1, 4)
            news = [old] * len(shape.processes)
            path = ((LATEST_SUPPORTED_VERSION, _EAGER_UPGRADES[old]), (LATEST_SUPPORTED_VERSION, None))
    processes = tuple(replace(process, newest=newest) for process, newest in zip(shape.processes, news))
    return replace(shape, processes=processes, upgrades=path)
