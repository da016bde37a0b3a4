"""Schedules that reproduce known bugs of Kafka Streams and related projects.

Each bug is named by its ticket, with a text that describes what went wrong. The schedules run with every checker, so
they check more than the original tests did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from streams_protocol import LATEST_SUPPORTED_VERSION
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.testing.simulator.faults.faults import Fault
from streams_py.testing.simulator.releases import FUTURE_VERSION
from streams_py.testing.simulator.schedule import Action, Schedule
from streams_py.testing.simulator.shape import GroupShape, ProcessShape


@dataclass(frozen=True, slots=True)
class KnownBug:
    """A known bug: its ticket, a description, and the schedules that reproduce its situation."""

    ticket: str
    what: str
    schedules: tuple[Schedule, ...]


def _configs(**changes: object) -> AssignmentConfigs:
    return AssignmentConfigs(probing_rebalance_interval_ms=60_000, **changes)  # type: ignore[arg-type]  # its own fields


_SEEDS: Final = range(4)
_NEW: Final = LATEST_SUPPORTED_VERSION
_Make = Callable[[], tuple[GroupShape, tuple[Action, ...]]]


def _processes(*newest: int, threads: int = 1, upgrade_from: str | None = None) -> tuple[ProcessShape, ...]:
    return tuple(ProcessShape(threads, version, upgrade_from) for version in newest)


def _leader_is_upgraded_first() -> tuple[GroupShape, tuple[Action, ...]]:
    shape = GroupShape(processes=_processes(8, 8, 8), upgrades=((_NEW, None),))
    return shape, tuple(Action(20_000 + 15_000 * n, Fault.UPGRADE) for n in range(3))


def _too_early() -> tuple[GroupShape, tuple[Action, ...]]:
    """One old member remains for a long time; newer ones keep joining."""
    shape = GroupShape(processes=_processes(_NEW, _NEW, 9), upgrades=((FUTURE_VERSION, None),))
    joins = tuple(Action(15_000 + 5_000 * n, Fault.REBALANCE, n) for n in range(4))
    return shape, (*joins, Action(40_000, Fault.UPGRADE), Action(60_000, Fault.UPGRADE), Action(80_000, Fault.UPGRADE))


def _leader_is_old() -> tuple[GroupShape, tuple[Action, ...]]:
    shape = GroupShape(processes=_processes(6, _NEW, FUTURE_VERSION), upgrades=((FUTURE_VERSION, None),))
    return shape, (Action(30_000, Fault.REBALANCE), Action(60_000, Fault.KILL, 0))


def _two_bounces() -> tuple[GroupShape, tuple[Action, ...]]:
    shape = GroupShape(topology="mixed", partitions={"in": 3, "other": 3, "table": 2, "third": 2})
    shape = _with(shape, processes=_processes(4, 4, 4), upgrades=((_NEW, "2.3"), (_NEW, None)))
    return shape, tuple(Action(15_000 + 12_000 * n, Fault.UPGRADE) for n in range(6))


def _oldest_releases() -> tuple[GroupShape, tuple[Action, ...]]:
    shape = GroupShape(processes=_processes(1, 1), upgrades=((_NEW, "0.10.0"), (_NEW, None)))
    return shape, tuple(Action(15_000 + 12_000 * n, Fault.UPGRADE) for n in range(4))


def _restart_before_follow_up() -> tuple[GroupShape, tuple[Action, ...]]:
    """A task is withheld, and its future owner restarts before the follow-up rebalance that it was told to start."""
    shape = GroupShape(partitions={"in": 6}, processes=_processes(_NEW, _NEW), restore_records_per_s=200)
    return shape, (
        Action(20_000, Fault.JOIN, amount=1),
        Action(20_001, Fault.RESTART, 2, 2_000, hook="assigned"),
        Action(60_000, Fault.JOIN, amount=1),
        Action(60_001, Fault.RESTART, 1, 500, hook="revoked"),
    )


def _static_member_misses_probing() -> tuple[GroupShape, tuple[Action, ...]]:
    """A static member restarts without a rebalance; only its old assignment has the time of the follow-up rebalance."""
    shape, actions = _restart_before_follow_up()
    later = tuple(Action(90_000 + 7_000 * n, Fault.RESTART, n, 3_000) for n in range(5))
    return _with(shape, static_members=True), (*actions, *later)


def _stale_claims() -> tuple[GroupShape, tuple[Action, ...]]:
    """A member that the coordinator removed returns, and claims partitions that other members now own."""
    shape = GroupShape(partitions={"in": 6}, processes=_processes(_NEW, _NEW, _NEW))
    zombies = tuple(Action(20_000 + 20_000 * n, Fault.FREEZE, n, lasts_ms=14_000) for n in range(4))
    return shape, (*zombies, Action(50_000, Fault.LYING_MEMBER, lasts_ms=30_000))


def _generation_lost() -> tuple[GroupShape, tuple[Action, ...]]:
    shape = GroupShape(partitions={"in": 6}, processes=_processes(_NEW, _NEW, _NEW))
    lost = tuple(Action(20_000 + 4_000 * n, Fault.LOSE_GENERATION, n) for n in range(8))
    return shape, (*lost, Action(30_000, Fault.COORDINATOR_MOVES), Action(45_000, Fault.COORDINATOR_MOVES))


def _transferring_partition() -> tuple[GroupShape, tuple[Action, ...]]:
    """Members join while partitions are being handed over, in a group with racks."""
    racks = ("r0", "r1", "r2", "r0", "r1", "r2", "r0", "r1")
    shape = GroupShape(
        topology="count",
        partitions={"in": 6},
        broker_racks=("r0", "r1", "r2"),
        racks=racks,
        assignor="sticky",
        configs=_configs(rack_aware_assignment_strategy="min_traffic"),
        processes=_processes(_NEW, _NEW),
    )
    return shape, tuple(Action(15_000 + 2_500 * n, Fault.JOIN, amount=n) for n in range(5))


def _too_many_rebalances() -> tuple[GroupShape, tuple[Action, ...]]:
    """One of many members leaves a group with fewer tasks than threads; it caused 200 rebalances in 10 minutes."""
    shape = GroupShape(
        topology="many",
        partitions={"in": 3, "other": 2, "table": 3, "third": 1},
        processes=_processes(_NEW, _NEW, _NEW, threads=3),
        configs=_configs(num_standby_replicas=1),
    )
    return shape, (Action(20_000, Fault.KILL, 1), Action(50_000, Fault.JOIN, amount=1), Action(70_000, Fault.LEAVE, 0))


def _same_tasks_on_every_thread() -> tuple[GroupShape, tuple[Action, ...]]:
    shape = GroupShape(partitions={"in": 6}, processes=_processes(9, threads=3), upgrades=((_NEW, None),))
    return shape, (Action(20_000, Fault.UPGRADE), Action(50_000, Fault.ADD_THREAD), Action(80_000, Fault.KILL_THREAD))


def _source_topic_missing() -> tuple[GroupShape, tuple[Action, ...]]:
    shape = GroupShape(topology="join", partitions={"in": 3, "other": 3}, processes=_processes(_NEW, _NEW, threads=2))
    return shape, (Action(1, Fault.SOURCE_MISSING, amount=2, lasts_ms=30_000), Action(40_000, Fault.REBALANCE))


def _returning_with_an_old_assignment() -> tuple[GroupShape, tuple[Action, ...]]:
    """A member returns after its session has expired. Its tasks run on other members, but it still claims them."""
    shape = GroupShape(partitions={"in": 4}, processes=_processes(_NEW, _NEW))
    return shape, tuple(
        Action(20_000 + 30_000 * n, fault, n, lasts_ms=lasts_ms)
        for n, (fault, lasts_ms) in enumerate(
            [(Fault.FREEZE, 13_000), (Fault.SLOW, 26_000), (Fault.FREEZE, 25_000), (Fault.SLOW, 21_000)]
        )
    )


def _offsets_not_known() -> tuple[GroupShape, tuple[Action, ...]]:
    """Brokers do not answer requests for end offsets while a member joins: no task may move."""
    shape = GroupShape(partitions={"in": 6}, processes=_processes(_NEW, _NEW), configs=_configs(num_standby_replicas=1))
    return shape, (
        Action(20_000, Fault.OFFSETS_FAIL, amount=2, lasts_ms=60_000),
        Action(21_000, Fault.JOIN, amount=1),
        Action(40_000, Fault.KILL, 0),
    )


def _zombies_commit() -> tuple[GroupShape, tuple[Action, ...]]:
    """Threads hang until their sessions expire while others join, and commit their old positions when they resume."""
    shape = GroupShape(topology="two stores", partitions={"in": 6}, processes=_processes(_NEW, _NEW, threads=2))
    hangs = tuple(Action(15_000 + 25_000 * n, Fault.FREEZE, n, lasts_ms=16_000 + 3_000 * n) for n in range(4))
    slow = tuple(Action(130_000 + 30_000 * n, Fault.SLOW, 16 * n, lasts_ms=24_000) for n in range(3))
    return shape, (*hangs, Action(40_000, Fault.JOIN, amount=1), *slow)


def _offset_fetch_fails() -> tuple[GroupShape, tuple[Action, ...]]:
    """Committed offsets cannot be fetched during a rebalance. Afterwards every member must process records."""
    shape = GroupShape(topology="table", partitions={"table": 4, "in": 2}, processes=_processes(_NEW, _NEW))
    return shape, (
        Action(10_000, Fault.COMMITTED_FAIL, amount=1, lasts_ms=45_000),
        Action(12_000, Fault.JOIN, amount=1),
        Action(30_000, Fault.RESTART, 0, 1_000),
        Action(50_000, Fault.COORDINATOR_MOVES),
    )


def _leave_is_lost() -> tuple[GroupShape, tuple[Action, ...]]:
    shape = GroupShape(partitions={"in": 4}, processes=_processes(_NEW, _NEW, _NEW))
    return shape, (
        Action(15_000, Fault.REPLIES_LOST, amount=1, lasts_ms=60_000),
        Action(20_000, Fault.LEAVE, 1, 1),
        Action(45_000, Fault.RESTART, 0, 100),
    )


def _thread_restores_while_records_arrive() -> tuple[GroupShape, tuple[Action, ...]]:
    """Two threads of a process are both behind while records arrive. A task must not move between them forever."""
    shape = GroupShape(
        topology="join",
        partitions={"in": 6, "other": 6},
        assignor="sticky",
        processes=_processes(_NEW, _NEW, _NEW, _NEW, threads=2),
        restore_records_per_s=200,
        drift_records_per_s=20,
    )
    return shape, tuple(Action(20_000 + 9_000 * n, Fault.KILL_THREAD, n) for n in range(5))


def _with(shape: GroupShape, **changes: object) -> GroupShape:
    return replace(shape, **changes)  # type: ignore[arg-type]  # its own fields


_STORIES: Final[Mapping[str, tuple[str, _Make]]] = {
    "KAFKA-8649": ("an upgraded leader told old members to upgrade, which they did blindly", _leader_is_upgraded_first),
    "KAFKA-8649 (threads)": ("every thread of an instance was given the same tasks", _same_tasks_on_every_thread),
    "KAFKA-14646": ("upgrading in two bounces was broken", _two_bounces),
    "KIP-268 (too early)": ("the group must not upgrade its version while an old member remains", _too_early),
    "KIP-268 (old leader)": ("probing works although the leader itself is old", _leader_is_old),
    "KIP-268 (oldest)": ("releases before version probing are upgraded in two bounces", _oldest_releases),
    "KAFKA-9821": ("a member that restarts before the follow-up forgets it", _restart_before_follow_up),
    "KIP-441 (static)": ("a static member must find the follow-up in its assignment", _static_member_misses_probing),
    "KAFKA-12984": ("stale claims of owned partitions were believed", _stale_claims),
    "KAFKA-13419": ("a lost generation left old claims behind", _generation_lost),
    "KAFKA-15170": (
        "the rack-aware sticky assignor lost a partition that was being handed over",
        _transferring_partition,
    ),
    "KAFKA-15106": ("a wrong test of balance led to 200 rebalances in 10 minutes", _too_many_rebalances),
    "KAFKA-5037": ("unknown source topics made the group spin", _source_topic_missing),
    "KAFKA-9841": ("a returning member with an old assignment duplicated work", _returning_with_an_old_assignment),
    "KIP-429 (zombies)": ("a thread that has lost its tasks commits for them", _zombies_commit),
    "franz-go (offset fetch)": ("a failed fetch of offsets left members healthy and idle", _offset_fetch_fails),
    "KIP-441 (offsets)": ("unknown end offsets must move nothing", _offsets_not_known),
    "KIP-429 (lost leave)": ("a LeaveGroup request never arrives", _leave_is_lost),
    "KIP-441 (threads)": ("a restoring task kept moving between threads", _thread_restores_while_records_arrive),
}


def _known_bugs() -> dict[str, KnownBug]:
    found = {}
    for ticket, (what, make) in _STORIES.items():
        shape, actions = make()
        found[ticket] = KnownBug(ticket, what, tuple(Schedule(seed, shape, actions) for seed in _SEEDS))
    return found


KNOWN_BUGS: Final[Mapping[str, KnownBug]] = _known_bugs()
"""Known bugs by ticket, or by the KIP whose rule they test."""

NOT_REPRODUCED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("KAFKA-8755", "KAFKA-9169", "KAFKA-10010", "KAFKA-14299"),
        "restore and standby tasks: the simulator has no state stores",
    ),
    **dict.fromkeys(
        ("KAFKA-9727", "KAFKA-9734", "KAFKA-9891"), "dirty state under exactly-once, which is not simulated"
    ),
    "KAFKA-15059": "fencing of tasks before a restart in Kafka Connect",
}
"""Known bugs that the simulator cannot reproduce, with the reason."""
