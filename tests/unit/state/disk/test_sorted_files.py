"""Entries as sorted files, and what a store has when they are taken in."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import StateError
from streams_py.ports import SortedPart
from streams_py.serdes import STRING
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.disk import bulk_load
from streams_py.state.disk.bulk_load import BulkLoad
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.disk.options import LEVEL_0_FILES_MAX, LEVEL_0_FILES_MERGED
from streams_py.state.disk.sorted_files import SortedFiles
from streams_py.state.stores.changelog_entries import ChangelogEntries
from streams_py.state.stores.codec import pack_timestamp
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.declare.stores import StoreBuilder, StoreKind, WindowRetention

TASK = TaskId(0, 3)
LOG = TopicPartition("app-disk-changelog", 3)


def opened(directory: StateDirectory, kind: StoreKind = StoreKind.TIMESTAMPED_KEY_VALUE, **how: Any) -> TaskState:
    builder = StoreBuilder("disk", kind, STRING, STRING, persistent=True, **how)
    state = TaskState(TASK, [builder], StoreEnvironment(directory, "thread"), application_id="app")
    state.open()
    return state


def record(offset: int, key: str, value: str | None) -> MemoryRecord:
    data = None if value is None else value.encode()
    return MemoryRecord(LOG.topic, LOG.partition, offset, key.encode(), data, timestamp_ms=offset)


def history(count: int, seed: int) -> list[MemoryRecord]:
    """Keys written again and again, every fifth record a deletion."""
    draw = random.Random(seed)
    return [
        record(offset, f"k{draw.randrange(count // 3)}", None if draw.randrange(5) == 0 else f"v{offset}")
        for offset in range(count)
    ]


def sorted_part(state: TaskState, records: list[MemoryRecord], **how: Any) -> SortedPart:
    place = state.sorted_files(LOG)
    assert place is not None
    files = SortedFiles(place[0], "part", stamped=place[1], **how)
    for start in range(0, len(records), 7):
        files.add(ChangelogEntries.of([(r.key(), r.value(), r.timestamp()[1]) for r in records[start : start + 7]]))
    return SortedPart(tuple(files.finish()), records[-1].offset(), len(records), 1)


def contents(state: TaskState) -> list[Any]:
    return list(state.store("disk").all())


@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE])
@pytest.mark.parametrize("bytes_max", [1 << 20, 200])
@pytest.mark.parametrize("logged", [20_000, 1], ids=["logged", "in bulk"])
def test_store_has_the_same_whether_records_or_files_of_them_came(
    directory: StateDirectory, kind: StoreKind, bytes_max: int, logged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_load, "_LOGGED_RECORDS", logged)
    records = history(300, seed=bytes_max)
    state = opened(directory, kind)
    state.restore(LOG, records, in_bulk=True)
    expected = contents(state)
    state.close(wipe=True)
    state = opened(directory, kind)
    state.restore(LOG, records[:100], in_bulk=True)
    while not state.flush_restored():
        pass
    part = sorted_part(state, records[100:250], bytes_max=bytes_max)
    assert (len(part.files) > 1) is (bytes_max == 200)
    state.take_in(LOG, part)
    assert state.restore_position(LOG) == 250
    assert not any(Path(file).exists() for file in part.files)
    state.restore(LOG, records[250:], in_bulk=True)
    state.end_loading()
    assert contents(state) == expected
    state.close()
    state = opened(directory, kind)
    assert contents(state) == expected
    assert state.restore_position(LOG) == 300
    state.close()


def test_database_that_takes_in_many_files_says_when_its_disk_has_to_catch_up(tmp_path: Path) -> None:
    """From 36 files on, writers are blocked, and with them all threads that need the interpreter's lock."""
    database = TaskDatabase(str(tmp_path), ["disk"])
    bulk, store = BulkLoad(database), database.store("disk")
    for number in range(60):
        files = SortedFiles(str(tmp_path / "sorted"), str(number), stamped=False)
        draw = random.Random(number)
        keys = [draw.randbytes(8) for _ in range(2_000)]
        files.add(ChangelogEntries.of([(key, draw.randbytes(1_000), 0) for key in keys]))
        while bulk.is_behind:
            time.sleep(0.001)
        bulk.take_in("disk", files.finish(), {LOG: number})
        # Only RocksDB knows its files.
    assert int(store._family.property_value("rocksdb.num-files-at-level0")) <= LEVEL_0_FILES_MAX
    assert database.positions() == {LOG: 59}
    database.close()


def test_database_is_closed_while_files_that_it_has_taken_in_are_merged(tmp_path: Path) -> None:
    """RocksDB lets a flush wait as long as writers would have to, and closing flushes."""
    database = TaskDatabase(str(tmp_path), ["disk"])
    store = database.store("disk")
    store.merge(1_000)
    files = SortedFiles(str(tmp_path / "sorted"), "a", stamped=False, bytes_max=1 << 20)
    noise = random.Random(7)
    while len(files.paths) < 24:  # each of them over all of the keys
        files.add(ChangelogEntries.of([(noise.randbytes(8), noise.randbytes(1_000), 0) for _ in range(100)]))
    BulkLoad(database).take_in("disk", files.finish(), {LOG: 7})
    store.merge(LEVEL_0_FILES_MERGED)
    store.write(b"k", b"v" * 100_000)
    database.commit({LOG: 8})
    database.close()
    said = (tmp_path / "rocksdb" / "LOG").read_text()
    assert "Shutdown complete" in said
    assert "waiting on stall conditions" not in said
    again = TaskDatabase(str(tmp_path), ["disk"])
    assert again.positions() == {LOG: 8}
    assert again.store("disk").read(b"k") == b"v" * 100_000
    again.close()


def test_files_lie_over_what_was_committed_lately(directory: StateDirectory) -> None:
    state = opened(directory)
    for offset in range(5):  # kept in memory, as bundles in the database
        state.restore(LOG, [record(offset, "a", f"old{offset}"), record(offset, f"b{offset}", "b")])
    state.take_in(LOG, sorted_part(state, [record(7, "a", "new"), record(8, "b1", None)]))
    assert [key for key, _ in contents(state)] == ["a", "b0", "b2", "b3", "b4"]
    assert state.store("disk").get("a") == ("new", 7)  # type: ignore[union-attr]
    state.close()


def test_after_a_crash_between_files_and_position_the_same_is_restored_again(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = history(60, seed=1)
    state = opened(directory)
    state.restore(LOG, records[:30])
    part = sorted_part(state, records[30:])

    def crash(*_: object, **__: object) -> None:
        raise StateError("killed")

    with monkeypatch.context() as patch:
        whole = BulkLoad.take_in

        def take_in(self: BulkLoad, store: str, files: Any, positions: Any) -> None:
            whole(self, store, files, {})
            crash()

        patch.setattr(BulkLoad, "take_in", take_in)
        with pytest.raises(StateError, match="killed"):
            state.take_in(LOG, part)
    state.close()
    state = opened(directory)
    assert state.restore_position(LOG) == 30
    state.restore(LOG, records[30:])
    alive = {r.key(): r.value() for r in records if r.value() is not None}
    for r in records:
        if r.value() is None:
            alive.pop(r.key(), None)
        else:
            alive[r.key()] = r.value()
    assert {key.encode(): value[0].encode() for key, value in contents(state)} == alive
    state.close()


def test_next_owner_removes_files_that_were_left(directory: StateDirectory) -> None:
    state = opened(directory)
    part = sorted_part(state, history(10, seed=2))
    state.close()
    state = opened(directory)
    assert not Path(part.files[0]).exists()
    state.close()


def test_task_that_is_gone_gets_no_directory_again(directory: StateDirectory) -> None:
    state = opened(directory)
    place = state.sorted_files(LOG)
    assert place is not None
    state.close(wipe=True)
    with pytest.raises(FileNotFoundError):
        SortedFiles(place[0], "part", stamped=True)


def test_part_without_records_moves_nothing(directory: StateDirectory) -> None:
    state = opened(directory)
    state.restore(LOG, [record(0, "a", "b")])
    state.take_in(LOG, SortedPart((), None, 0, 0))
    assert state.restore_position(LOG) == 1
    state.close()


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (StoreKind.TIMESTAMPED_KEY_VALUE, {"ttl_ms": 1_000}),
        (StoreKind.VERSIONED_KEY_VALUE, {"history_ms": 1_000}),
        (StoreKind.WINDOW, {"windows": WindowRetention(10_000, 1_000, 5_000)}),
    ],
)
def test_stores_whose_keys_are_not_those_of_the_changelog_take_none(
    directory: StateDirectory, kind: StoreKind, how: dict[str, Any]
) -> None:
    state = opened(directory, kind, **how)
    assert state.sorted_files(LOG) is None
    state.close()


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    files = SortedFiles(str(tmp_path), "part", stamped=True)
    (tmp_path / "part-0.sst").mkdir()
    files.add(ChangelogEntries.of([(b"k", b"v", 1)]))
    with pytest.raises(StateError, match=r"part-0\.sst"):
        files.finish()


def test_weight_is_that_of_keys_and_values(tmp_path: Path) -> None:
    files = SortedFiles(str(tmp_path), "part", stamped=True)
    assert files.add(ChangelogEntries.of([(b"key", b"value", 1), (None, b"lost", 2), (b"gone", None, 3)])) == 12
    assert len(pack_timestamp(1)) == 8
