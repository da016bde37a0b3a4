"""A task whose database is damaged: its files are set aside, and it starts with an empty database."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import StateError
from streams_py.ports import BEGINNING
from streams_py.state.disk.damage import is_damage_in
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.tasks.initial_state import database_of, set_damaged_aside
from tests.support.state.global_stores import PARTITIONS, opened, restore

TASK, AT = TaskId(0, 3), TopicPartition("app-s-changelog", 3)


def filled(folder: Path) -> Path:
    database = database_of(TASK, str(folder), {"s": ""}, None)
    database.commit({AT: 7})
    database.close()
    return folder / "rocksdb"


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*"])
@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"garbage"], ids=["empty", "zeros", "garbage"])
def test_damaged_database_is_set_aside_with_one_warning(
    tmp_path: Path, name: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):  # one copy is kept
        (damaged,) = filled(tmp_path).glob(name)
        damaged.write_bytes(content)
        caplog.clear()
        database = database_of(TASK, str(tmp_path), {"s": ""}, None)
        assert database.positions() == {}
        database.close()
        warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(warned) == 1
        assert "task 0_3: its store files are damaged" in warned[0]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["rocksdb", "rocksdb-damaged"]


def with_files(folder: Path) -> Path:
    """A database with a store file."""
    database = TaskDatabase(str(folder), ["s"])
    store = database.store("s")
    store.write(b"k", b"v")
    database.commit({AT: 7})
    database.close()
    database = TaskDatabase(str(folder), ["s"])  # flushes the entries of the log to a file
    database.close()
    assert list((folder / "rocksdb").glob("*.sst"))
    return folder / "rocksdb"


@pytest.mark.parametrize("deleted", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_database_that_misses_a_file_is_set_aside_with_one_warning(
    tmp_path: Path, deleted: str, caplog: pytest.LogCaptureFixture
) -> None:
    for path in list(with_files(tmp_path).glob(deleted)):
        path.unlink()
    database = database_of(TASK, str(tmp_path), {"s": ""}, None)
    assert database.positions() == {}
    assert database.store("s").read(b"k") is None
    database.close()
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == 1
    assert "task 0_3: its store files are damaged" in warned[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rocksdb", "rocksdb-damaged"]


def test_first_start_that_was_killed_leaves_no_damaged_database(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "rocksdb"
    folder.mkdir(mode=0o700)
    (folder / "LOG").write_text("")
    (folder / "LOCK").write_text("")
    database_of(TASK, str(tmp_path), {"s": ""}, None).close()
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []
    assert [path.name for path in tmp_path.iterdir()] == ["rocksdb"]


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*", "*.sst"])
@pytest.mark.parametrize("content", [None, b"", b"\0" * 40], ids=["deleted", "empty", "zeros"])
def test_damaged_database_of_global_stores_is_set_aside_and_filled_again(
    tmp_path: Path, name: str, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    stores, directory = opened(tmp_path)
    restore(stores, PARTITIONS[0], 5)
    stores.checkpoint(enforce=True)
    stores.close()
    directory.close()
    for path in list(tmp_path.glob(f"app/global/rocksdb/{name}")):
        path.unlink() if content is None else path.write_bytes(content)
    caplog.clear()
    stores, directory = opened(tmp_path)
    assert stores.restore_position(PARTITIONS[0]) == BEGINNING
    restore(stores, PARTITIONS[0], 5)
    stores.close()
    directory.close()
    warned = [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]
    assert len(warned) == 1
    assert "global stores: their store files are damaged" in warned[0]
    assert (tmp_path / "app" / "global" / "rocksdb-damaged").is_dir()


def test_database_that_is_in_use_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    open_one = TaskDatabase(str(tmp_path), ["s"])
    try:
        with pytest.raises(StateError):
            database_of(TASK, str(tmp_path), {"s": ""}, None)
    finally:
        open_one.close()
    assert [path.name for path in tmp_path.iterdir()] == ["rocksdb"]


# -- damage that shows while the database is open ------------------------------------------------------------------


def with_damaged_blocks(folder: Path, rounds: int = 1) -> TaskDatabase:
    """Return an open database with 3,000 entries, some of them in damaged blocks. ``rounds``: number of files."""
    drawn = random.Random(1)
    for number in range(rounds):
        database = TaskDatabase(str(folder), ["s"])
        store = database.store("s")
        for entry in range(3_000):
            store.write(key_of(entry), drawn.randbytes(100))
        database.commit({AT: number})
        database.close()
    database = TaskDatabase(str(folder), ["s"])  # flushes the entries of the log to a file
    database.close()
    largest = max((folder / "rocksdb").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    for at in range(len(content) // 4, len(content) // 2, 2_000):  # blocks of data, not the index at the end
        content[at] ^= 0xFF
    largest.write_bytes(content)
    return TaskDatabase(str(folder), ["s"])


def key_of(number: int) -> bytes:
    return b"k%06d" % number


@pytest.mark.parametrize(
    ("first", "end"),
    [(None, None), (key_of(10), None), (None, key_of(2_900)), (key_of(900), key_of(1_000))],
    ids=["all", "from", "until", "inside"],
)
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "backwards"])
@pytest.mark.parametrize("is_written", [False, True], ids=["committed", "with uncommitted entries"])
def test_scan_that_meets_damage_raises_and_does_not_end_early(
    tmp_path: Path, first: bytes | None, end: bytes | None, reverse: bool, is_written: bool
) -> None:
    """rocksdict's iterators end at a damaged block as they do after the last entry. Windows, sessions and queries would
    silently get only some of their entries."""
    database = with_damaged_blocks(tmp_path)
    store = database.store("s")
    if is_written:
        store.write(key_of(950) + b"x", b"new")
    with pytest.raises(StateError, match=r"store 's' in .* failed: Corruption") as caught:
        list(store.scan(first, end, reverse=reverse))
    assert is_damage_in(database.path, caught.value)
    database.close()


def test_collected_range_that_meets_damage_raises(tmp_path: Path) -> None:
    database = with_damaged_blocks(tmp_path)
    with pytest.raises(StateError, match="Corruption") as caught:
        database.store("s").collect(key_of(900), key_of(1_000))
    assert is_damage_in(database.path, caught.value)
    database.close()


def test_ranges_without_damage_are_whole(tmp_path: Path) -> None:
    database = with_damaged_blocks(tmp_path)
    store = database.store("s")
    expected = [key_of(number) for number in range(100)]
    assert [key for key, _ in store.scan(None, key_of(100))] == expected
    assert [key for key, _ in store.scan(key_of(0), key_of(100), reverse=True)] == expected[::-1]
    assert [key for key, _ in store.collect(key_of(0), key_of(100))] == expected
    assert list(store.scan(key_of(2_999) + b"x", None)) == list(store.scan(b"a", b"b", reverse=True)) == []
    assert store.collect(key_of(5) + b"x", key_of(5) + b"y") == []
    database.close()


def test_compaction_that_meets_damage_shows_in_the_next_commit(tmp_path: Path) -> None:
    """RocksDB compacts in the background, and then refuses all writes: the task is restored."""
    database = with_damaged_blocks(tmp_path, rounds=2)
    database.family("s").compact_range(None, None)
    database.store("s").write(b"k", b"v")
    with pytest.raises(StateError, match="Corruption") as caught:
        database.commit({AT: 9})
    assert is_damage_in(database.path, caught.value)
    with pytest.raises(Exception, match="Corruption"):  # it cannot flush, but releases its files
        database.close()
    set_damaged_aside(TASK, str(tmp_path), caught.value)
    successor = TaskDatabase(str(tmp_path), ["s"])
    assert successor.positions() == {}
    successor.close()
