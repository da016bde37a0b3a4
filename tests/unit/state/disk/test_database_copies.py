"""Copies of a database that is in use, for snapshots."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rocksdict import Checkpoint

from streams_protocol.types import TopicPartition
from streams_py.state.disk import database as database_module
from streams_py.state.disk.database import RocksMemory, TaskDatabase
from tests.support.waiting import PATIENCE_S

MEMORY = RocksMemory(block_cache_bytes=1 << 20, write_buffer_bytes=1 << 20)


def test_commits_wait_for_no_copy_that_is_being_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the interpreter's lock is not held while what is in memory is written."""
    database = TaskDatabase(str(tmp_path / "a"), ["s", "t"], memory=MEMORY)
    store = database.store("s")
    database.store("t").close()  # its task is about to close, too
    store.write(b"k", b"1")
    database.commit({TopicPartition("log", 0): 1})
    copies, commits = threading.Event(), threading.Event()
    left = []
    (tmp_path / "copy").mkdir()

    class Slow:
        def __init__(self, of: object) -> None:
            self._made = Checkpoint(of)

        def create_checkpoint(self, folder: str) -> None:
            left.append(store.properties()["num-entries-active-mem-table"])
            copies.set()
            assert commits.wait(PATIENCE_S)
            self._made.create_checkpoint(folder)

    monkeypatch.setattr(database_module.rocksdict, "Checkpoint", Slow)
    with ThreadPoolExecutor() as pool:
        copied = pool.submit(database.checkpoint, str(tmp_path / "copy" / "rocksdb"))
        copies.wait(PATIENCE_S)
        store.write(b"k", b"2")
        pool.submit(database.commit, {TopicPartition("log", 0): 2}).result(PATIENCE_S)
        commits.set()
        assert copied.result() == ({TopicPartition("log", 0): 1}, {})
    assert left == [0]
    database.close()
    copy = TaskDatabase(str(tmp_path / "copy"), ["s", "t"], memory=MEMORY)
    assert (copy.store("s").read(b"k"), copy.positions()) == (b"2", {TopicPartition("log", 0): 2})
    copy.close()
