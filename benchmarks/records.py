"""Records through a real broker: every peer does the same job on the same input, alone, one after the other."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster import BenchmarkError, Output, delete_topics, fill, make_topic, wait_for_output
from benchmarks.jobs import Order
from benchmarks.local import Tick
from benchmarks.peers import BARE, JAVA, OURS, QUIX, Peer, Running, command_of
from benchmarks.table import Goal, Row
from streams_py.testing.broker import JvmBroker, NoBrokerError

__all__ = ["JOBS", "Job", "Settings", "record_rows", "steps"]

_PARTITIONS = 4
_CACHE_BYTES = 10 * 1024 * 1024
_COMMIT_MS = 1000
"""Kafka Streams' default of 30 s would be longer than a run."""
_TIMED_SHARE_MIN = 0.25
"""Of the input, after the first output. A cache first writes at a commit, which may be the end of a short run."""


@dataclass(frozen=True, slots=True)
class Job:
    """One row group of the table. ``cache_bytes``: statestore.cache.max.bytes for those that have a cache;
    ``commit_ms``: commit interval of every peer."""

    name: str
    work: str
    title: str
    cache_bytes: int
    commit_ms: int
    goals: dict[str, Goal]


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
            _COMMIT_MS // 4,  # a cache writes only then: often enough to be timed
            {BARE.name: Goal(""), JAVA.name: Goal(">= 1.5", ratio_min=1.5), QUIX.name: Goal(">= 5", ratio_min=5)},
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is measured."""

    records: int
    keys: int
    commit_ms: int | None
    """Instead of each job's own."""
    runs: int
    peers: tuple[Peer, ...]


def steps(jobs: Sequence[Job], settings: Settings) -> int:
    """How often ``record_rows`` ticks."""
    return 2 + len(jobs) * settings.runs * len(settings.peers) if jobs else 0


def record_rows(jobs: Sequence[Job], settings: Settings, tick: Tick, warn: Callable[[str], None]) -> Iterator[Row]:
    """Run every job on every peer; rows come job by job. Runs of different peers take turns, so that a busy moment of
    the machine does not hit one of them alone."""
    tick("starting Apache Kafka, writing the input")
    try:
        broker = JvmBroker(heap="1g")
    except NoBrokerError as error:
        reason = f"no broker: {str(error).splitlines()[0]}"
        for job in jobs:
            yield Row(job.title, "", "records/s", (), note=reason)
        return
    try:
        with tempfile.TemporaryDirectory(prefix="streams-py-bench-") as folder:
            bench = _Bench(broker.bootstrap, settings, Path(folder), warn)
            bench.fill(lambda done: None)
            tick("warming the broker up")
            bench.warm_up()
            for job in jobs:
                yield from bench.rows(job, tick)
    finally:
        broker.close()


class _Bench:
    def __init__(self, bootstrap: str, settings: Settings, folder: Path, warn: Callable[[str], None]) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self._folder = folder
        self._warn = warn

    def fill(self, on_progress: Callable[[int], None]) -> None:
        make_topic(self._bootstrap, "input", _PARTITIONS)
        fill(self._bootstrap, "input", self._settings.records, self._settings.keys, on_progress=on_progress)

    def warm_up(self) -> None:
        """Once through everything, uncounted: a JVM that has just started would slow down whoever comes first."""
        try:
            self._measure(JOBS["map"], BARE)
        except BenchmarkError as error:
            self._warn(f"warm-up: {error}")

    def rows(self, job: Job, tick: Tick) -> Iterator[Row]:
        rates: dict[str, list[float]] = {peer.name: [] for peer in self._settings.peers}
        notes: dict[str, str] = {}
        for run in range(self._settings.runs):
            for peer in _rotated(self._settings.peers, run):
                tick(f"{job.name}: {peer.title}, run {run + 1} of {self._settings.runs}")
                if peer.name in notes:
                    continue
                try:
                    rates[peer.name].append(self._measure(job, peer).rate)
                except BenchmarkError as error:
                    notes[peer.name] = str(error).splitlines()[0]
                    self._warn(f"{job.name}, {peer.title}: {error}")
        ours = tuple(rates.get(OURS.name, ()))
        others = [peer for peer in self._settings.peers if peer is not OURS]
        for peer in others:
            yield Row(
                job.title,
                peer.title,
                "/s",
                ours,
                tuple(rates[peer.name]),
                job.goals[peer.name],
                notes.get(peer.name, ""),
            )
        if not others or OURS.name in notes:
            yield Row(job.title, "", "/s", ours, note=notes.get(OURS.name, ""))

    def _measure(self, job: Job, peer: Peer) -> Output:
        command = command_of(peer, self._folder)
        application = f"{job.name}-{peer.name}-{uuid.uuid4().hex[:6]}"
        sink = f"{application}-output"
        commit_ms = self._settings.commit_ms or job.commit_ms
        make_topic(self._bootstrap, sink, _PARTITIONS, append_time=True)
        if peer is BARE and job.work == "count":  # everybody else creates it by itself
            make_topic(self._bootstrap, f"{application}-counts-changelog", _PARTITIONS)
        try:
            with tempfile.TemporaryDirectory(prefix="state-", dir=self._folder) as state_dir:
                order = Order(
                    job.work,
                    self._bootstrap,
                    application,
                    "input",
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
                        expected=self._settings.records,
                        check_alive=running.check,
                    )
        finally:
            delete_topics(self._bootstrap, containing=application)
        if output.worked_off < _TIMED_SHARE_MIN * self._settings.records:
            raise BenchmarkError("over before it could be timed: give it more --records")
        return output


def _rotated(peers: tuple[Peer, ...], by: int) -> tuple[Peer, ...]:
    """Nobody always comes first."""
    start = by % len(peers)
    return peers[start:] + peers[:start]
