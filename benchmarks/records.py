"""Records through a real broker. All peers do the same job on the same input, alone, one after the other."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster import BenchmarkError, Output, delete_topics, fill, make_topic, wait_for_output
from benchmarks.jobs import EXACTLY_ONCE, IN_PROCESSES, Order
from benchmarks.local import Tick
from benchmarks.peers import AT_LEAST_ONCE, BARE, JAVA, ONE_PROCESS, OURS, QUIX, Peer, Running, command_of
from benchmarks.table import NO_GOAL, Goal, Row, reason_of
from streams_py.testing.broker import JvmBroker, NoBrokerError

_PARTITIONS = 4
_CACHE_BYTES = 10 * 1024 * 1024
_COMMIT_MS = 1000
"""Kafka Streams' default of 30 s would be longer than a run."""
_TIMED_SHARE_MIN = 0.25
"""Minimum share of the input that must be processed after the first output.

A cache first writes at a commit, which may be at the end of a short run."""


@dataclass(frozen=True, slots=True)
class Job:
    """One group of rows of the table. Peers without a goal do not participate.

    Attributes:
        name: Name for ``--only``.
        work: Name of the work for the peers.
        title: Title in the table.
        cache_bytes: Value of statestore.cache.max.bytes for peers that have a cache.
        commit_ms: Commit interval of every peer.
        goals: Goal by the name of the peer.
        inputs: Names of the inputs that the job reads.
        outputs: Returns the number of processed records for ``--records``.
        own_goal: Goal of this library alone, if it is not compared with a peer.
    """

    name: str
    work: str
    title: str
    cache_bytes: int
    commit_ms: int
    goals: dict[str, Goal]
    inputs: tuple[str, ...] = ("input",)
    outputs: Callable[[int], int] = lambda records: records
    own_goal: Goal = NO_GOAL


@dataclass(frozen=True, slots=True)
class _Input:
    """An input topic. ``keys`` None: number of keys of ``--keys``. ``ends_ms``: age of its last record, in ms."""

    records: Callable[[int], int]
    keys: int | None = None
    ends_ms: int = 0


_SPAN_MS = 100_000
_ROWS = 100_000
_CALLS = 50_000
_INPUTS = {
    "input": _Input(lambda records: records),
    "twice": _Input(lambda records: 2 * records),  # forming a group of several processes takes time
    "rows": _Input(lambda records: _ROWS, _ROWS, _SPAN_MS),
    "of-rows": _Input(lambda records: records, _ROWS),
    "left": _Input(lambda records: records // 2),
    "right": _Input(lambda records: records // 2),
    "calls": _Input(lambda records: min(records, _CALLS)),
}


JOBS = {
    job.name: job
    for job in (
        Job(
            "map",
            "map",
            "map: decode JSON, change, encode",
            0,
            _COMMIT_MS,
            {
                BARE.name: Goal(">= 0.8", ratio_min=0.8),
                JAVA.name: Goal(">= 1.5", ratio_min=1.5),
                QUIX.name: Goal(">= 5", ratio_min=5),
            },
        ),
        Job(
            "processes",
            f"map{IN_PROCESSES}",
            "map with run(processes=4)",
            0,
            _COMMIT_MS,
            # One process, its client's threads and the broker already use 1.3 of two cores, so 1.5 is the maximum.
            {ONE_PROCESS.name: Goal(">= 1.4", ratio_min=1.4)},
            ("twice",),
            lambda records: 2 * records,
        ),
        Job(
            "processes-work",
            f"clean{IN_PROCESSES}",
            "map of 25 us (pydantic, regular expressions) with run(processes=4)",
            0,
            _COMMIT_MS,
            {ONE_PROCESS.name: Goal(">= 1.6", ratio_min=1.6)},
            ("twice",),
            lambda records: 2 * records,
        ),
        Job(
            "count",
            "count",
            "count per key, RocksDB + changelog, no cache",
            0,
            _COMMIT_MS,
            {BARE.name: Goal(""), JAVA.name: Goal(">= 1.0", ratio_min=1.0), QUIX.name: Goal(">= 5", ratio_min=5)},
        ),
        Job(
            "count-cached",
            "count",
            "count per key, RocksDB + changelog, 10 MB cache",
            _CACHE_BYTES,
            _COMMIT_MS // 4,  # a cache writes only at commits, so they must be frequent enough to be timed
            {BARE.name: Goal(""), JAVA.name: Goal(">= 1.5", ratio_min=1.5), QUIX.name: Goal(">= 5", ratio_min=5)},
        ),
        Job(
            "exactly-once",
            EXACTLY_ONCE,
            "count per key, exactly once, commits every 100 ms",
            0,
            _COMMIT_MS // 10,
            {AT_LEAST_ONCE.name: Goal(">= 0.9", ratio_min=0.9)},
        ),
        Job(
            "window",
            "window",
            "count per key and window of 10 s, RocksDB + changelog, no cache",
            0,
            _COMMIT_MS,
            {JAVA.name: Goal(">= 1.2", ratio_min=1.2), QUIX.name: Goal(">= 4", ratio_min=4)},
        ),
        Job(
            "table-join",
            "table-join",
            f"join with a table of {_ROWS:,} rows, RocksDB + changelog, no cache",
            0,
            _COMMIT_MS,
            {JAVA.name: Goal(">= 1.2", ratio_min=1.2)},
            ("of-rows", "rows"),
        ),
        Job(
            "stream-join",
            "stream-join",
            "join of two streams, windows of 100 ms, RocksDB + changelogs; pairs",
            0,
            _COMMIT_MS,
            {JAVA.name: Goal(">= 1.0", ratio_min=1.0)},
            ("left", "right"),
            lambda records: records // 2,
        ),
        Job(
            "async",
            "async",
            "map_values_async: look-ups of 10 ms, 64 at a time (one by one: 100/s)",
            0,
            _COMMIT_MS,
            {},
            ("calls",),
            lambda records: min(records, _CALLS),
            Goal(">= 5,000/s", ours_min=5000),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Parameters of the record benchmarks."""

    records: int
    keys: int
    commit_ms: int | None
    """Replaces the commit interval of each job."""
    runs: int
    peers: tuple[Peer, ...]


def steps(jobs: Sequence[Job], settings: Settings) -> int:
    """Return how many times ``record_rows`` calls ``tick``."""
    return 2 + sum(settings.runs * len(_peers_of(job, settings)) for job in jobs) if jobs else 0


def _peers_of(job: Job, settings: Settings) -> tuple[Peer, ...]:
    return tuple(peer for peer in settings.peers if peer is OURS or peer.name in job.goals)


def record_rows(jobs: Sequence[Job], settings: Settings, tick: Tick, warn: Callable[[str], None]) -> Iterator[Row]:
    """Run every job on every peer, and yield rows job by job.

    Peers take turns, so that a busy moment of the machine does not affect only one of them.
    """
    tick("starting Apache Kafka, writing the input")
    try:
        broker = JvmBroker(heap="1g")
    except NoBrokerError as error:
        reason = f"no broker: {str(error).splitlines()[0]}"
        for job in jobs:
            yield Row(job.title, "", "records/s", (), note=reason, failed=True)
        return
    try:
        with tempfile.TemporaryDirectory(prefix="streams-py-bench-") as folder:
            bench = _Bench(broker.bootstrap, settings, Path(folder), warn)
            bench.fill({"input", *(name for job in jobs for name in job.inputs)})
            tick("warming the broker up")
            bench.warm_up()
            for job in jobs:
                yield from bench.rows(job, tick)
    except Exception as error:  # the rows of other benchmarks are still shown
        warn(f"records: {error}")
        yield Row("records through a broker", "", "/s", (), note=reason_of(error), failed=True)
    finally:
        broker.close()


class _Bench:
    def __init__(self, bootstrap: str, settings: Settings, folder: Path, warn: Callable[[str], None]) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self._folder = folder
        self._warn = warn

    def fill(self, names: Collection[str]) -> None:
        """Write these inputs."""
        now_ms = int(time.time() * 1000)
        for name in sorted(names):
            make_topic(self._bootstrap, name, _PARTITIONS)
            topic = _INPUTS[name]
            last_ms = now_ms - topic.ends_ms
            fill(
                self._bootstrap,
                name,
                topic.records(self._settings.records),
                topic.keys or self._settings.keys,
                first_ms=last_ms - _SPAN_MS,
                last_ms=last_ms,
            )

    def warm_up(self) -> None:
        """Run one job without counting it, because a JVM that has just started would slow down the first peer."""
        try:
            self._measure(JOBS["map"], BARE)
        except BenchmarkError as error:
            self._warn(f"warm-up: {error}")

    def rows(self, job: Job, tick: Tick) -> Iterator[Row]:
        peers = _peers_of(job, self._settings)
        rates: dict[str, list[float]] = {peer.name: [] for peer in peers}
        notes: dict[str, str] = {}
        for run in range(self._settings.runs):
            for peer in _rotated(peers, run):
                tick(f"{job.name}: {peer.title}, run {run + 1} of {self._settings.runs}")
                if peer.name in notes:
                    continue
                try:
                    rates[peer.name].append(self._measure(job, peer).rate)
                except Exception as error:  # an error of one peer must not stop the others
                    notes[peer.name] = reason_of(error)
                    self._warn(f"{job.name}, {peer.title}: {error}")
        ours = tuple(rates.get(OURS.name, ()))
        others = [peer for peer in peers if peer is not OURS]
        for peer in others:
            yield Row(
                job.title,
                peer.title,
                "/s",
                ours,
                tuple(rates[peer.name]),
                job.goals[peer.name],
                notes.get(peer.name, ""),
                failed=peer.name in notes,
            )
        if not others or OURS.name in notes:
            note = notes.get(OURS.name, "")
            yield Row(job.title, "", "/s", ours, goal=job.own_goal, note=note, failed=bool(note))

    def _measure(self, job: Job, peer: Peer) -> Output:
        command = command_of(peer, self._folder)
        application = f"{job.name}-{peer.name}-{uuid.uuid4().hex[:6]}"
        sink = f"{application}-output"
        expected = job.outputs(self._settings.records)
        commit_ms = self._settings.commit_ms or job.commit_ms
        make_topic(self._bootstrap, sink, _PARTITIONS, append_time=True)
        if peer is BARE and job.work == "count":  # the other peers create it themselves
            make_topic(self._bootstrap, f"{application}-counts-changelog", _PARTITIONS)
        try:
            with tempfile.TemporaryDirectory(prefix="state-", dir=self._folder) as state_dir:
                order = Order(
                    job.work,
                    self._bootstrap,
                    application,
                    ",".join(job.inputs),
                    sink,
                    str(job.cache_bytes),
                    str(commit_ms),
                    state_dir,
                )
                with Running(peer, command, order) as running:
                    output = wait_for_output(
                        self._bootstrap,
                        sink,
                        job=job.work,
                        commit_ms=commit_ms,
                        expected=expected,
                        check_alive=running.check,
                    )
        finally:
            delete_topics(self._bootstrap, containing=application)
        if output.worked_off < _TIMED_SHARE_MIN * expected:
            raise BenchmarkError("finished too early to be timed: use more --records")
        return output


def _rotated(peers: tuple[Peer, ...], by: int) -> tuple[Peer, ...]:
    """Rotate the peers, so that each run starts with another one."""
    start = by % len(peers)
    return peers[start:] + peers[:start]
