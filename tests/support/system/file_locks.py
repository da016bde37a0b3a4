"""File locks that another process holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLDER = """
import sys
from pathlib import Path
from streams_py.system.file_locks import FileLock
lock = FileLock.take(Path(sys.argv[1]))
print(type(lock).__name__, flush=True)
sys.stdin.read()
"""


@contextmanager
def held_elsewhere(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process has the lock, until it is killed."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "FileLock"
        yield holder
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
