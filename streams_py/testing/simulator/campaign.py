"""Runs many schedules in several processes and adds up the results.

Each worker process has its own hash seed, and the fingerprint of a schedule must not depend on it (A6). So some
schedules run twice, in different workers, and their fingerprints are compared.
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

_PIECE = 4
"""Number of schedules that a worker runs per job."""
_TWICE_ONE_IN = 50
"""One in this number of schedules is run a second time, in a separate job."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A schedule that broke promises."""

    seed: int
    """Seed of the schedule."""
    violations: tuple[Violation, ...]
    """The broken promises."""

    @property
    def safe(self) -> bool:
        """Whether only liveness was violated."""
        return all(violation.liveness for violation in self.violations)


@dataclass(slots=True)
class Campaign:
    """The sum of many runs. ``seconds`` is wall-clock time."""

    schedules: int = 0
    """Number of schedules."""
    rebalances: int = 0
    """Number of rebalances."""
    events: int = 0
    """Number of simulated events."""
    virtual_ms: int = 0
    """Virtual time of all schedules, in ms."""
    seconds: float = 0.0
    """Wall-clock time, in seconds."""
    faults: Counter[Fault] = field(default_factory=Counter)
    """Number of faults of each kind."""
    checked: Counter[str] = field(default_factory=Counter)
    """Number of checks of each promise."""
    findings: list[Finding] = field(default_factory=list)
    """The schedules that broke promises."""
    oscillating: int = 0
    """Number of schedules in which a sticky assignor oscillated."""
    hung: bool = False
    """Whether the user's assignor did not return. No schedule was run after that."""
    repeated: int = 0
    """Number of schedules that were run twice, with different hash seeds."""

    def add(self, part: Campaign) -> None:
        """Add the counts of another campaign, except ``seconds`` and ``repeated``."""
        self.schedules += part.schedules
        self.rebalances += part.rebalances
        self.events += part.events
        self.virtual_ms += part.virtual_ms
        self.faults += part.faults
        self.checked += part.checked
        self.oscillating += part.oscillating
        self.findings += part.findings
        self.hung = self.hung or part.hung

    @property
    def exit_code(self) -> int:
        """0: no violation; 1: a violation of safety; 4: violations of liveness only."""
        if not self.findings:
            return 0
        return 4 if all(finding.safe for finding in self.findings) else 1


def schedule_of(
    seed: int,
    *,
    assignor: str | None = None,
    mutant: str | None = None,
    settings: Mapping[str, object] | None = None,
    evictions: bool = False,
) -> Schedule:
    """Draw the schedule of a seed.

    Args:
        seed: The seed.
        assignor: The assignor of the group. Default: random.
        mutant: A planted bug.
        settings: Configuration of the assignor.
        evictions: Whether members are also removed by other clients.
    """
    assignor = "custom" if mutant == "half an assignment" else assignor
    schedule = draw_schedule(seed, assignor=assignor, evictions=evictions)
    if settings:
        schedule = replace(schedule, shape=replace(schedule.shape, settings=dict(settings)))
    return replace(schedule, mutant=mutant) if mutant else schedule


_Draw: TypeAlias = Callable[[int], Schedule]
"""Function that returns the schedule of a seed; can be pickled for another process."""


@dataclass(slots=True)
class _Piece:
    campaign: Campaign
    fingerprints: dict[int, str]
    again: bool
    """Whether its schedules run for the second time."""


@contextmanager
def _garbage_later() -> Iterator[None]:
    """Disable garbage collection inside the block: it costs 10 %, because a world is one large reference cycle."""
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
                oscillating=int(result.oscillates),
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
    evictions: bool = False,
    processes: int | None = None,
    progress: Callable[[Campaign], None] = lambda so_far: None,
    findings_max: int = 20,
) -> Campaign:
    """Run the schedules of these seeds, and stop early at ``findings_max`` findings.

    ``progress`` is called with the total after each job. The other options are those of :func:`schedule_of`.
    """
    started = time.perf_counter()
    total = Campaign()
    fingerprints: dict[int, str] = {}
    draw = partial(schedule_of, assignor=assignor, mutant=mutant, settings=settings, evictions=evictions)
    workers = processes if processes is not None else os.cpu_count() or 1

    def add(piece: _Piece) -> None:
        part = piece.campaign
        for seed in sorted(piece.fingerprints.keys() & fingerprints.keys()):
            total.repeated += 1
            if fingerprints[seed] != piece.fingerprints[seed]:
                violation = Violation("A6", 0, "another process with another hash seed sends different bytes")
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
    context = multiprocessing.get_context("spawn")  # a fork would copy the hash seed and the state of running threads
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
    """Leave Ctrl-C to the parent process, and exclude the objects loaded so far from garbage collection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
