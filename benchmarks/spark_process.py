"""A benchmark with Spark in it is a process of its own, which says what it found line by line."""

from __future__ import annotations

import contextlib
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


def lines_of(module: str, *arguments: str, asked: bool = False) -> Iterator[str]:
    """Lines of ``python -m module arguments``, as they come; BenchmarkError when it ends badly. ``asked``: it waits for
    a line of ours before it works on its next one, so that several processes can take turns."""
    command = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryFile("w+") as said:  # not a pipe: nobody reads it meanwhile, and a full one would stop Spark
        done = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, bufsize=1, cwd=_ROOT
        )
        try:
            assert done.stdin is not None
            assert done.stdout is not None
            while True:
                if asked:
                    with contextlib.suppress(BrokenPipeError):  # it has ended, and so do its lines
                        done.stdin.write("\n")
                line = done.stdout.readline()
                if not line:
                    break
                yield line
            if done.wait(_END_S):
                said.seek(0)
                raise BenchmarkError(f"Spark ended with {done.returncode}: {said.read().strip()[-600:]}")
        finally:
            done.kill()
            done.wait()
