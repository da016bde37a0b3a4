"""What is restored: straight into the store's files, and in bulk past the write-ahead log."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.state.disk.database import RocksBytes, RocksMemory, TaskDatabase

MEMORY = RocksMemory(block_cache_bytes=1 << 20, write_buffer_bytes=1 << 20)
LOG = TopicPartition("log", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksBytes]:
    database = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    yield database.store("s")
    database.close()


def test_what_is_restored_is_on_disk_with_its_position_and_waits_nowhere(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s", "other"], memory=MEMORY)
    store = database.store("s")
    keys = [b"a", b"b", b"a", b"c", b"c"]
    database.restore(lambda: store.write_batch(keys, [b"1", b"2", b"3", b"4", None]), {LOG: 4})
    assert database.uncommitted_bytes == 0
    assert store.read(b"c") is None
    database.roll_back()
    database.close()
    database = TaskDatabase(str(tmp_path), ["s", "other"], memory=MEMORY)
    assert database.positions() == {LOG: 4}
    assert dict(database.store("s").scan(None, None)) == {b"a": b"3", b"b": b"2"}
    assert dict(database.store("other").scan(None, None)) == {}
    database.close()


def test_restored_records_win_over_what_is_remembered_of_the_last_commit(store: RocksBytes) -> None:
    store.write(b"a", b"1")
    store._database.commit({})
    store._database.restore(lambda: store.write_batch([b"a"], [b"2"]), {})
    assert store.read(b"a") == b"2"


def test_restored_records_win_over_what_waits(store: RocksBytes) -> None:
    store.write(b"a", b"1")
    store.write(b"b", b"1")
    store._database.restore(lambda: store.write_batch([b"a"], [b"2"]), {})
    store._database.roll_back()
    assert dict(store.scan(None, None)) == {b"a": b"2", b"b": b"1"}


def test_nothing_of_a_restoration_is_left_when_it_fails(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    store = database.store("s")
    not_bytes: Any = ["1", "2"]
    with pytest.raises(ValueError, match="bytes") as kept:
        database.restore(lambda: store.write_batch([b"a", b"b"], not_bytes), {LOG: 1})
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
    """What a killed process would leave: the files as they are now, opened by another one."""
    shutil.copytree(database.path, folder / "rocksdb")
    return TaskDatabase(str(folder), ["s", "t"], memory=MEMORY)


def restored_past_the_log(folder: Path) -> TaskDatabase:
    """Keys 0 to 9 of two stores, the first five through the log."""
    database = TaskDatabase(str(folder), ["s", "t"], memory=MEMORY)
    for first in (0, 5):
        keys = [b"%d" % number for number in range(first, first + 5)]
        for name in ("s", "t"):
            load = partial(database.store(name).write_batch, keys, keys)
            database.restore(load, {TopicPartition(name, 0): first + 4}, unlogged=first > 0)
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
    database.settle()
    assert found(as_after_a_crash(database, tmp_path / "b")) == {(10, 9)}
    database.close()
    database.settle()  # a thread that comes too late


def test_commit_makes_sure_of_what_was_restored_past_the_log(tmp_path: Path) -> None:
    database = restored_past_the_log(tmp_path / "a")
    database.store("s").write(b"9", b"processed")
    database.commit({TopicPartition("s", 0): 10})
    assert found(as_after_a_crash(database, tmp_path / "b")) == {(10, 10), (10, 9)}
    database.close()


def test_restored_records_win_over_earlier_writes(store: RocksBytes) -> None:
    store.write(b"a", b"1")
    store.write_batch([b"a"], [b"2"])
    assert store.read(b"a") == b"2"
    store.clear()
    assert store.read(b"a") is None
