"""Schedules: a group and the events that happen to it. Plain values; the same schedule always runs the same way."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Final

from streams_py.testing.simulator.assignors import BEHAVIOURS
from streams_py.testing.simulator.faults.faults import Fault
from streams_py.testing.simulator.shape import GroupShape, draw_shape

HOOKS: Final = ("assign begins", "effect", "assigned", "revoked")
"""Points of a rebalance at which an action can be triggered, on the thread that reaches the point."""


@dataclass(frozen=True, slots=True)
class Action:
    """An event of a schedule.

    Attributes:
        at_ms: Time since the start.
        fault: The kind of event.
        pick: Selects the process or thread that it affects.
        amount: Size of the effect; its meaning depends on the kind.
        lasts_ms: Duration of a fault that lasts.
        hook: If set, the action waits from ``at_ms`` on, and affects the next thread that reaches this point.
        behaviour: Behaviour of the assignor, for assignor faults.
    """

    at_ms: int
    fault: Fault
    pick: int = 0
    amount: int = 0
    lasts_ms: int = 0
    hook: str | None = None
    behaviour: str = ""

    def __str__(self) -> str:
        parts = [f"{self.at_ms / 1000:8.3f} s  {self.fault.value}", f"pick {self.pick}"]
        if self.amount:
            parts.append(f"amount {self.amount}")
        if self.lasts_ms:
            parts.append(f"for {self.lasts_ms / 1000:g} s")
        if self.hook:
            parts.append(f"when {self.hook}")
        if self.behaviour:
            parts.append(self.behaviour)
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A group and its events. ``seed`` determines everything that the actions leave open."""

    seed: int
    """Seed of the random choices."""
    shape: GroupShape
    """The group at its start."""
    actions: tuple[Action, ...] = ()
    """The events, in order of time."""
    mutant: str | None = None
    """Name of a planted bug, or None."""
    kept: tuple[int, ...] | None = field(default=None)
    """Indexes of these actions in the drawn schedule; None for all."""

    def keeping(self, numbers: tuple[int, ...]) -> Schedule:
        """Return the same schedule with only these actions."""
        before = self.kept if self.kept is not None else tuple(range(len(self.actions)))
        return replace(
            self,
            actions=tuple(self.actions[number] for number in numbers),
            kept=tuple(before[number] for number in numbers),
        )


_INSTANT: Final = {
    Fault.JOIN: 10,
    Fault.ADD_THREAD: 4,
    Fault.LEAVE: 5,
    Fault.KILL: 8,
    Fault.KILL_THREAD: 5,
    Fault.RESTART: 6,
    Fault.WIPE: 3,
    Fault.FREEZE: 6,
    Fault.SLOW: 4,
    Fault.LOSE_GENERATION: 3,
    Fault.REBALANCE: 4,
    Fault.LAG_JUMP: 5,
    Fault.CLOCK_JUMP: 2,
    Fault.PARTITIONS_ADDED: 1,
    Fault.COORDINATOR_MOVES: 3,
}
_LASTING: Final = {
    Fault.GARBAGE_MEMBER: 4,
    Fault.LYING_MEMBER: 4,
    Fault.FALSE_OFFSETS: 3,
    Fault.CORRUPT_ASSIGNMENT: 2,
    Fault.DESCRIBE_FAILS: 3,
    Fault.CREATE_FAILS: 3,
    Fault.OFFSETS_FAIL: 4,
    Fault.COMMITTED_FAIL: 3,
    Fault.SOURCE_MISSING: 1,
    Fault.SLOW_NETWORK: 2,
    Fault.REPLIES_LOST: 3,
}
_STATE: Final = (Fault.OFFSETS_MADE_UP, Fault.RESTORE_UNANSWERED, Fault.RESTORE_MADE_UP, Fault.CHECKPOINT_TORN)
"""Faults of restores and of their requests. Drawn separately; each kind is in half of the schedules."""
_ASSIGNOR: Final = (Fault.ASSIGNOR_RAISES, Fault.ASSIGNOR_HANGS, Fault.ASSIGNOR_NONSENSE)
_EVICTIONS: Final = (Fault.EVICTED_LATE, Fault.EVICTED_TWICE, Fault.EVICTED_ALIVE, Fault.EVICTED_BY_LIAR)
"""Removals of members by other clients. Drawn separately, and only if they are requested."""
_HOOKABLE: Final = frozenset(
    {
        Fault.KILL,
        Fault.KILL_THREAD,
        Fault.FREEZE,
        Fault.RESTART,
        Fault.LOSE_GENERATION,
        Fault.EVICTED_LATE,
        Fault.EVICTED_TWICE,
        Fault.EVICTED_ALIVE,
    }
)


def draw_schedule(seed: int, *, assignor: str | None = None, actions: int = 36, evictions: bool = False) -> Schedule:
    """Draw the schedule of a seed, with about ``actions`` actions.

    Args:
        seed: Seed of all random choices.
        assignor: Name of an assignor in :data:`ASSIGNORS`, or ``package.module:Class``. Default: random.
        actions: Average number of actions.
        evictions: Whether members are also removed by other clients. The other actions are the same without.
    """
    rng = random.Random(f"schedule {seed}")
    shape = draw_shape(rng, assignor=assignor)
    weights: dict[Fault, float] = {**_INSTANT, **_LASTING}
    if shape.assignor == "custom":
        weights |= dict.fromkeys(_ASSIGNOR, 4)
    if shape.upgrades:
        weights[Fault.UPGRADE] = 25
    on = [fault for fault in weights if fault is Fault.UPGRADE or rng.random() < rng.choice((0.3, 0.6))]
    on = on or [Fault.JOIN]
    scaled = [weights[fault] * rng.uniform(0.2, 2) for fault in on]
    at_ms = 4_000
    drawn = []
    pace_ms = rng.choice((2_000, 8_000, 25_000))
    for _ in range(rng.randint(max(1, actions // 2), actions * 3 // 2)):
        at_ms += int(rng.expovariate(1 / pace_ms))
        drawn.append(_draw_action(rng, at_ms, rng.choices(on, weights=scaled)[0]))
    drawn += _draw_state_faults(seed, at_ms)
    if evictions:
        drawn += _draw_evictions(seed, at_ms)
    return Schedule(seed, shape, tuple(drawn))


def _draw_state_faults(seed: int, last_ms: int) -> list[Action]:
    rng = random.Random(f"state {seed}")
    faults = [fault for fault in _STATE if rng.random() < 0.5]
    return [_draw_action(rng, rng.randrange(last_ms), fault) for fault in faults for _ in range(rng.randint(1, 3))]


def _draw_evictions(seed: int, last_ms: int) -> list[Action]:
    """Draw removals of members. In most of the time, processes also remove the members of dead processes."""
    rng = random.Random(f"evictions of schedule {seed}")
    drawn = [
        Action(at_ms, Fault.EVICTIONS, 0, rng.randint(1, 100_000), rng.choice((20_000, 60_000)))
        for at_ms in range(0, last_ms, 60_000)
    ]
    faults = [fault for fault in _EVICTIONS if rng.random() < 0.6]
    drawn += [_draw_action(rng, rng.randrange(last_ms), fault) for fault in faults for _ in range(rng.randint(1, 4))]
    return drawn


def _draw_action(rng: random.Random, at_ms: int, fault: Fault) -> Action:
    hook = rng.choice(HOOKS) if fault in _HOOKABLE and rng.random() < 0.4 else None
    lasts_ms = rng.choice((3_000, 15_000, 60_000))
    behaviour = ""
    match fault:
        case Fault.ASSIGNOR_RAISES:
            behaviour = rng.choice(("raises", "refuses"))
        case Fault.ASSIGNOR_HANGS:
            behaviour = "hangs"
        case Fault.ASSIGNOR_NONSENSE:
            behaviour = rng.choice(BEHAVIOURS[4:])
        case _:
            pass
    return Action(at_ms, fault, rng.getrandbits(20), rng.randint(1, 100_000), lasts_ms, hook, behaviour)
