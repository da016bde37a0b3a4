"""How many processors this process may use: by its affinity, and by the share of time that its container is given.

Python knows the former only. A container with one processor's worth of time on a machine of many sees all of them, and
two processes that work there stand still together, each time that their share is used up.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["usable_processors"]

_CONTROL_GROUP: Final = Path("/sys/fs/cgroup")
_BYTES_MAX: Final = 64


def usable_processors(control_group: Path = _CONTROL_GROUP) -> int:
    """Whole ones, one at least. ``control_group``: where the kernel shows that of the container (version 2 or 1)."""
    allowed = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    share = _share(control_group)
    return allowed if share is None else max(1, min(allowed, int(share)))


def _share(control_group: Path) -> float | None:
    """So many processors' worth of time; None when that has no limit, or nothing says it."""
    times = _words(control_group / "cpu.max")
    if not times:
        former = control_group / "cpu"
        times = [*_words(former / "cpu.cfs_quota_us"), *_words(former / "cpu.cfs_period_us")]
    try:
        quota_us, period_us = map(int, times)
    except ValueError:  # "max", say
        return None
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None


def _words(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            return file.read(_BYTES_MAX).split()
    except OSError:
        return []
