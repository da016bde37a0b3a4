"""A task restores its stores: where it is when that fails, and what its checkpoint claims meanwhile."""

from __future__ import annotations

import struct
import time

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import StateError
from streams_py.serdes import STRING
from streams_py.state.directory.checkpoint import read_checkpoint
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.disk import bulk_load
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind, WindowRetention

TASK = TaskId(0, 3)
DISK = TopicPartition("app-disk-changelog", 3)


def opened(directory: StateDirectory) -> TaskState:
    builder = StoreBuilder("disk", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, STRING, persistent=True)
    state = TaskState(TASK, [builder], StoreEnvironment(directory, "thread"), application_id="app")
    state.open()
    return state


def database_of(state: TaskState) -> TaskDatabase:
    """Return the database, which says how it is being loaded. The state of the task says nothing about that."""
    database = state._database  # see above
    assert database is not None
    return database


def record(offset: int, key: bytes) -> MemoryRecord:
    return MemoryRecord(DISK.topic, DISK.partition, offset, key, b"v", timestamp_ms=5)


def test_position_stays_when_what_is_restored_cannot_be_written(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = opened(directory)
    state.restore(DISK, [record(4, b"a")])

    def disk_is_full(self: TaskDatabase, action: object) -> None:
        raise StateError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(TaskDatabase, "_attempt", disk_is_full)  # every write passes it
        with pytest.raises(StateError, match="no space"):
            state.restore(DISK, [record(5, b"b")])
    assert state.restore_position(DISK) == 5
    state.commit()
    state.restore(DISK, [record(5, b"b")])
    assert [key for key, _ in state.store("disk").all()] == ["a", "b"]
    state.close()


def test_checkpoint_claims_what_was_restored_in_bulk_only_when_it_is_on_the_disk(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_load, "_LOGGED_RECORDS", 1)
    state = opened(directory)
    state.restore(DISK, [record(4, b"a")], in_bulk=True)
    state.restore(DISK, [record(5, b"b")], in_bulk=True)
    assert state.restore_position(DISK) == 6
    state.checkpoint(enforce=True)
    assert read_checkpoint(directory.task_path(TASK))[DISK] == 4
    while not state.flush_restored():
        time.sleep(0.001)
    state.checkpoint(enforce=True)
    assert read_checkpoint(directory.task_path(TASK))[DISK] == 5
    state.close()
    assert state.flush_restored()  # the updater may be late
    again = opened(directory)
    assert again.restore_position(DISK) == 6
    again.close()


def test_task_that_becomes_a_copy_while_it_is_restored_is_open_for_reading(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read would have to sort the memtable until the next record arrives."""
    monkeypatch.setattr(bulk_load, "_LOGGED_RECORDS", 3)
    state = opened(directory)
    for first in (0, 3, 6):
        state.restore(
            DISK, [record(first + number, key) for number, key in enumerate((b"c", b"b", b"a"))], in_bulk=True
        )
    assert database_of(state).mode.is_loading
    state.attach(RecordContext(), None)
    assert not database_of(state).mode.is_loading
    assert [key for key, _ in state.store("disk").all()] == ["a", "b", "c"]
    state.restore(DISK, [record(9, b"d")])
    state.close()


def test_windows_that_come_back_before_all_is_restored_are_loaded_for_writing_again(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing the segments does not mean that readers will come."""
    monkeypatch.setattr(bulk_load, "_LOGGED_RECORDS", 3)
    windows = WindowRetention(retention_ms=1_000, span_ms=10, segment_ms=1_000)
    builder = StoreBuilder("disk", StoreKind.WINDOW, STRING, STRING, persistent=True, windows=windows)
    state = TaskState(TASK, [builder], StoreEnvironment(directory, "thread"), application_id="app")
    state.open()
    database = database_of(state)
    for first in range(0, 30, 3):
        if first == 15:
            assert database.mode.is_loading
            state.roll_back()
        times = [struct.pack(">qi", 100 + first + number, 0) for number in (2, 1, 0)]
        state.restore(DISK, [record(first + n, b"key" + time_ms) for n, time_ms in enumerate(times)], in_bulk=True)
    assert database.mode.is_loading
    state.attach(RecordContext(), None)
    assert len(list(state.store("disk").all())) == 30
    state.close()


def test_copy_that_has_replayed_much_is_promoted_without_a_flush(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it lacks is little; and its files would be opened twice more to load that."""
    monkeypatch.setattr(bulk_load, "_LOGGED_RECORDS", 3)
    state = opened(directory)
    state.attach(RecordContext(), None)
    for first in (0, 3, 6):
        state.restore(DISK, [record(first + number, key) for number, key in enumerate((b"c", b"b", b"a"))])
    state.attach(RecordContext(), None)
    state.restore(DISK, [record(9, b"d")], in_bulk=True)
    assert not database_of(state).mode.is_loading
    assert database_of(state).is_logged
    assert state.flush_restored()
    state.close()


def test_task_that_comes_back_is_restored_through_the_log_again(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_load, "_LOGGED_RECORDS", 3)
    state = opened(directory)
    state.restore(DISK, [record(number, b"%d" % number) for number in range(9)], in_bulk=True)
    while not state.flush_restored():
        time.sleep(0.001)
    state.attach(RecordContext(), None)
    state.restore(DISK, [record(9, b"d")], in_bulk=True)
    assert database_of(state).is_logged
    state.restore(DISK, [record(number, b"e") for number in range(10, 13)], in_bulk=True)
    assert not database_of(state).is_logged
    state.close()


def test_task_may_be_closed_while_somebody_asks_whether_it_awaits_the_disk(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = opened(directory)
    for name, ask in (("_bulk", lambda: state.awaits_disk), ("_database", state.flush_restored)):
        left = [getattr(state, name)]  # None at the second access
        with monkeypatch.context() as patch:
            patch.setattr(TaskState, name, property(lambda _, left=left: left.pop() if left else None), raising=False)
            ask()
        assert not left
    state.close()
