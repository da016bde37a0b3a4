"""The directory of a running process is deleted: an error says so, and no position is stored without its data."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import StateError
from streams_py.serdes import STRING
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.disk.bulk_load import BulkLoad
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import key_value_store

TASK = TaskId(0, 1)
CHANGELOG = TopicPartition("app-names-changelog", 1)
SAFE = "committed data is safe in the changelog topics"


def opened(folder: Path) -> TaskState:
    directory = StateDirectory(str(folder), "app", warns_of_temporary=False)
    directory.open()
    builder = key_value_store("names", key=STRING, value=STRING)
    state = TaskState(TASK, [builder], StoreEnvironment(directory, "thread"), application_id="app")
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
    with pytest.raises(StateError, match=f"closing a store of task 0_1 failed: {folder / gone} was deleted"):
        state.close()
    state._directory.close()  # a task does not close the directory of its process
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
    BulkLoad(database).restore(lambda: store.write_batch(keys, values), {CHANGELOG: 1}, in_bulk=100_000)
    assert not database.is_logged
    shutil.rmtree(tmp_path / "task")
    with pytest.raises(StateError, match="task was deleted while"):
        database.flush()
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
    assert told.count(f"{task / 'rocksdb'} were deleted while they were in use, and another database is there now") == 2
    assert {path.name: path.read_bytes() for path in (task / "rocksdb").iterdir()} == before
    second = TaskDatabase(str(task), ["disk"])
    assert second.positions() == {TopicPartition("log", 0): 1}
    assert second.store("disk").read(b"7") == b"b" * 100
    second.close()


# -- the directory of the instance -------------------------------------------------------------------------------------

_INSTANCE = """
import os, sys
from pathlib import Path
from streams_protocol.types import TaskId
from streams_py.state.directory.state_directory import StateDirectory
directory = StateDirectory(sys.argv[1], "app", cluster_id=lambda: sys.argv[2])
directory.open()
path = Path(directory.prepare_task(TaskId(0, 1)))
(path / "rocksdb").mkdir()
os.utime(path, (0, 0))
print(directory.path, flush=True)
sys.stdin.read()
"""


class Other:
    """An instance in another process, which has a store of task 0_1."""

    def __init__(self, state_dir: Path, cluster: str = "one") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _INSTANCE, str(state_dir), cluster],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.path = self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.communicate("")


def instance(state_dir: Path) -> StateDirectory:
    directory = StateDirectory(str(state_dir), "app", cluster_id=lambda: "one", warns_of_temporary=False)
    directory.open()
    return directory


def told(path: str) -> dict[str, str]:
    return json.loads(Path(path, "kafka-streams-process-metadata").read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("gone", ["", "app", "app/.lock", "app/kafka-streams-process-metadata"])
def test_instance_whose_directory_was_deleted_takes_it_once_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, gone: str
) -> None:
    folder = tmp_path / "state"
    directory = instance(folder)
    process_id = directory.process_id
    assert directory.check_cluster()
    if (folder / gone).is_dir():
        shutil.rmtree(folder / gone)
    else:
        (folder / gone).unlink()
    assert directory.prepare_task(TASK) == str(folder / "app" / "0_1")
    assert caplog.text.count(f"the state directory {folder / 'app'} was deleted, at least in part") == 1
    assert told(directory.path) == {"processId": str(process_id), "clusterId": "one"}
    assert directory.process_id == process_id
    other = Other(folder)
    assert other.path == str(folder / "app" / "instance-2")
    other.end()
    directory.prepare_task(TaskId(0, 2))
    assert caplog.text.count("was deleted") == 1
    directory.close()


def test_instance_whose_directory_another_one_has_now_takes_none_of_its_state(tmp_path: Path) -> None:
    directory = instance(tmp_path)
    directory.prepare_task(TASK)
    shutil.rmtree(tmp_path / "app")
    other = Other(tmp_path)
    assert other.path == str(tmp_path / "app")
    assert directory.lock_stored_tasks("thread") == []
    assert directory.path == str(tmp_path / "app" / "instance-2")
    assert directory.delete_unused(now_ms=1 << 50, delay_ms=0) == []
    assert (tmp_path / "app" / "0_1" / "rocksdb").is_dir()
    assert directory.prepare_task(TASK) == str(tmp_path / "app" / "instance-2" / "0_1")
    assert told(directory.path)["processId"] == str(directory.process_id) != told(other.path)["processId"]
    other.end()
    directory.close()


def test_state_of_another_cluster_in_the_directory_that_is_taken_then_is_set_aside(tmp_path: Path) -> None:
    directory = instance(tmp_path)
    assert directory.check_cluster()
    earlier = Other(tmp_path, "two")
    assert earlier.path == str(tmp_path / "app" / "instance-2")
    earlier.end()
    (tmp_path / "app" / ".lock").unlink()
    other = Other(tmp_path)
    assert other.path == str(tmp_path / "app")
    assert directory.stored_tasks() == []
    assert directory.path == earlier.path
    assert (Path(earlier.path) / "of-cluster-two" / "0_1" / "rocksdb").is_dir()
    other.end()
    directory.close()
