"""Many schedules, on several processes, added up.

Each worker process has its own hash seed, and a schedule's fingerprint must not depend on it: a few schedules are run
twice, in different workers, and compared (A6).
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from streams_py.testing.checkers import Violation
from streams_py.testing.simulator.faults.faults import Fault
from streams_py.testing.simulator.run import run_schedule
from streams_py.testing.simulator.schedule import Schedule, draw_schedule

__all__ = ["Campaign", "Finding", "run_campaign", "schedule_of"]

_PIECE = 4
"""Schedules that a worker takes at a time."""
_TWICE_ONE_IN = 50
"""One schedule in so many is run again by another worker."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A schedule that broke promises."""

    seed: int
    violations: tuple[Violation, ...]

    @property
    def safe(self) -> bool:
        """Only liveness was missed."""
        return all(violation.liveness for violation in self.violations)


@dataclass(slots=True)
class Campaign:
    """The sum of many runs. Times in seconds of wall clock."""

    schedules: int = 0
    rebalances: int = 0
    events: int = 0
    virtual_ms: int = 0
    seconds: float = 0.0
    faults: Counter[Fault] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    circles: int = 0
    """Schedules in which a sticky assignor went round in circles."""
    hung: bool = False
    """The user's assignor did not return; nothing was run after that."""
    repeated: int = 0
    """Schedules that were run twice, with other hash seeds."""

    def add(self, part: Campaign) -> None:
        """Add another one's schedules; times and repetitions are not added."""
        self.schedules += part.schedules
        self.rebalances += part.rebalances
        self.events += part.events
        self.virtual_ms += part.virtual_ms
        self.faults += part.faults
        self.checked += part.checked
        self.circles += part.circles
        self.findings += part.findings
        self.hung = self.hung or part.hung

    @property
    def exit_code(self) -> int:
        """0: nothing found; 1: something happened that is never allowed; 4: only too late or never."""
        if not self.findings:
            return 0
        return 4 if all(finding.safe for finding in self.findings) else 1


def schedule_of(
    seed: int, *, assignor: str | None = None, mutant: str | None = None, settings: Mapping[str, object] | None = None
) -> Schedule:
    """The schedule of a seed, with a planted bug if asked for, and ``settings`` of the application for its assignor."""
    schedule = draw_schedule(seed, assignor="custom" if mutant == "half an assignment" else assignor)
    if settings:
        schedule = replace(schedule, shape=replace(schedule.shape, settings=dict(settings)))
    return replace(schedule, mutant=mutant) if mutant else schedule


_Draw: TypeAlias = Callable[[int], Schedule]
"""The schedule of a seed; can be sent to another process."""


@dataclass(slots=True)
class _Piece:
    campaign: Campaign
    fingerprints: dict[int, str]
    again: bool
    """Its schedules are run for the second time."""


@contextmanager
def _garbage_later() -> Iterator[None]:
    """A world is one large cycle of objects; looking for garbage inside of it again and again costs a tenth."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        gc.collect()


@_garbage_later()
def _run_piece(seeds: tuple[int, ...], draw: _Draw, again: bool = False) -> _Piece:
    piece = _Piece(Campaign(), {}, again)
    for seed in seeds:
        result = run_schedule(draw(seed))
        campaign = piece.campaign
        campaign.add(
            Campaign(
                1,
                result.rebalances,
                result.steps,
                result.virtual_ms,
                faults=result.faults,
                checked=result.checked,
                circles=int(result.circles),
            )
        )
        piece.fingerprints[seed] = result.fingerprint
        if result.violations:
            campaign.findings.append(Finding(seed, tuple(result.violations)))
        if result.hung:
            campaign.hung = True
            break
    return piece


def _pieces(seeds: Iterable[int]) -> Iterator[tuple[int, ...]]:
    piece: list[int] = []
    for seed in seeds:
        piece.append(seed)
        if len(piece) == _PIECE:
            yield tuple(piece)
            piece = []
    if piece:
        yield tuple(piece)


def run_campaign(
    seeds: range,
    *,
    assignor: str | None = None,
    mutant: str | None = None,
    settings: Mapping[str, object] | None = None,
    processes: int | None = None,
    progress: Callable[[Campaign], None] = lambda so_far: None,
    findings_max: int = 20,
) -> Campaign:
    """Run the schedules of these seeds; ``progress`` is called after each piece. Stops early at ``findings_max``."""
    started = time.perf_counter()
    total = Campaign()
    fingerprints: dict[int, str] = {}
    draw = partial(schedule_of, assignor=assignor, mutant=mutant, settings=settings)
    workers = processes if processes is not None else os.cpu_count() or 1

    def add(piece: _Piece) -> None:
        part = piece.campaign
        for seed in sorted(piece.fingerprints.keys() & fingerprints.keys()):
            total.repeated += 1
            if fingerprints[seed] != piece.fingerprints[seed]:
                violation = Violation("A6", 0, "another process with another hash seed sends other bytes")
                total.findings.append(Finding(seed, (violation,)))
        fingerprints.update(piece.fingerprints)
        if not piece.again:
            total.add(part)
        total.seconds = time.perf_counter() - started
        progress(total)

    def enough() -> bool:
        return total.hung or len(total.findings) >= findings_max

    pieces = list(_pieces(seeds))
    if workers <= 1 or len(pieces) == 1:
        for piece in pieces:
            add(_run_piece(piece, draw))
            if enough():
                break
    else:
        jobs = [(piece, False) for piece in pieces] + [((seed,), True) for seed in seeds[::_TWICE_ONE_IN]]
        _run_parallel(jobs, draw, workers, add, enough)
    total.findings.sort(key=lambda finding: finding.seed)
    return total


def _run_parallel(
    jobs: list[tuple[tuple[int, ...], bool]],
    draw: _Draw,
    workers: int,
    add: Callable[[_Piece], None],
    enough: Callable[[], bool],
) -> None:
    context = multiprocessing.get_context("spawn")  # a fork would copy the hash seed, and threads in mid-flight
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare_worker)
    try:
        running: set[Future[_Piece]] = set()
        for seeds, again in jobs:
            running.add(pool.submit(_run_piece, seeds, draw, again))
            if len(running) < 2 * workers:
                continue
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                add(future.result())
            if enough():
                break
        for future in running:
            add(future.result())
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    """Ctrl-C is for the parent to handle; what is loaded by now is no garbage."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
