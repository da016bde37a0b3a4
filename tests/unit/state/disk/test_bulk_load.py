"""What is restored: straight into the store's files, and in bulk past the write-ahead log."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.errors import StateError, StateStoreMigratedError
from streams_py.state.disk.bulk_load import _LOGGED_RECORDS, BulkLoad  # one more than this are loaded
from streams_py.state.disk.database import RocksBytes, RocksMemory, TaskDatabase
from tests.support.waiting import until

MEMORY = RocksMemory(block_cache_bytes=1 << 20, write_buffer_bytes=1 << 20)
LOG = TopicPartition("log", 0)
MANY = _LOGGED_RECORDS + 1
"""More than go through the write-ahead log."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[TaskDatabase]:
    database = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    yield database
    database.close()


@pytest.fixture
def store(database: TaskDatabase) -> RocksBytes:
    return database.store("s")


def test_what_is_restored_is_on_disk_with_its_position_and_waits_nowhere(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s", "other"], memory=MEMORY)
    store = database.store("s")
    keys = [b"a", b"b", b"a", b"c", b"c"]
    BulkLoad(database).restore(lambda: store.write_batch(keys, [b"1", b"2", b"3", b"4", None]), {LOG: 4})
    assert database.uncommitted_bytes == 0
    assert store.read(b"c") is None
    database.roll_back()
    database.close()
    database = TaskDatabase(str(tmp_path), ["s", "other"], memory=MEMORY)
    assert database.positions() == {LOG: 4}
    assert dict(database.store("s").scan(None, None)) == {b"a": b"3", b"b": b"2"}
    assert dict(database.store("other").scan(None, None)) == {}
    database.close()


def test_restored_records_win_over_what_is_remembered_of_the_last_commit(
    database: TaskDatabase, store: RocksBytes
) -> None:
    store.write(b"a", b"1")
    database.commit({})
    BulkLoad(database).restore(lambda: store.write_batch([b"a"], [b"2"]), {})
    assert store.read(b"a") == b"2"


def test_restored_records_win_over_what_waits(database: TaskDatabase, store: RocksBytes) -> None:
    store.write(b"a", b"1")
    store.write(b"b", b"1")
    BulkLoad(database).restore(lambda: store.write_batch([b"a"], [b"2"]), {})
    database.roll_back()
    assert dict(store.scan(None, None)) == {b"a": b"2", b"b": b"1"}


def test_nothing_of_a_restoration_is_left_when_it_fails(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    store = database.store("s")
    not_bytes: Any = ["1", "2"]
    with pytest.raises(ValueError, match="bytes") as kept:
        BulkLoad(database).restore(lambda: store.write_batch([b"a", b"b"], not_bytes), {LOG: 1})
    assert database.positions() == {}
    store.write_batch([b"c"], [b"3"])  # waits, as ever
    assert database.uncommitted_bytes > 0
    database.commit({})
    database.close()
    again = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)  # though somebody keeps the error
    assert dict(again.store("s").scan(None, None)) == {b"c": b"3"}
    again.close()
    assert kept.value.__traceback__ is not None


def as_after_a_crash(database: TaskDatabase, folder: Path) -> TaskDatabase:
    """Return a database as after a kill: a copy of the current files, opened again."""
    shutil.copytree(database.path, folder / "rocksdb")
    return TaskDatabase(str(folder), ["s", "t"], memory=MEMORY)


def restored_past_the_log(folder: Path) -> TaskDatabase:
    """Keys 0 to 9 of two stores, the first five through the log."""
    database = TaskDatabase(str(folder), ["s", "t"], memory=MEMORY)
    bulk = BulkLoad(database)
    for first in (0, 5):
        keys = [b"%d" % number for number in range(first, first + 5)]
        for name in ("s", "t"):
            load = partial(database.store(name).write_batch, keys, keys)
            bulk.restore(load, {TopicPartition(name, 0): first + 4}, in_bulk=MANY if first else 0)
    return database


def found(database: TaskDatabase) -> set[tuple[int, int]]:
    """Entries and position of each store."""
    positions = database.positions()
    try:
        return {(len(list(database.store(name).scan(None, None))), positions[TopicPartition(name, 0)]) for name in "st"}
    finally:
        database.close()


def test_crash_leaves_an_earlier_position_and_its_data_when_the_log_was_left_out(tmp_path: Path) -> None:
    database = restored_past_the_log(tmp_path / "a")
    assert found(as_after_a_crash(database, tmp_path / "b")) == {(5, 4)}
    assert found(database) == {(10, 9)}
    assert found(TaskDatabase(str(tmp_path / "a"), ["s", "t"], memory=MEMORY)) == {(10, 9)}  # closing loses nothing


def test_what_was_restored_past_the_log_can_be_brought_to_the_disk(tmp_path: Path) -> None:
    database = restored_past_the_log(tmp_path / "a")
    database.flush()
    assert found(as_after_a_crash(database, tmp_path / "b")) == {(10, 9)}
    database.close()
    database.flush()  # a thread that comes too late


def test_commit_makes_sure_of_what_was_restored_past_the_log(tmp_path: Path) -> None:
    database = restored_past_the_log(tmp_path / "a")
    database.store("s").write(b"9", b"processed")
    database.commit({TopicPartition("s", 0): 10})
    assert found(as_after_a_crash(database, tmp_path / "b")) == {(10, 10), (10, 9)}
    database.close()


def load(bulk: BulkLoad, first: int, count: int = 5, *, logged: bool = False, in_order: bool = False) -> None:
    """Restore numbers in bulk."""
    keys = [b"%06d" % number for number in range(first, first + count)]
    keys = keys if in_order else keys[::-1]
    load = partial(bulk.database.store("s").write_batch, keys, keys)
    bulk.restore(load, {LOG: first + count - 1}, in_bulk=0 if logged else MANY)


def restoring(folder: Path, *, in_order: bool = False) -> tuple[TaskDatabase, BulkLoad]:
    """Five numbers went through the log, the next ones do not."""
    database = TaskDatabase(str(folder), ["s", "t"], memory=MEMORY)
    bulk = BulkLoad(database)
    load(bulk, 0, logged=True, in_order=in_order)
    return database, bulk


def test_bulk_is_loaded_into_a_database_for_writing_until_it_is_committed(tmp_path: Path) -> None:
    database, bulk = restoring(tmp_path / "a")
    store, other = database.store("s"), database.store("t")
    other.write(b"x", b"1")
    database.commit({})
    load(bulk, 5)
    assert database.mode.is_loading
    load(bulk, 10)
    database.flush()
    assert database.mode.is_loading
    store.write(b"9", b"processed")
    database.commit({LOG: 15})
    assert not database.mode.is_loading
    assert (store.read(b"000001"), store.read(b"9"), other.read(b"x")) == (b"000001", b"processed", b"1")
    assert len(list(store.scan(None, None))) == 16
    database.close()
    again = TaskDatabase(str(tmp_path / "a"), ["s"], memory=MEMORY)
    assert again.positions() == {LOG: 15}
    assert again.store("s").read(b"9") == b"processed"
    again.close()


def test_keys_in_order_need_no_database_for_writing(tmp_path: Path) -> None:
    database, bulk = restoring(tmp_path, in_order=True)
    load(bulk, 5, in_order=True)
    assert not database.mode.is_loading
    load(bulk, 10)
    load(bulk, 15)
    assert database.mode.is_loading
    assert len(list(database.store("s").scan(None, None))) == 20
    database.close()


def test_files_are_merged_when_all_is_restored(tmp_path: Path) -> None:
    database, bulk = restoring(tmp_path, in_order=True)

    def files() -> int:
        family = database.store("s")._family  # only RocksDB knows its files
        return int(family.property_value("rocksdb.num-files-at-level0"))

    for number in range(1, 10):
        load(bulk, 5 * number, in_order=True)
        database.flush()
    assert not database.mode.is_loading
    assert files() == 9
    bulk.end_loading()
    until(lambda: files() < 4, "the files to be merged")
    assert len(list(database.store("s").scan(None, None))) == 50
    database.close()


def test_what_is_loaded_is_read_as_ever_and_then_no_longer_loaded_for_writing(tmp_path: Path) -> None:
    database, bulk = restoring(tmp_path)
    store = database.store("s")
    read = store.read  # somebody keeps it
    load(bulk, 5)
    assert read(b"000003") == b"000003"
    load(bulk, 10)
    assert not database.mode.is_loading
    load(bulk, 15)
    assert not database.mode.is_loading
    assert (read(b"000003"), read(b"000012")) == (b"000003", b"000012")
    bulk.end_loading()
    load(bulk, 20)  # it was read
    load(bulk, 25)
    assert database.mode.is_loading
    assert [data for _, data in store.scan(b"000015", b"000016")] == [b"000015"]
    load(bulk, 30)
    assert not database.mode.is_loading
    database.close()


@pytest.mark.parametrize("reads", ["get", "scan", "collect"])
def test_what_is_loaded_is_sorted_once_for_those_who_read_while_nothing_more_comes(reads: str, tmp_path: Path) -> None:
    """The client is paused, or no broker responds: each read would have to sort the memtable."""
    database, bulk = restoring(tmp_path)
    store = database.store("s")
    load(bulk, 5)
    assert database.mode.is_loading
    assert store.properties()["num-entries-active-mem-table"] == 5
    ask = {
        "get": lambda: store.read(b"000007"),
        "scan": lambda: list(store.scan(b"000007", b"000008")),
        "collect": lambda: store.collect(b"000007", b"000008"),
    }
    assert ask[reads]() in (b"000007", [(b"000007", b"000007")])
    assert store.properties()["num-entries-active-mem-table"] == 0
    assert database.is_logged
    left = as_after_a_crash(database, tmp_path / "b")
    assert (left.positions(), len(list(left.store("s").scan(None, None)))) == ({LOG: 9}, 10)
    left.close()
    database.close()


def test_store_whose_restoration_reads_is_not_loaded_for_writing(tmp_path: Path) -> None:
    database, bulk = restoring(tmp_path)
    store = database.store("s")
    for number in range(3):
        bulk.restore(lambda: list(store.scan(None, None)), {LOG: number}, in_bulk=MANY if number else 0)
    assert not database.mode.is_loading
    database.close()


def test_scan_that_is_open_when_loading_ends_ends_with_an_error(tmp_path: Path) -> None:
    database, bulk = restoring(tmp_path)
    store = database.store("s")
    load(bulk, 5)
    assert database.mode.is_loading
    scan = store.scan(None, None)
    bulk.end_loading()
    with pytest.raises(StateStoreMigratedError):
        next(scan)
    database.close()


@pytest.mark.parametrize("in_order", [False, True])
def test_restoring_waits_for_the_disk(in_order: bool, tmp_path: Path) -> None:
    """More than RocksDB lets wait is never written; one megabyte for all buffers is soon full."""
    database, bulk = restoring(tmp_path, in_order=in_order)
    waited = 0
    for first in range(5, 200_000, 500):
        while bulk.is_behind:
            waited += 1
            time.sleep(0.001)
        load(bulk, first, 500, in_order=in_order)
    assert database.mode.is_loading != in_order
    assert waited or in_order  # which a disk may be quick enough for
    assert database.store("s").properties()["num-immutable-mem-table"] <= 3
    bulk.end_loading()
    database.flush()
    assert not bulk.is_behind
    assert database.store("s").approximate_count() == 200_005
    database.close()
    assert not bulk.is_behind


def settled(database: TaskDatabase) -> int:
    """How often it had to be asked."""
    waited = 0
    while not database.flush_in_background():
        waited += 1
        time.sleep(0.001)
    return waited


def test_database_settles_beside_other_work(tmp_path: Path) -> None:
    database, bulk = restoring(tmp_path / "a")
    assert not settled(database)
    load(bulk, 5)
    assert settled(database)
    crashed = as_after_a_crash(database, tmp_path / "b")
    assert crashed.positions() == {LOG: 9}
    crashed.close()
    database.close()
    assert database.flush_in_background()


def test_what_fails_while_it_settles_is_said_to_who_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database, bulk = restoring(tmp_path)
    load(bulk, 5)
    monkeypatch.setattr(database.store("s"), "flush", lambda: 1 / 0)
    with pytest.raises(StateError, match="division by zero"):
        settled(database)
    monkeypatch.undo()
    settled(database)
    assert database.is_logged
    database.close()


def test_database_that_cannot_be_opened_again_says_so_and_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, bulk = restoring(tmp_path)
    store = database.store("s")
    load(bulk, 5)
    assert database.mode.is_loading

    def refuse(wanted: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(database, "_open", refuse)  # in place of a full table of open files
    with pytest.raises(StateError, match="raise the limit of open files"):
        bulk.end_loading()
    with pytest.raises(Exception, match="closed"):
        store.read(b"000001")
    database.close()
    again = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    assert again.store("s").read(b"000001") == b"000001"
    again.close()


def test_restored_records_win_over_earlier_writes(store: RocksBytes) -> None:
    store.write(b"a", b"1")
    store.write_batch([b"a"], [b"2"])
    assert store.read(b"a") == b"2"
    store.clear()
    assert store.read(b"a") is None
