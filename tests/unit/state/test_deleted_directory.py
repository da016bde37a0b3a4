"""Somebody deletes the directory of a process that works with it: that is said, and nothing is claimed that is not
there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import StateError
from streams_py.serdes import STRING
from streams_py.state.directory import StateDirectory
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.task_state import TaskState
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.nodes import RecordContext
from streams_py.topology.stores import key_value_store

TASK = TaskId(0, 1)
CHANGELOG = TopicPartition("app-names-changelog", 1)
SAFE = "what was committed is safe in the changelog topics"


def opened(folder: Path) -> TaskState:
    directory = StateDirectory(str(folder), "app")
    directory.open()
    builder = key_value_store("names", key=STRING, value=STRING)
    state = TaskState(TASK, [builder], application_id="app", directory=directory, owner="thread")
    state.open()
    return state


def restore(state: TaskState, first: int, last: int) -> None:
    state.restore(
        CHANGELOG,
        [MemoryRecord(CHANGELOG.topic, 1, n, b"key-%d" % n, b"value", timestamp_ms=1) for n in range(first, last + 1)],
    )


def written(state: TaskState, key: str) -> None:
    """Something to commit."""
    state.attach(RecordContext(), lambda topic, partition: lambda *_: None)
    state.store("names").put(key, "value")  # type: ignore[union-attr]
    state.update_offsets({CHANGELOG: 99})


@pytest.mark.parametrize("gone", ["", "app", "app/0_1", "app/0_1/rocksdb"])
def test_commit_into_a_deleted_directory_says_which_one(tmp_path: Path, gone: str) -> None:
    folder = tmp_path / "state"
    state = opened(folder)
    restore(state, 0, 9)
    shutil.rmtree(folder / gone)
    written(state, "new")
    with pytest.raises(StateError) as caught:
        state.commit()
    assert str(caught.value).startswith(f"{folder / gone} was deleted while state stores in it were in use; {SAFE}")
    with pytest.raises(StateError, match=f"closing the stores of task 0_1: {folder / gone} was deleted"):
        state.close()
    state._directory.close()
    again = opened(folder)
    assert again.restore_position(CHANGELOG) < 0
    again.close()


def test_copy_in_a_deleted_directory_takes_nothing_more(tmp_path: Path) -> None:
    state = opened(tmp_path)
    restore(state, 0, 9)
    shutil.rmtree(tmp_path / "app" / "0_1")
    with pytest.raises(StateError, match="0_1 was deleted"):
        restore(state, 10, 19)
    with pytest.raises(StateError, match="0_1 was deleted"):
        state.close()


def test_bulk_restoration_into_a_deleted_directory_says_so(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path / "task"), ["disk"])
    store = database.store("disk")
    entries = [(b"%d" % n, b"value") for n in range(1_000)]
    keys, values = [key for key, _ in entries], [value for _, value in entries]
    database.restore(lambda: store.write_batch(keys, values), {CHANGELOG: 1}, in_bulk=100_000)
    assert not database.is_logged
    shutil.rmtree(tmp_path / "task")
    with pytest.raises(StateError, match="task was deleted while"):
        database.settle()
    with pytest.raises(StateError, match="task was deleted while"):
        database.checkpoint(str(tmp_path / "copy"))
    with pytest.raises(StateError, match="task was deleted while"):
        database.close()
    database.close()


def test_no_checkpoint_is_written_beside_an_old_store(tmp_path: Path) -> None:
    state = opened(tmp_path)
    restore(state, 0, 9)
    folder = tmp_path / "app" / "0_1"
    shutil.rmtree(folder)
    folder.mkdir()
    state.checkpoint(enforce=True)
    assert not list(folder.iterdir())
    with pytest.raises(StateError, match=r"0_1/rocksdb was deleted"):
        state.close()


_WORKS = """
import sys
from streams_protocol.types import TopicPartition
from streams_py.errors import StateError
from streams_py.state.disk.database import TaskDatabase
database = TaskDatabase(sys.argv[1], ["disk"])
store = database.store("disk")
def commit(offset):
    for number in range(1_000):
        store.write(b"%d" % number, sys.argv[2].encode() * 100)
    database.commit({TopicPartition("log", 0): offset})
commit(1)
if sys.argv[2] == "a":
    print("ready", flush=True)
    input()
    for step in (lambda: commit(2), database.close):
        try:
            step()
        except StateError as error:
            print(error, flush=True)
else:
    database.close()
"""


def test_files_that_another_process_has_made_in_its_place_are_left_alone(tmp_path: Path) -> None:
    """Both number theirs from the same number on, and closing flushes."""
    task = tmp_path / "task"
    with subprocess.Popen(
        [sys.executable, "-c", _WORKS, str(task), "a"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        shutil.rmtree(task)
        subprocess.run([sys.executable, "-c", _WORKS, str(task), "b"], check=True)
        before = {path.name: path.read_bytes() for path in (task / "rocksdb").iterdir()}
        told, _ = first.communicate("\n")
        assert first.returncode == 0
    assert told.count(f"{task / 'rocksdb'} were deleted while they were in use, and others are there now") == 2
    assert {path.name: path.read_bytes() for path in (task / "rocksdb").iterdir()} == before
    second = TaskDatabase(str(task), ["disk"])
    assert second.positions() == {TopicPartition("log", 0): 1}
    assert second.store("disk").read(b"7") == b"b" * 100
    second.close()
