"""The rows of the table: each scenario on both sides, in new processes, by processor time.

A run on the JVM is stopped after 100 seconds of processor time, or 60 seconds with more than one standby, or after
``$STREAMS_PY_BENCH_JVM_LIMIT_S`` seconds. Its time is then at least that, which may be enough for the goal. But its
decision is unknown, so it cannot be compared. Smaller groups with the same number of standbys show that decisions are
equal.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.assignors.jvm import JvmRuns, Limits, hash_sizing, prepare, run_on_jvm
from benchmarks.assignors.scenarios import MIN_TRAFFIC, Scenario
from benchmarks.cluster import BenchmarkError
from benchmarks.table import Goal, Row
from streams_py.assignment.java_order import HashSizing
from streams_py.testing.broker import KAFKA_VERSION

Tick = Callable[[str], None]

_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_PEER: Final = f"Kafka Streams {KAFKA_VERSION}, warm JVM"
_LIMIT_VARIABLE: Final = "STREAMS_PY_BENCH_JVM_LIMIT_S"
_LARGE: Final = 2_000_000  # tasks x clients from which a single JVM run is long enough to be warm
_TITLES: Final = {
    "high_availability": "high availability",
    "sticky": "sticky (public)",
    "legacy_sticky": "sticky (internal)",
    MIN_TRAFFIC: "rack-aware min_traffic",
    "leader": "leader's assign step, bytes in to bytes out",
    "leader-hosts": "the same with end points (264 MB out)",
}
_SITUATIONS: Final = {"steady": "steady", "joined": "one joined", "left": "one left", "cold": "cold"}


def _times(times: int) -> Goal:
    return Goal(f">= {times:,} times faster", ratio_max=1 / times)


_WITH_JVM: Final[tuple[tuple[str, Goal], ...]] = (
    ("high_availability/1000x10/r1/steady", _times(2)),
    ("high_availability/1000x10/r1/joined", _times(2)),
    ("high_availability/1000x100/r1/steady", _times(2)),
    ("high_availability/1000x100/r1/joined", _times(2)),
    ("high_availability/1000x100/r2/joined", _times(2)),
    ("high_availability/1000x100/r3/joined", _times(2)),
    ("high_availability/10000x1000/r1/steady", _times(200)),
    ("high_availability/10000x1000/r1/joined", _times(200)),
    ("high_availability/10000x1000/r2/steady", _times(5)),
    ("high_availability/10000x1000/r2/joined", _times(5)),
    ("high_availability/10000x1000/r3/steady", _times(5)),
    ("high_availability/10000x1000/r3/joined", _times(5)),
    ("sticky/10000x1000/r1/cold", Goal("not slower", ratio_max=1.0)),
    ("sticky/10000x1000/r1/steady", Goal("not slower", ratio_max=1.0)),
    ("sticky/10000x1000/r1/joined", Goal("not slower", ratio_max=1.0)),
    ("legacy_sticky/10000x1000/r1/joined", Goal("not slower", ratio_max=1.0)),
    ("min_traffic/300x30/r0/cold", Goal("")),
    ("min_traffic/500x50/r0/cold", _times(10_000)),
)


class _Alone(NamedTuple):
    """A scenario without a peer: limits in seconds and MB, and the reason for having no peer."""

    name: str
    seconds: float
    megabytes: float | None
    why: str


_TOO_LARGE: Final = "beyond the JVM"
_ALONE: Final = (
    _Alone("high_availability/100000x1000/r1/cold", 3, 500, _TOO_LARGE),
    _Alone("high_availability/100000x1000/r1/steady", 3, 500, _TOO_LARGE),
    _Alone("high_availability/100000x1000/r1/joined", 3, 500, _TOO_LARGE),
    _Alone("sticky/100000x1000/r1/cold", 20, None, _TOO_LARGE),
    _Alone("sticky/100000x1000/r1/joined", 20, None, _TOO_LARGE),
    _Alone("min_traffic/50000x1000/r0/cold", 0.5, None, _TOO_LARGE),
    _Alone("leader/10000x1000/r1/steady", 4, 500, ""),
    _Alone("leader/10000x1000/r1/joined", 4, 500, ""),
    _Alone("leader-hosts/10000x1000/r1/joined", 4, 500, ""),
)

_GROWTH_TASKS: Final = (1_000, 10_000, 100_000)
_GROWTH_SITUATIONS: Final = ("steady", "joined")


@dataclass(frozen=True, slots=True)
class _Ours:
    seconds: tuple[float, ...]
    outcome: str
    peak_mb: float


def assignor_rows(runs: int, tick: Tick, *, with_jvm: bool = True) -> Iterator[Row]:
    """Yield all rows. ``runs``: minimum number of runs of this library. ``with_jvm``: compare with the JVM."""
    with tempfile.TemporaryDirectory(prefix="streams-py-bench-") as text:
        folder = Path(text)
        command: list[str] = []
        why, failed, sizing = "", False, HashSizing.JDK_19_AND_NEWER
        try:
            if with_jvm:
                command = prepare(folder)
                sizing = hash_sizing(command)
            else:
                why = "not requested"
        except BenchmarkError as error:
            why, failed = str(error), True
        for name, goal in _WITH_JVM:
            scenario = Scenario.parse(name)
            tick(f"{_title(scenario)}, ours")
            ours = _run_ours(name, sizing, runs)
            if why:
                yield _without_peer(scenario, ours, goal, why, failed=failed)
                continue
            tick(f"{_title(scenario)}, Kafka Streams")
            try:
                jvm = run_on_jvm(command, scenario, sizing, _limits(scenario), folder)
            except BenchmarkError as error:
                yield _without_peer(scenario, ours, goal, str(error), failed=True)
                continue
            yield _compared(scenario, ours, jvm, goal)
        for alone in _ALONE:
            tick(_title(Scenario.parse(alone.name)))
            yield from _alone_rows(alone, _run_ours(alone.name, sizing, runs))
        for situation in _GROWTH_SITUATIONS:
            tick(f"growth, {situation}")
            yield _growth_row(situation, sizing, runs)


def _without_peer(scenario: Scenario, ours: _Ours, goal: Goal, why: str, *, failed: bool) -> Row:
    seconds = _milliseconds(ours.seconds)
    return Row(_title(scenario), _PEER, "ms", seconds, goal=goal, note=why, failed=failed)


def _title(scenario: Scenario) -> str:
    title = f"{_TITLES[scenario.assignor]}, {scenario.tasks:,} x {scenario.clients:,}"
    if scenario.assignor == MIN_TRAFFIC:
        return title
    standbys = f"{scenario.replicas} standby{'s' if scenario.replicas > 1 else ''}"
    return f"{title}, {standbys}, {_SITUATIONS[scenario.situation]}"


def _limits(scenario: Scenario) -> Limits:
    limit_s = float(os.environ.get(_LIMIT_VARIABLE, "100" if scenario.replicas <= 1 else "60"))
    large = scenario.tasks * scenario.clients > _LARGE and scenario.assignor == "high_availability"
    return Limits(runs_min=1 if large or scenario.assignor == MIN_TRAFFIC else 3, limit_s=limit_s)


def _run_ours(name: str, sizing: HashSizing, runs: int) -> _Ours:
    """Run a scenario in a separate process. With many runs, the first half is warm-up and does not count."""
    command = [sys.executable, "-m", "benchmarks.assignors.probe", name, sizing.name, str(max(runs, 3)), "100", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, check=False, timeout=600)
    if done.returncode:
        raise BenchmarkError(f"{name}: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}")
    found = json.loads(done.stdout)
    seconds = found["seconds"]
    warm = seconds[len(seconds) // 2 :] if len(seconds) > 5 else seconds
    return _Ours(tuple(warm), found["outcome"], found["peak_mb"])


def _milliseconds(seconds: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(1000 * value for value in seconds)


def _compared(scenario: Scenario, ours: _Ours, jvm: JvmRuns, goal: Goal) -> Row:
    compared_with, note, peer = _PEER, "", jvm.seconds
    if not jvm.seconds and jvm.gave_up_s is not None:
        note = f"gave up after {jvm.gave_up_s:,.0f} s"
        # The JVM would have taken even longer. If the limit meets the goal, the goal is met; otherwise it is unknown.
        if goal.is_met(median(ours.seconds), jvm.gave_up_s):
            peer = (jvm.gave_up_s,)
    elif jvm.outcome == ours.outcome:
        compared_with += "; equal cost" if scenario.assignor == MIN_TRAFFIC else "; equal decisions"
    else:
        compared_with += "; DECISIONS DIFFER"
        goal = Goal("equal decisions", ours_max=-1.0)
    return Row(_title(scenario), compared_with, "ms", _milliseconds(ours.seconds), _milliseconds(peer), goal, note)


def _alone_rows(alone: _Alone, ours: _Ours) -> Iterator[Row]:
    title = _title(Scenario.parse(alone.name))
    yield Row(title, "", "s", ours.seconds, goal=Goal(f"< {alone.seconds:g} s", ours_max=alone.seconds), note=alone.why)
    if alone.megabytes is not None:
        goal = Goal(f"< {alone.megabytes:g} MB", ours_max=alone.megabytes)
        yield Row(f"{title}: memory", "", "MB", (ours.peak_mb,), goal=goal)


def _growth_row(situation: str, sizing: HashSizing, runs: int) -> Row:
    """Return the largest growth of the time from one size to the next, relative to the growth of n log n."""
    found = [
        median(_run_ours(f"high_availability/{tasks}x1000/r1/{situation}", sizing, runs).seconds)
        for tasks in _GROWTH_TASKS
    ]
    steps = [
        (after / before) / (larger * math.log(larger) / (smaller * math.log(smaller)))
        for before, after, smaller, larger in zip(found, found[1:], _GROWTH_TASKS, _GROWTH_TASKS[1:])
    ]
    title = f"high availability, growth from {_GROWTH_TASKS[0]:,} to {_GROWTH_TASKS[-1]:,} tasks"
    title += f" x 1,000, {_SITUATIONS[situation]}: worst step"
    return Row(title, "", "n log n", (max(steps),), goal=Goal("< 1.3 n log n", ours_max=1.3))
