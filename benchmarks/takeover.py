"""Silence of the partitions of a process that dies, and during a rolling restart, at default settings of the group.

    python -m benchmarks.takeover JOB BOOTSTRAP APPLICATION_ID INPUT OUTPUT CACHE_BYTES COMMIT_MS STATE_DIR

Three processes with one thread count, keep a standby copy for each other, and get records at a constant rate. The
session timeout is Kafka's default of 45 s. Commits are every 100 ms, and the record cache is off, so that output shows
when a partition is processed. One process is killed at a time. The silence is the longest time without output of the
partitions that it had. With exactly-once, only committed output counts. Kafka Streams runs the same program.

JOB is ``takeover``, ``takeover-exactly-once`` or ``supervised`` (``run(processes=3)``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from benchmarks.cluster import BenchmarkError
from benchmarks.jobs import Order
from benchmarks.live_output import LOOK_S, PARTITIONS, LiveOutput, longest_silence, silences
from benchmarks.peers import JAVA, Peer, Running, command_of
from benchmarks.table import Goal, Row, reason_of
from streams_py.testing.broker import JvmBroker, NoBrokerError

_PROCESSES: Final = 3
_COMMIT_MS: Final = 100
_RESTART_S: Final = 1.0
"""Time until a killed process is started again, in s."""
_FRESH_S: Final = 2.0
"""A partition whose last output is older than this is silent, in s."""
_PAUSE_S: Final = 0.3
"""Shorter times without output do not count in the sum of a rolling restart, in s."""
_WINDOW_S: Final = 6.0
"""Minimum time after an event, in s. Follow-up rebalances belong to it."""
_STEADY_S: Final = 8.0
"""Time without a change of members before an event, in s."""
_LIMIT_S: Final = 240.0
_JAVA_RUNS_MAX: Final = 3
"""Maximum number of events with Kafka Streams: each one takes more than a session timeout."""
_MEMBERS: Final = Peer("members", "streams_py", lambda _: [sys.executable, "-m", "benchmarks.takeover"])


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of failure.

    Attributes:
        title: Its text in the table.
        event: ``kill``, ``child`` (of a supervisor), ``restart`` or ``rolling``.
        goal: The goal for the median.
        job: The job of the processes.
        one_host: Whether all processes have one ``state.dir``, so that they see one another. Kafka Streams requires a
            separate one for each.
        with_java: Whether Kafka Streams has such a thing.
    """

    title: str
    event: str
    goal: Goal
    job: str = "takeover"
    one_host: bool = False
    with_java: bool = True


_EXACTLY_ONCE: Final = "takeover-exactly-once"
_WITHIN: Final = Goal("<= 1.5", ours_max=1.501)
_WITHIN_EXACTLY_ONCE: Final = Goal("<= 2.5", ours_max=2.501)
WORKS: Final = (
    Work("SIGKILL of one of three processes of one host", "kill", _WITHIN, one_host=True),
    Work("SIGKILL of a child of run(processes=3)", "child", _WITHIN, job="supervised", with_java=False),
    Work("SIGKILL, started again after 1 s with its volume: after its start", "restart", _WITHIN),
    Work(
        "exactly once: SIGKILL of one of three processes of one host",
        "kill",
        _WITHIN_EXACTLY_ONCE,
        job=_EXACTLY_ONCE,
        one_host=True,
    ),
    Work(
        "exactly once: SIGKILL, started again after 1 s: after its start",
        "restart",
        _WITHIN_EXACTLY_ONCE,
        job=_EXACTLY_ONCE,
    ),
    Work("rolling restart of three processes: in all, slowest partition", "rolling", Goal("<= 1", ours_max=1.001)),
)


def takeover_rows(runs: int, tick: Callable[[str], None], *, with_jvm: bool = True) -> Iterator[Row]:
    """Measure the seconds without output, once per run for each kind of failure."""
    try:
        broker = JvmBroker(heap="1g")
    except NoBrokerError as error:
        yield Row("takeover", "", "s", (), note=f"no broker: {str(error).splitlines()[0]}", failed=True)
        return
    with closing(broker), tempfile.TemporaryDirectory(prefix="streams-py-bench-") as folder:
        for work in WORKS:
            found: dict[str, tuple[float, ...]] = {}
            notes = []
            for peer in (_MEMBERS, JAVA) if with_jvm and work.with_java else (_MEMBERS,):
                times = runs if peer is _MEMBERS else min(runs, _JAVA_RUNS_MAX)
                try:
                    with _Scene(broker.bootstrap, Path(folder), peer, work) as scene:
                        found[peer.name] = tuple(scene.events(times, tick))
                except Exception as error:  # an error of one peer must not stop the other
                    reason = reason_of(error)
                    notes.append(reason if reason.startswith(peer.title) else f"{peer.title}: {reason}")
            yield Row(
                work.title,
                JAVA.title if with_jvm and work.with_java else "",
                "s",
                found.get(_MEMBERS.name, ()),
                found.get(JAVA.name, ()),
                work.goal,
                "; ".join(notes),
                failed=bool(notes),
            )


def partitions_of_the_dead(before: dict[int, str], after: dict[int, str]) -> set[int]:
    """Return the partitions whose member is no longer in the group."""
    return {number for number, member in before.items() if member not in set(after.values())}


class _Scene:
    """Three processes of one peer, and the measurement of their output."""

    def __init__(self, bootstrap: str, folder: Path, peer: Peer, work: Work) -> None:
        self._peer, self._bootstrap, self._folder, self._work = peer, bootstrap, folder, work
        self._command = command_of(peer, folder)
        self._application = f"takeover-{peer.name}-{uuid.uuid4().hex[:6]}"
        self._output = LiveOutput(bootstrap, self._application, committed_only=work.job == _EXACTLY_ONCE)
        self._opened = ExitStack()
        self._running: list[tuple[Running, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._output:
            self._opened.close()

    def events(self, count: int, tick: Callable[[str], None]) -> Iterator[float]:
        """Start the processes; let the event happen this number of times, and yield the seconds of silence."""
        for number in range(1 if self._work.event == "child" else _PROCESSES):
            self._start(number)
        self._output.start()
        for run in range(count):
            tick(f"{self._work.title}, {self._peer.title}, run {run + 1}")
            self._wait("three processes share the partitions", self._is_steady)
            before, begin = self._output.members(), time.time()
            match self._work.event:
                case "kill":
                    number = self._kill()
                case "child":
                    self._kill_child(run)
                case "restart":
                    number = self._kill()
                    time.sleep(_RESTART_S)
                    self._start(number)
                case _:
                    self._restart_all()
            self._wait("all partitions have output again", partial(self._is_over, begin))
            yield self._silence(before, begin)
            if self._work.event == "kill" and run + 1 < count:
                self._start(number)

    def _silence(self, before: dict[int, str], begin: float) -> float:
        end = time.time()
        if self._work.event == "rolling":
            return max(
                sum(gap for gap in silences(stamps, begin, end) if gap > _PAUSE_S) for stamps in self._output.stamps
            )
        lost = partitions_of_the_dead(before, self._output.members())
        if not lost:
            raise BenchmarkError(f"{self._peer.title}: no member has left the group")
        found = max(longest_silence(self._output.stamps[number], begin, end) for number in lost)
        return found - _RESTART_S if self._work.event == "restart" else found

    # -- processes -------------------------------------------------------------------------------

    def _start(self, number: int) -> None:
        is_shared = self._work.one_host and self._peer is _MEMBERS
        state_dir = str(self._folder / f"{self._application}-{0 if is_shared else number}")
        order = Order(
            self._work.job,
            self._bootstrap,
            self._application,
            self._output.source,
            self._output.sink,
            "0",
            str(_COMMIT_MS),
            state_dir,
        )
        self._running.append((self._opened.enter_context(Running(self._peer, self._command, order)), number))

    def _kill(self) -> int:
        """Kill the process that has run longest. Return the number of its volume."""
        process, number = self._running.pop(0)
        process.kill()
        return number

    def _kill_child(self, run: int) -> None:
        children = children_of(self._running[0][0].pid)
        if len(children) < _PROCESSES:
            raise BenchmarkError(f"{self._peer.title}: the supervisor has {len(children)} child processes")
        os.kill(children[run % len(children)], signal.SIGKILL)

    def _restart_all(self) -> None:
        for _ in range(_PROCESSES):
            process, number = self._running.pop(0)
            begin = time.time()
            process.let_end()
            process.wait_for_end()
            self._start(number)
            self._wait("all partitions have output again", partial(self._is_over, begin))

    # -- waiting ---------------------------------------------------------------------------------

    def _wait(self, what: str, is_so: Callable[[], bool]) -> None:
        limit = time.monotonic() + _LIMIT_S
        while not is_so():
            for process, _ in self._running:
                process.check()
            if time.monotonic() > limit or self._output.failed:
                raise BenchmarkError(f"{self._peer.title}: not within {_LIMIT_S:.0f} s: {what} {self._output.failed}")
            time.sleep(LOOK_S)

    def _has_output(self) -> bool:
        now = time.time()
        return all(stamps and now - stamps[-1] < _FRESH_S for stamps in self._output.stamps)

    def _is_steady(self) -> bool:
        members = self._output.members()
        return (
            len(members) == PARTITIONS
            and len(set(members.values())) == _PROCESSES
            and time.time() - self._output.owners[-1][0] > _STEADY_S
            and self._has_output()
        )

    def _is_over(self, begin: float) -> bool:
        """Whether the group has other members since ``begin``, and all partitions have had output for some time."""
        changed = self._output.owners[-1][0]
        return changed > begin and time.time() - max(changed, begin) > _WINDOW_S and self._has_output()


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started with the program of this benchmark, in order."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            with contextlib.suppress(OSError):
                if b"benchmarks.takeover" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(child)
    return sorted(found)


def count(order: Order) -> None:
    """Count until standard input is closed, then close as an application does that is stopped by SIGTERM."""
    from streams_py import KafkaStreams, StreamsBuilder, serdes

    builder = StreamsBuilder()
    counts = builder.stream(order.source, key=serdes.STRING, value=serdes.BYTES).group_by_key().count(store="counts")
    counts.to_stream().to(order.sink, key=serdes.STRING, value=serdes.INT64)
    config = {
        "application.id": order.application,
        "bootstrap.servers": order.bootstrap,
        "state.dir": order.state_dir,
        "statestore.cache.max.bytes": order.cache_bytes,
        "commit.interval.ms": order.commit_ms,
        "num.standby.replicas": 1,
        "processing.guarantee": "exactly_once_v2" if order.job == _EXACTLY_ONCE else "at_least_once",
    }
    streams = KafkaStreams(builder.build(), config)

    def wait_for_parent() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)

    from streams_py.runtime.processes.child import this_process

    if this_process() is None:
        threading.Thread(target=wait_for_parent, daemon=True).start()
    streams.run(processes=_PROCESSES if order.job == "supervised" else 1)


if __name__ == "__main__":
    count(Order(*sys.argv[1:]))
