"""What is restored in bulk, and somebody reads, closes or writes the database meanwhile, or the disk fails."""

from __future__ import annotations

import os
import shutil
import time
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from streams_protocol.types import TopicPartition
from streams_py.errors import StateError, StateStoreMigratedError
from streams_py.state.disk import opening
from streams_py.state.disk.bulk_load import _LOGGED_RECORDS, BulkLoad  # one more than this are loaded
from streams_py.state.disk.database import RocksMemory, TaskDatabase

MEMORY = RocksMemory(block_cache_bytes=1 << 20, write_buffer_bytes=1 << 20)
LOG = TopicPartition("changelog", 0)
MANY = _LOGGED_RECORDS + 1
"""More than go through the write-ahead log."""


def load(bulk: BulkLoad, first: int, count: int = 5, *, unlogged: bool = True) -> None:
    """Restore numbers, in no order."""
    keys = [b"%06d" % number for number in range(first, first + count)][::-1]
    fill = partial(bulk.database.store("s").write_batch, keys, keys)
    bulk.restore(fill, {LOG: first + count - 1}, in_bulk=MANY if unlogged else 0)


def loading(folder: Path) -> tuple[TaskDatabase, BulkLoad]:
    """Five numbers went through the log, five more did not."""
    database = TaskDatabase(str(folder), ["s"], memory=MEMORY)
    bulk = BulkLoad(database)
    load(bulk, 0, unlogged=False)
    load(bulk, 5)
    assert database.mode.is_loading
    return database, bulk


def load_until_it_fails(bulk: BulkLoad) -> None:
    for first in range(10, 900_000, 20_000):
        load(bulk, first, 20_000)
        for _ in range(5_000):
            if not bulk.is_behind:
                break
            time.sleep(0.001)
        else:
            pytest.fail("restoring would wait forever")


def test_disk_that_fails_is_not_waited_for_and_what_is_closed_can_be_opened_again(tmp_path: Path) -> None:
    database, bulk = loading(tmp_path)
    gone = f"{database.path}-gone"
    os.rename(database.path, gone)  # RocksDB's threads cannot make files
    database.location._identity = None  # and the check of the location is disabled
    with pytest.raises(StateError, match="No such file"):
        load_until_it_fails(bulk)
    os.rename(gone, database.path)
    with pytest.raises(Exception, match="No such file"):
        database.close()
    again = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    assert again.store("s").read(b"000001") == b"000001"
    again.close()


def test_who_reads_while_a_database_is_opened_again_is_to_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, bulk = loading(tmp_path)
    # The read must come between the close and the opening.
    store, opens, refused = database.store("s"), database._open, []

    def read_and_open(wanted: list[str]) -> set[str]:
        with pytest.raises(StateStoreMigratedError):
            store.read(b"000001")
        refused.append(True)
        return opens(wanted)

    monkeypatch.setattr(database, "_open", read_and_open)  # see above
    bulk.end_loading()
    assert refused
    assert store.read(b"000001") == b"000001"
    database.close()


def test_step_of_a_scan_keeps_a_database_from_being_opened_again_only_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, bulk = loading(tmp_path)
    store = database.store("s")
    step = [store._family.items()]  # as a thread has it that is in the midst of one
    monkeypatch.setattr(opening, "sleep", lambda _seconds: step.clear())
    bulk.end_loading()
    assert not step
    assert store.read(b"000009") == b"000009"
    database.close()


class SlowFlush:
    """A store that stands still once it has flushed."""

    def __init__(self, database: TaskDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_flushed, self.may_go_on = Event(), Event()
        self._flush = database.store("s").flush
        monkeypatch.setattr(database.store("s"), "flush", self)

    def __call__(self) -> None:
        self._flush()
        self.has_flushed.set()
        assert self.may_go_on.wait(30)


def test_positions_never_claim_what_was_restored_while_a_database_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, bulk = loading(tmp_path / "a")
    slow = SlowFlush(database, monkeypatch)
    assert not database.flush_in_background()
    assert slow.has_flushed.wait(30)
    further = Thread(target=load, args=(bulk, 10))  # its task was taken away, and brought back
    further.start()
    further.join(0.2)
    slow.may_go_on.set()
    further.join()
    database.mode.closing.acquire()  # settled
    shutil.copytree(database.path, tmp_path / "b" / "rocksdb")
    database.mode.closing.release()
    crashed = TaskDatabase(str(tmp_path / "b"), ["s"], memory=MEMORY)
    assert crashed.store("s").read(b"%06d" % crashed.positions()[LOG]) is not None
    crashed.close()
    while not database.flush_in_background():
        time.sleep(0.001)
    assert database.is_logged
    assert database.positions() == {LOG: 14}
    database.close()


def test_store_that_is_closed_while_its_database_settles_can_be_opened_again(tmp_path: Path) -> None:
    database, bulk = loading(tmp_path)
    load(bulk, 10, 200_000)
    assert not database.flush_in_background()
    time.sleep(0.005)  # RocksDB sorts for longer
    database.store("s").close()
    database.close()
    again = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    assert again.positions() == {LOG: 200_009}
    again.close()


def test_files_that_are_deleted_under_a_restoration_are_no_empty_database_to_go_on_with(tmp_path: Path) -> None:
    database, bulk = loading(tmp_path)
    database.flush()
    shutil.rmtree(database.path)
    with pytest.raises(StateError, match="rocksdb was deleted") as kept:
        bulk.end_loading()
    database.close()
    again = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)  # though somebody keeps the error, and what it holds
    assert (again.positions(), again.store("s").read(b"000001")) == ({}, None)
    again.close()
    assert kept.value.__traceback__ is not None
