"""A benchmark in a process of its own: what others import, allocate and leave behind does not count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.cluster import BenchmarkError

__all__ = ["figures_of"]

_ROOT = Path(__file__).resolve().parent.parent
_TIMEOUT_S = 300


def figures_of(module: str, *arguments: str, count: int) -> list[float]:
    """Run ``benchmarks.<module>``; the last ``count`` numbers that it prints. BenchmarkError when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        check=False,
        timeout=_TIMEOUT_S,
    )
    if done.returncode:
        raise BenchmarkError(f"{module} {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return [float(text) for text in done.stdout.split()[-count:]]
