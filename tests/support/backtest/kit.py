"""Builds situations, and asks candidates about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streams_py.backtest.candidates import CONFIG_KEYS, Candidate, Chosen, choose, parse_candidate
from streams_py.backtest.deciding import Answer, Followup, Placed
from streams_py.backtest.inputs import ReplayClient, ReplayInput
from streams_py.backtest.kernel import Bench, Orders, Row
from streams_py.backtest.situation import Situation
from streams_py.events.model import Consumer, OffsetSums, Racks, SubtopologySlice
from streams_py.events.taskset import parse_task_set

A, B, C, D = (f"00000000-0000-0000-0000-00000000000{number}" for number in range(1, 5))

CONFIGS: dict[str, Any] = dict.fromkeys(CONFIG_KEYS) | {
    "acceptable.recovery.lag": 100,
    "max.warmup.replicas": 2,
    "num.standby.replicas": 0,
    "probing.rebalance.interval.ms": 600_000,
}


def sub(
    number: int = 0,
    ends: Sequence[int] | None = (1_000,) * 4,
    *,
    count: int = 4,
    racks: Racks | None = None,
    **more: Any,
) -> SubtopologySlice:
    """A sub-topology with a store, or a stateless one without ``ends``."""
    has_state = ends is not None
    return SubtopologySlice(
        sub=str(number),
        first=0,
        count=len(ends) if ends is not None else count,
        stateful=has_state,
        logged=has_state,
        stores=["store"] if has_state else [],
        sources=[f"in-{number}"],
        changelogs=[f"changelog-{number}"] if has_state else [],
        end=ends,
        racks=racks,
        **more,
    )


def client(
    name: str, active: str = "", sums: Mapping[str, int] | None = None, *, threads: int = 1, **more: Any
) -> ReplayClient:
    """An instance that runs ``active`` (a task set, reported as running) and also has ``sums``."""
    running = parse_task_set(active)
    reported = dict.fromkeys(running, -2)
    for text, value in (sums or {}).items():
        reported |= dict.fromkeys(parse_task_set(text), value)
    consumers = [Consumer(f"{name}-{thread}", 11, 11, running[thread::threads]) for thread in range(threads)]
    tasks = sorted(reported)
    return ReplayClient(
        name,
        None,
        more.pop("rack", None),
        more.pop("tags", {}),
        consumers,
        running,
        [task for task in tasks if task not in running],
        OffsetSums(tasks, [reported[task] for task in tasks]),
    )


def replay(*clients: ReplayClient, subs: Sequence[SubtopologySlice] = (), **configs: Any) -> ReplayInput:
    """Settings may be given with underscores for dots."""
    given = {key.replace("__", "_").replace("_", "."): value for key, value in configs.items()}
    return ReplayInput(CONFIGS | given, True, list(subs) or [sub()], list(clients))


def placed(**of: tuple[str, str] | str) -> dict[str, Placed]:
    """``A="0:0-3"`` or ``A=("0:0-3", "1:0")`` for actives and standbys."""
    names = {"A": A, "B": B, "C": C, "D": D}
    found = {}
    for short, value in of.items():
        active, standby = value if isinstance(value, tuple) else (value, "")
        found[names[short]] = Placed(parse_task_set(active), parse_task_set(standby))
    return found


def chosen(text: str) -> Chosen:
    return choose(parse_candidate(text))


def mine(assignor: type, **overrides: object) -> Chosen:
    return choose(Candidate("mine", assignor, overrides))


def answer(of: dict[str, Placed], followup: str = "none") -> Answer:
    return Answer(of, Followup(followup))


def rows(situation: ReplayInput, *candidates: Candidate | str, **options: Any) -> list[Row]:
    made = [parse_candidate(one) if isinstance(one, str) else one for one in candidates]
    bench = Bench(Orders(made, **options))
    return list(bench.rows(situation.canonical(), input_hash=situation.hash()))


def situation_of(of: ReplayInput, **overrides: object) -> Situation:
    return Situation(of, overrides)
