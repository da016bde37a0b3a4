"""Locks between processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streams_py.system.file_locks import FileLock, LockHolder

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


def taken(path: Path) -> FileLock:
    lock = FileLock.take(path)
    assert isinstance(lock, FileLock)
    return lock


def test_lock_says_who_has_it_and_goes_with_a_process_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held_elsewhere(path) as holder:
        found = FileLock.take(path)
        assert found == LockHolder(holder.pid, socket.gethostname())
        assert str(found) == f"process {holder.pid}"
        assert not found.is_here
    assert path.exists(), "it could not be removed"
    lock = taken(path)
    mine = FileLock.take(path)
    assert isinstance(mine, LockHolder)
    assert mine.is_here
    lock.release()
    lock.release()
    assert not path.exists()
    taken(path).release()


def test_lock_goes_with_those_who_refer_to_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = taken(path)
    del lock
    taken(path).release()


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "another process"), ("7 \x1b[31m", "another process"), ("what\nelse", "another process"),
     ("7 elsewhere", "process 7 on elsewhere")],
)  # fmt: skip
def test_what_others_have_written_is_not_trusted(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "lock"
    lock = taken(path)
    path.write_text(text)
    assert str(FileLock.take(path)) == said
    lock.release()
