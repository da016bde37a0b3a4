"""Memory and open files of a process, measured through a run, and the judgement: they must not grow.

Only a process that lives through the run says something; so one instance is spared from what would end it. Tasks come
and go with every fault, and their files with them. Therefore quarters of the run are compared, by their medians: the
second, when everything is warm, with the last. What is lost with each rebalance, each producer or each commit has come
together by then.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from streams_py.testing.torture.history import Violation

__all__ = ["JUDGED_S", "SHOWN_S", "Growth", "Use", "growth", "measured"]

SHOWN_S: Final = 120
JUDGED_S: Final = 600
"""From so long a life on figures are shown, and judged: databases open more and more files in their first minutes."""

_SAMPLES_MIN: Final = 5
"""In each of the two quarters."""
_FACTOR_MAX: Final = 1.3
_MEMORY_MORE_MAX: Final = 64 << 20
_FILES_MORE_MAX: Final = 80


class Use(NamedTuple):
    """``at_s`` of the clock of the one who measures."""

    at_s: float
    memory_bytes: int
    open_files: int


class Growth(NamedTuple):
    """Medians of the second and of the last quarter."""

    what: str
    before: float
    after: float
    unit: str

    def __str__(self) -> str:
        return f"{self.what} {self.before:.0f} -> {self.after:.0f}{self.unit}"


def measured(pid: int, at_s: float, *, proc: Path = Path("/proc")) -> Use | None:
    """What a process has now: resident memory, and open files. None when the system does not say it (only Linux does),
    or the process is gone."""
    try:
        pages = int((proc / str(pid) / "statm").read_text().split()[1])
        files = len(os.listdir(proc / str(pid) / "fd"))
    except OSError:
        return None
    return Use(at_s, pages * os.sysconf("SC_PAGE_SIZE"), files)


def growth(samples: Sequence[Use]) -> tuple[list[Growth], list[Violation] | None]:
    """How memory and open files have changed, and what has grown; None when there is too little to judge by."""
    if not samples or samples[-1].at_s - samples[0].at_s < SHOWN_S:
        return [], None
    began_s, quarter_s = samples[0].at_s, (samples[-1].at_s - samples[0].at_s) / 4
    early = [one for one in samples if quarter_s <= one.at_s - began_s < 2 * quarter_s]
    late = [one for one in samples if one.at_s - began_s >= 3 * quarter_s]
    if min(len(early), len(late)) < _SAMPLES_MIN:
        return [], None

    def of(value: Callable[[Use], float]) -> tuple[float, float]:
        return statistics.median(map(value, early)), statistics.median(map(value, late))

    mebibyte = 1 << 20
    figures = [
        (Growth("memory", *of(lambda use: use.memory_bytes / mebibyte), " MiB"), _MEMORY_MORE_MAX / mebibyte),
        (Growth("open files", *of(lambda use: use.open_files), ""), _FILES_MORE_MAX),
    ]
    grown = [
        Violation("growth", 1, (str(one),))
        for one, more_max in figures
        if one.after > _FACTOR_MAX * one.before and one.after > one.before + more_max
    ]
    return [one for one, _ in figures], grown if 4 * quarter_s >= JUDGED_S else None
