"""Locks between processes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from streams_py.system.file_locks import FileLock, LockHolder
from tests.support.system.file_locks import held_elsewhere


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
