"""The stores of a task: where a restore starts, the positions in a checkpoint, and the owner of the task."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.errors import InvalidStateStoreError, LockError, StateError, UnknownStateStoreError
from streams_py.ports import BEGINNING
from streams_py.serdes import INT64, STRING
from streams_py.state.caching.cache import RecordCache
from streams_py.state.directory.checkpoint import CHECKPOINT_FILE, read_checkpoint
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.opening.stores import StoreDefaults
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind, WindowRetention
from tests.support.state.task_stores import DISK, SOURCE, TASK, Record, builder, opened, task_state

MEMORY = TopicPartition("app-memory-changelog", 3)


def test_changelogs_are_those_of_logged_stores_and_source_topics(directory: StateDirectory) -> None:
    state = task_state(directory)
    assert state.changelog_partitions == {DISK, MEMORY, SOURCE}
    assert state.source_changelogs == {SOURCE}
    assert [state.store_of(changelog) for changelog in (DISK, MEMORY, SOURCE)] == ["disk", "memory", "source"]


def test_everything_is_restored_from_the_beginning_when_the_task_is_new(directory: StateDirectory) -> None:
    state = opened(directory)
    assert state.changelog_offsets == {}
    assert {state.restore_position(changelog) for changelog in state.changelog_partitions} == {BEGINNING}
    assert state.offset_sum() == 0
    state.close()


def test_restored_records_are_in_the_store_and_move_the_position(directory: StateDirectory) -> None:
    state = opened(directory)
    state.restore(DISK, [Record(4, "a", 1), Record(9, "b", 2, 77)])
    state.restore(MEMORY, [Record(0, "c", 3)])
    state.restore(SOURCE, [])
    assert state.store("disk").get("b") == (2, 77)
    assert state.store("memory").get("c") == (3, 5)
    assert state.changelog_offsets == {DISK: 9, MEMORY: 0}
    assert state.restore_position(DISK) == 10
    assert state.restore_position(SOURCE) == BEGINNING
    assert state.offset_sum() == 11
    state.close()


def test_checkpoint_claims_persistent_logged_stores_only(directory: StateDirectory) -> None:
    state = opened(directory)
    state.restore(DISK, [Record(4, "a", 1)])
    state.restore(MEMORY, [Record(8, "a", 1)])
    state.checkpoint(enforce=True)
    assert read_checkpoint(directory.task_path(TASK)) == {DISK: 4, SOURCE: -4}
    state.close()


def test_restart_goes_on_from_what_is_committed_on_disk_and_from_the_beginning_in_memory(
    directory: StateDirectory,
) -> None:
    state = opened(directory)
    for changelog in (DISK, MEMORY, SOURCE):
        state.restore(changelog, [Record(4, "a", 1)])
    state.store("disk").put_value("a", 2, 6)  # type: ignore[union-attr]  # a timestamped store
    state.update_offsets({DISK: 5})  # acknowledged, but not committed
    state.close()
    again = opened(directory)
    assert again.changelog_offsets == {DISK: 4, SOURCE: 4}
    assert again.restore_position(MEMORY) == BEGINNING
    assert again.store("disk").get("a") == (1, 5)
    assert list(again.store("memory").all()) == []
    again.close()


def test_store_that_cannot_be_trusted_is_emptied_before_it_is_restored(directory: StateDirectory) -> None:
    state = opened(directory)
    state.restore(DISK, [Record(4, "deleted and compacted away", 1)])
    state.restore(SOURCE, [Record(4, "kept", 1)])
    state.checkpoint(enforce=True)
    state.forget({DISK})
    assert read_checkpoint(directory.task_path(TASK)) == {DISK: -4, SOURCE: 4}
    state.close()
    again = opened(directory)
    assert list(again.store("disk").all()) == []
    assert [key for key, _ in again.store("source").all()] == ["kept"]
    assert again.restore_position(DISK) == BEGINNING
    again.close()


def test_checkpoint_beside_store_files_that_are_gone_is_not_believed(directory: StateDirectory) -> None:
    state = opened(directory)
    state.restore(DISK, [Record(4, "a", 1)])
    state.checkpoint(enforce=True)
    state.close()
    assert directory.stored_offset_sum(TASK) == 4
    shutil.rmtree(Path(directory.task_path(TASK), "rocksdb"))
    assert directory.stored_offset_sum(TASK) is None
    again = opened(directory)
    assert again.changelog_offsets == {}
    assert again.restore_position(DISK) == BEGINNING
    again.close()


def test_stores_without_a_changelog_keep_their_content(directory: StateDirectory) -> None:
    state = opened(directory)
    state.store("silent").put_value("a", 1, 1)  # type: ignore[union-attr]  # a timestamped store
    state.commit()
    state.close()
    again = opened(directory)
    assert again.store("silent").get("a") == (1, 1)
    again.close()


@pytest.mark.parametrize("damage", ["0\n7\n", "garbage", "0\n1\napp-disk-changelog 3 999\n", None])
def test_checkpoint_file_is_not_what_a_task_is_restored_from(damage: str | None, directory: StateDirectory) -> None:
    state = opened(directory)
    state.restore(DISK, [Record(4, "a", 1)])
    state.checkpoint(enforce=True)
    state.close()
    file = Path(directory.task_path(TASK), CHECKPOINT_FILE)
    file.unlink() if damage is None else file.write_text(damage)
    again = opened(directory)
    assert again.changelog_offsets == {DISK: 4}
    assert again.store("disk").get("a") == (1, 5)
    again.close()


def test_store_files_without_positions_are_emptied(directory: StateDirectory) -> None:
    """As an earlier layout left them."""
    state = opened(directory)
    state.restore(DISK, [Record(4, "a", 1)])
    state.checkpoint(enforce=True)
    database = state._database  # an earlier layout wrote no positions
    assert database is not None
    database.forget([DISK])
    state.close()
    again = opened(directory)
    assert again.changelog_offsets == {}
    assert list(again.store("disk").all()) == []
    again.close()


def test_roll_back_drops_what_was_written_since_the_last_commit(directory: StateDirectory) -> None:
    state = opened(directory, cache=RecordCache(1 << 20))
    store: Any = state.store("disk")
    store.put_value("a", 1, 1)
    state.flush_caches(state.stores)
    state.update_offsets({DISK: 7})
    state.commit()
    store.put_value("a", 2, 2)
    state.flush_caches(state.stores)
    store.put_value("b", 3, 3)
    assert state.uncommitted_bytes > 0
    assert [key for key, _ in store.all()] == ["a", "b"]
    state.roll_back()
    assert state.uncommitted_bytes == 0
    assert list(store.all()) == [("a", (1, 1))]
    state.close()
    again = opened(directory)
    assert again.changelog_offsets == {DISK: 7}
    assert list(again.store("disk").all()) == [("a", (1, 1))]
    again.close()


def test_position_goes_back_with_what_is_rolled_back(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk made the last commit to the database fail. The task is resumed, or becomes a standby, and restores.

    A position ahead of the data would be committed with the next record, and the records in between would be lost.
    """
    state = opened(directory)
    state.restore(DISK, [Record(4, "a", 1)])
    store: Any = state.store("disk")
    store.put_value("b", 2, 5)
    state.flush_caches(["disk"])
    state.update_offsets({DISK: 7, MEMORY: 3})
    monkeypatch.setattr(TaskDatabase, "commit", _disk_full)
    with pytest.raises(StateError):
        state.commit()
    state.roll_back()
    assert state.changelog_offsets == {DISK: 4, MEMORY: 3}
    assert state.restore_position(DISK) == 5
    state.close()


def _disk_full(*_: object) -> None:
    raise StateError("no space left on device")


def test_windows_that_expired_by_what_is_rolled_back_are_there_again(directory: StateDirectory) -> None:
    windows = WindowRetention(retention_ms=100, span_ms=10, segment_ms=10)
    declared = StoreBuilder("windows", StoreKind.WINDOW, STRING, INT64, persistent=True, windows=windows)
    state = TaskState(TASK, (declared,), StoreEnvironment(directory, "me"), application_id="app")
    state.open()
    store: Any = state.store("windows")
    store.put("a", 1, 10)
    state.commit()
    store.put("a", 2, 1000)
    assert store.fetch("a", 10) is None
    state.roll_back()
    assert [(window.start, value) for window, value in store.all()] == [(10, 1)]
    store.put("a", 3, 20)
    assert store.fetch("a", 20) == 3
    state.close()


def test_acknowledged_offsets_replace_restored_ones_and_those_of_others_are_left_out(directory: StateDirectory) -> None:
    state = opened(directory)
    state.restore(DISK, [Record(4, "a", 1)])
    state.update_offsets({DISK: 7, TopicPartition("app-disk-changelog", 0): 99})
    assert state.changelog_offsets == {DISK: 7}
    state.close()


# -- who has the task --------------------------------------------------------------------------------------------


def test_task_is_locked_while_it_is_open(directory: StateDirectory) -> None:
    state = opened(directory)
    other = task_state(directory, owner="thread-2")
    with pytest.raises(LockError, match="thread-1") as raised:
        other.open()
    assert raised.value.task_id == TASK
    assert not other.is_open
    state.close()
    other.open()
    assert other.is_open
    other.close()
    assert directory.owner_of(TASK) is None


def test_task_is_unlocked_again_when_its_stores_cannot_be_opened(directory: StateDirectory) -> None:
    Path(directory.prepare_task(TASK), "rocksdb").write_text("not a directory")
    state = task_state(directory)
    with pytest.raises(StateError, match=r"rocksdb.*state.dir.*restored"):
        state.open()
    assert directory.owner_of(TASK) is None
    assert not state.is_open


def test_stores_can_be_asked_for_only_while_the_task_is_open(directory: StateDirectory) -> None:
    state = task_state(directory)
    with pytest.raises(InvalidStateStoreError, match="not open"):
        state.store("disk")
    with pytest.raises(UnknownStateStoreError, match=r"'nope'.*disk, memory, silent, source"):
        state.store("nope")
    state.open()
    store = state.store("disk")
    assert set(state.stores) == {"disk", "memory", "silent", "source"}
    state.close()
    with pytest.raises(InvalidStateStoreError):
        store.get("a")
    state.close()


def test_close_with_wipe_leaves_nothing_of_the_task(directory: StateDirectory) -> None:
    state = opened(directory)
    state.restore(DISK, [Record(4, "a", 1)])
    state.checkpoint(enforce=True)
    state.close(wipe=True)
    assert not os.path.exists(directory.task_path(TASK))
    again = opened(directory)
    assert again.changelog_offsets == {}
    assert list(again.store("disk").all()) == []
    again.close()


def test_closed_task_leaves_no_open_file(directory: StateDirectory) -> None:
    def files() -> list[str]:
        found = []
        for number in os.listdir("/proc/self/fd"):
            try:
                found.append(os.readlink(f"/proc/self/fd/{number}"))
            except OSError:
                continue
        return [path for path in found if directory.task_path(TASK) in path]

    state = opened(directory)
    entries = state.store("disk").all()
    assert files()
    state.close()
    assert files() == []
    del entries


# -- recycling ---------------------------------------------------------------------------------------------------


def test_stores_move_to_another_task_object_without_being_opened_again(directory: StateDirectory) -> None:
    """A standby becomes active: same objects, same positions, now with a log and the new task's context."""
    state = opened(directory, cache=RecordCache(1 << 20))
    store: Any = state.store("disk")
    standby = RecordContext()
    state.attach(standby, None)
    state.restore(DISK, [Record(4, "a", 1)])
    logged: list[Any] = []
    active = RecordContext()
    active.timestamp = 42
    state.attach(active, lambda topic, partition: lambda *change: logged.append((topic, partition, *change)))
    assert state.store("disk") is store
    assert store.get("a") == (1, 5)
    for name in ("disk", "memory", "source", "silent"):
        state.store(name).put_value("a", 2, 6)  # type: ignore[union-attr]  # a timestamped store
    state.store("disk").put("b", None)
    assert logged == []  # two are cached, one logs to its source topic (not written), one does not log
    state.flush_caches(state.stores)
    two = (2).to_bytes(8, "big")
    assert logged == [
        ("app-disk-changelog", 3, b"a", two, 6),
        ("app-disk-changelog", 3, b"b", None, 42),
        ("app-memory-changelog", 3, b"a", two, 6),
    ]
    assert state.restore_position(DISK) == 5
    state.clear_caches()
    state.attach(standby, None)
    state.restore(DISK, [Record(5, "a", 7)])
    assert store.get("a") == (7, 5)
    state.close()


def test_store_that_another_fills_while_it_is_flushed_is_flushed_too_whatever_the_order(
    directory: StateDirectory,
) -> None:
    state = opened(directory, cache=RecordCache(1 << 20))
    context = RecordContext()
    context.timestamp = 1
    logged: list[Any] = []
    state.attach(context, lambda topic, partition: lambda *change: logged.append(topic))
    first: Any = state.store("disk")
    second: Any = state.store("memory")
    first.set_flush_listener(lambda key, new, old, ts: second.put_value(key, new, ts), send_old_values=False)
    first.put_value("a", 1, 1)
    state.flush_caches(["disk", "memory"])
    assert logged == ["app-disk-changelog", "app-memory-changelog"]
    first.put_value("a", 2, 1)
    state.flush_caches(["memory", "disk"])
    assert logged[2:] == ["app-disk-changelog", "app-memory-changelog"]
    state.close()


# -- without disk ------------------------------------------------------------------------------------------------


def test_task_without_persistent_stores_makes_no_directory(directory: StateDirectory) -> None:
    state = opened(directory, builders=[builder("memory", persistent=False)])
    state.restore(MEMORY, [Record(4, "a", 1)])
    state.checkpoint(enforce=True)
    assert state.changelog_offsets == {MEMORY: 4}
    state.close(wipe=True)
    assert not os.path.exists(directory.task_path(TASK))


def test_default_kind_of_store_is_that_of_the_settings(tmp_path: Path) -> None:
    nothing_on_disk = StateDirectory(str(tmp_path), "app", persistent=False)
    nothing_on_disk.open()
    state = TaskState(
        TASK,
        [StoreBuilder("s", StoreKind.KEY_VALUE)],
        StoreEnvironment(
            nothing_on_disk, "thread-1", defaults=StoreDefaults(key_serde=STRING, value_serde=STRING, persistent=False)
        ),
        application_id="app",
    )
    state.open()
    assert not state.store("s").persistent
    state.store("s").put("k", "v")
    assert state.store("s").get("k") == "v"
    state.close()
    assert list(tmp_path.iterdir()) == []
