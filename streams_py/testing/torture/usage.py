"""Memory and open files of a process, measured during a run, and the check that they do not grow.

Only a process that runs from start to end can be measured, so one instance gets no faults that would stop it. Tasks,
and with them files, come and go with every fault. So the medians of two quarters of the run are compared: the second
quarter, when everything is warm, with the last one. By then, leaks in each rebalance, producer or commit have added up.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from streams_py.testing.torture.history import Violation

SHOWN_S: Final = 120
JUDGED_S: Final = 600
"""Minimum run times, in s, for showing the measurements and for checking them.

Databases open an increasing number of files in their first minutes."""

_SAMPLES_MIN: Final = 5
"""Minimum number of samples in each of the two quarters."""
_FACTOR_MAX: Final = 1.3
_MEMORY_MORE_MAX: Final = 64 << 20
_FILES_MORE_MAX: Final = 80


class Use(NamedTuple):
    """One measurement. ``at_s``: time on the clock of the measuring process."""

    at_s: float
    memory_bytes: int
    open_files: int


class Growth(NamedTuple):
    """Medians of a measured value in the second and in the last quarter."""

    what: str
    before: float
    after: float
    unit: str

    def __str__(self) -> str:
        return f"{self.what} {self.before:.0f} -> {self.after:.0f}{self.unit}"


def measured(pid: int, at_s: float, *, proc: Path = Path("/proc")) -> Use | None:
    """Measure the resident memory and the open files of a process.

    Returns None if the system does not report them (only Linux does), or if the process has stopped.
    """
    try:
        pages = int((proc / str(pid) / "statm").read_text().split()[1])
        files = len(os.listdir(proc / str(pid) / "fd"))
    except OSError:
        return None
    return Use(at_s, pages * os.sysconf("SC_PAGE_SIZE"), files)


def growth(samples: Sequence[Use]) -> tuple[list[Growth], list[Violation] | None]:
    """Return (the change of memory and open files, violations). None instead of violations: too few samples."""
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
    measures = [
        (Growth("memory", *of(lambda use: use.memory_bytes / mebibyte), " MiB"), _MEMORY_MORE_MAX / mebibyte),
        (Growth("open files", *of(lambda use: use.open_files), ""), _FILES_MORE_MAX),
    ]
    grown = [
        Violation("growth", 1, (str(one),))
        for one, more_max in measures
        if one.after > _FACTOR_MAX * one.before and one.after > one.before + more_max
    ]
    return [one for one, _ in measures], grown if 4 * quarter_s >= JUDGED_S else None
