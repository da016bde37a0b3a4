"""Runs a benchmark with Spark in a separate process, which prints its results line by line."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.cluster import BenchmarkError

_END_S: Final = 120.0
"""Maximum time for a process to stop after its last line, in s."""
_ROOT: Final = Path(__file__).resolve().parent.parent


def lines_of(module: str, *arguments: str, asked: bool = False) -> Iterator[str]:
    """Run ``python -m module arguments`` and yield its lines. Raises BenchmarkError if it fails.

    ``asked``: the process waits for an input line before each of its lines, so that several processes can take turns.
    """
    command = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryFile(
        "w+"
    ) as said:  # not a pipe, which is not read meanwhile and would block Spark when full
        done = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, bufsize=1, cwd=_ROOT
        )
        try:
            assert done.stdin is not None
            assert done.stdout is not None
            while True:
                if asked:
                    with contextlib.suppress(BrokenPipeError):  # it has stopped and writes nothing more
                        done.stdin.write("\n")
                line = done.stdout.readline()
                if not line:
                    break
                yield line
            if done.wait(_END_S):
                said.seek(0)
                raise BenchmarkError(f"Spark stopped with status {done.returncode}: {said.read().strip()[-600:]}")
        finally:
            done.kill()
            done.wait()
