"""Cost of assignment events: in the leader's assign step, and in the import of the library.

The step is the same as in the assignors' benchmark, from bytes to bytes, with an emitter whose producer only counts.
Runs with and without events take turns, and the emitter is idle before each run. Compared is the processor time of the
leader's thread (of the process, for imports). The bytes for the members must be equal.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from benchmarks.assignors.leader_step import LeaderStep, StepExecutor, leader_step
from benchmarks.assignors.scenarios import Scenario
from benchmarks.cluster import BenchmarkError
from benchmarks.table import Goal, Row
from streams_protocol import decode_assignment_info
from streams_py.adapters.kafka_python.classic.payloads import assignments_to_send, readable_members
from streams_py.events.assignment_events import monotonic_us
from streams_py.events.codec import EventRecord
from streams_py.events.emitter import Emitter, Limits
from streams_py.events.observers import AssignObserver
from streams_py.events.watch import AssignWatch
from streams_py.leader.drive import run_assign
from streams_py.leader.effects import PublishAssignments
from streams_py.leader.events import AssignRequested
from streams_py.leader.leader import GroupLeader

Tick = Callable[[str], None]

_SCENARIO: Final = Scenario("high_availability", 1_000, 100, 1, "joined")
_BLOCKS: Final = 7
_TURNS: Final = 6
_ROOT: Final = Path(__file__).resolve().parent.parent
_EXTRA: Final = ("pyspark", "pyarrow", "pandas", "numpy", "matplotlib")
_REST_S: Final = 60.0


class _Counting:
    """A producer, an admin client and a topic that accept everything immediately."""

    def __init__(self) -> None:
        self.bytes = 0

    name = "events"

    def is_ready(self, warn: object, *, until_s: float | None = None) -> bool:
        return True

    def doubt(self) -> None: ...

    def confirm(self) -> None: ...

    def send(self, topic: str, record: EventRecord, on_delivery: Callable[[str | None], None]) -> None:
        self.bytes += len(record.value)
        on_delivery(None)

    def poll(self, timeout_ms: int) -> None: ...

    def flush(self, timeout_ms: int) -> int:
        return 0

    def close(self) -> None: ...


class _Events:
    """An emitter, and an observer of the leader that uses it."""

    def __init__(self, step: LeaderStep) -> None:
        self.sink = _Counting()
        self.emitter = Emitter(
            group="app",
            process="process",
            topic=self.sink,  # type: ignore[arg-type]  # only the needed part of a topic
            make_producer=lambda: self.sink,
            limits=Limits(),
            clock_ms=lambda: time.time_ns() // 1_000_000,
            monotonic_us=monotonic_us,
        )
        self.emitter.start()
        self.watch = AssignWatch(
            self.emitter.emit, step.settings, group="app", forming=lambda: (1, "leader"), monotonic_us=monotonic_us
        )

    def rest(self) -> None:
        """Wait until all events are written."""
        give_up_s = time.monotonic() + _REST_S
        while (now := self.emitter.counters())["events-sent-total"] < now["events-offered-total"]:
            if time.monotonic() > give_up_s:
                raise BenchmarkError(f"events were not written within {_REST_S:.0f} s: {dict(now)}")
            time.sleep(0.01)


def _lead(step: LeaderStep, watch: AssignObserver) -> tuple[float, Mapping[str, bytes]]:
    """Run the step; return (processor time of this thread in ms, bytes for the members)."""
    began = time.thread_time()
    members = readable_members(step.members)
    inputs = {name: infos for name, infos in step.topics.items() if name in step.topology.source_topics}
    request = AssignRequested(1_700_000_000_000, members, inputs, step.topology)
    watch.began(members)
    result = run_assign(GroupLeader(step.settings), request, StepExecutor(step, watch).carry_out)
    watch.ended(result)
    if not isinstance(result, PublishAssignments):
        raise BenchmarkError(f"the step failed: {result.error}")
    sent = assignments_to_send(result.assignments, members, decode_assignment_info)
    return 1_000 * (time.thread_time() - began), sent


def event_rows(runs: int, tick: Tick) -> Iterator[Row]:
    """Compare the leader step with and without events, and the import with and without the extra."""
    yield _step_row(tick)
    yield _import_row(max(runs, 5), tick)


def _step_row(tick: Tick) -> Row:
    step = leader_step(_SCENARIO, end_points=False)
    events = _Events(step)
    on: list[float] = []
    off: list[float] = []
    for block in range(_BLOCKS):
        tick(f"leader's step with events on and off, {block + 1} of {_BLOCKS}")
        pairs = [(_lead(step, AssignObserver()), _watched(step, events)) for _ in range(_TURNS)]
        if any(without[1] != watched[1] for without, watched in pairs):
            raise BenchmarkError("the members' bytes differ when events are on")
        off.append(min(without[0] for without, _ in pairs))
        on.append(min(watched[0] for _, watched in pairs))
    events.emitter.close()
    if not events.sink.bytes:
        raise BenchmarkError("no event was written")
    work = f"leader's assign step, {_SCENARIO.tasks:,} tasks x {_SCENARIO.clients} clients, events on"
    goal = Goal("within 1.02, same bytes", ratio_max=1.02)
    return Row(work, "events off", "ms", tuple(on[1:]), tuple(off[1:]), goal)


def _watched(step: LeaderStep, events: _Events) -> tuple[float, Mapping[str, bytes]]:
    led = _lead(step, events.watch)
    events.rest()
    return led


def _import_row(runs: int, tick: Tick) -> Row:
    hide = f"import sys; sys.modules.update(dict.fromkeys({_EXTRA!r}))"
    measured = "import time; t = time.process_time(); import streams_py; t = time.process_time() - t; import sys"
    loaded = f"print(t, *(n for n in {_EXTRA!r} if sys.modules.get(n) is not None))"
    seconds: dict[str, list[float]] = {"": [], hide: []}
    for run in range(runs):
        tick(f"import with and without the extra, run {run + 1}")
        for before, found in seconds.items():
            best = []
            for _ in range(5):
                code = f"{before}\n{measured}\n{loaded}"
                done = subprocess.run(
                    [sys.executable, "-c", code], capture_output=True, text=True, cwd=_ROOT, check=True
                )
                took, *imported = done.stdout.split()
                if imported:
                    raise BenchmarkError(f"import streams_py imports {', '.join(imported)}")
                best.append(1_000 * float(took))
            found.append(min(best))
    goal = Goal("no difference", ratio_max=1.1)
    work = "import streams_py, the extra spark installed"
    return Row(work, "the extra hidden", "ms", tuple(seconds[""]), tuple(seconds[hide]), goal)
