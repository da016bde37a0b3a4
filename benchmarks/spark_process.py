"""A benchmark with Spark in it is a process of its own, which says what it found line by line."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.cluster import BenchmarkError

__all__ = ["lines_of"]

_END_S: Final = 120.0
"""How long a process may take to end after its last line."""
_ROOT: Final = Path(__file__).resolve().parent.parent


def lines_of(module: str, *arguments: str) -> Iterator[str]:
    """Lines of ``python -m module arguments``, as they come; BenchmarkError when it ends badly."""
    command = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryFile("w+") as said:  # not a pipe: nobody reads it meanwhile, and a full one would stop Spark
        done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, cwd=_ROOT)
        try:
            assert done.stdout is not None
            yield from done.stdout
            if done.wait(_END_S):
                said.seek(0)
                raise BenchmarkError(f"Spark ended with {done.returncode}: {said.read().strip()[-600:]}")
        finally:
            done.kill()
            done.wait()
