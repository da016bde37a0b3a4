"""Runs a benchmark in a separate process, so that imports and memory of others do not affect it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.cluster import BenchmarkError

_ROOT = Path(__file__).resolve().parent.parent
_TIMEOUT_S = 300


def numbers_of(module: str, *arguments: str, count: int) -> list[float]:
    """Run ``benchmarks.<module>``; return the last ``count`` numbers that it prints.

    Raises BenchmarkError if the process fails.
    """
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
