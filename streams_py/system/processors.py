"""Determine the number of processors that this process may use: its affinity, and its container's share of CPU time.

Python reports the affinity only. If a container's share is one processor on a machine with many, the container still
sees all of them. Two busy processes in it both stop whenever the share is used up.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

_CONTROL_GROUP: Final = Path("/sys/fs/cgroup")
_BYTES_MAX: Final = 64


def usable_processors(control_group: Path = _CONTROL_GROUP) -> int:
    """Return the number of whole processors, at least 1.

    ``control_group``: the folder in which the kernel shows the container's control group (version 2 or 1).
    """
    allowed = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    share = _share(control_group)
    return allowed if share is None else max(1, min(allowed, int(share)))


def _share(control_group: Path) -> float | None:
    """Return the CPU time share in processors; None without a limit, or if it cannot be read."""
    times = _words(control_group / "cpu.max")
    if not times:
        former = control_group / "cpu"
        times = [*_words(former / "cpu.cfs_quota_us"), *_words(former / "cpu.cfs_period_us")]
    try:
        quota_us, period_us = map(int, times)
    except ValueError:  # for example "max"
        return None
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None


def _words(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            return file.read(_BYTES_MAX).split()
    except OSError:
        return []
