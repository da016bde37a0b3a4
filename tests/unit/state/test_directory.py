"""The state directory: its lock, the process id, tasks and their owners, cleaning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import LockError, StateError
from streams_py.state.checkpoint import write_checkpoint
from streams_py.state.directory import FORMAT_MARKER, StateDirectory

T0, T1, T2 = TaskId(0, 0), TaskId(0, 1), TaskId(1, 10)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StateDirectory]:
    directory = StateDirectory(str(tmp_path), "app")
    directory.open()
    yield directory
    directory.close()


def store_something(directory: StateDirectory, task_id: TaskId) -> Path:
    path = Path(directory.prepare_task(task_id))
    (path / "rocksdb").mkdir()
    return path


# -- lock of the process -----------------------------------------------------------------------------------------


def test_second_client_of_the_same_process_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    first, second = StateDirectory(str(tmp_path), "app"), StateDirectory(str(tmp_path), "app")
    first.open()
    with pytest.raises(LockError, match=r"app is in use by another client of this process.*state\.dir"):
        second.open()
    first.close()
    second.open()
    first.close()  # again: must not free the second's lock
    with pytest.raises(LockError):
        StateDirectory(str(tmp_path), "app").open()
    second.close()


def test_another_application_has_its_own_lock(tmp_path: Path, directory: StateDirectory) -> None:
    other = StateDirectory(str(tmp_path), "other")
    other.open()
    other.close()


HOLD = """
import sys
from streams_py.state.directory import StateDirectory
from streams_py.errors import LockError
directory = StateDirectory(sys.argv[1], "app")
try:
    print(directory.open(), flush=True)
except LockError as error:
    print("LockError", error, flush=True)
sys.stdin.read()
"""


def other_process(state_dir: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(state_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_client_is_refused_while_another_process_holds_the_directory_and_not_after_it_was_killed(
    tmp_path: Path,
) -> None:
    holder = other_process(tmp_path)
    try:
        process_id = first_line(holder).strip()
        mine = StateDirectory(str(tmp_path), "app")
        with pytest.raises(LockError, match=r"in use by another process.*state\.dir"):
            mine.open()
        with pytest.raises(LockError):
            mine.clean_up()
    finally:
        holder.kill()
        holder.wait(60)
    assert str(mine.open()) == process_id  # known again after the crash
    mine.close()


def test_another_process_is_refused_while_this_one_holds_the_directory(
    tmp_path: Path, directory: StateDirectory
) -> None:
    other = other_process(tmp_path)
    try:
        assert first_line(other).startswith("LockError")
    finally:
        other.communicate(timeout=60)


def test_state_error_says_what_to_do_when_the_directory_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"cannot write the state directory .*file.*set state\.dir"):
        StateDirectory(str(tmp_path / "file"), "app").open()


def test_state_error_says_what_to_do_when_the_lock_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("streams_py.state.directory._private", refuse)
    with pytest.raises(StateError, match=r"Permission denied; make it writable .*state\.dir"):
        StateDirectory(str(tmp_path), "app").open()
    monkeypatch.undo()
    directory = StateDirectory(str(tmp_path), "app")
    directory.open()
    directory.close()


def test_symbolic_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "app").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match="symbolic link"):
        StateDirectory(str(tmp_path), "app").open()


@pytest.mark.parametrize("name", ["a/b", "..", ".", "", "/etc"])
def test_application_id_that_is_no_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="cannot be the name"):
        StateDirectory(str(tmp_path), name)


def test_directories_are_closed_to_others(directory: StateDirectory) -> None:
    for path in (directory.path, directory.prepare_task(T0)):
        assert os.stat(path).st_mode & 0o777 == 0o750


def test_directory_below_the_temporary_one_is_mentioned_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
    for state_dir, warned in ((tmp_path / "tmp" / "kafka-streams", True), (tmp_path / "tmpfoo", False)):
        caplog.clear()
        caplog.set_level("INFO")
        directory = StateDirectory(str(state_dir), "app")
        directory.open()
        directory.close()
        said = [record.levelname for record in caplog.records if "temporary files" in record.message]
        assert said == (["INFO"] if warned else [])


# -- process id --------------------------------------------------------------------------------------------------


def test_process_id_survives_a_restart_in_kafkas_file(tmp_path: Path) -> None:
    directory = StateDirectory(str(tmp_path), "app")
    first = directory.open()
    assert directory.process_id == first
    directory.close()
    content = json.loads((tmp_path / "app" / "kafka-streams-process-metadata").read_text())
    assert content == {"processId": str(first)}
    assert directory.open() == first
    directory.close()


def test_process_file_may_have_more_fields(tmp_path: Path) -> None:
    known = uuid.uuid4()
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "kafka-streams-process-metadata").write_text(
        json.dumps({"processId": str(known), "version": 2, "more": []})
    )
    directory = StateDirectory(str(tmp_path), "app")
    assert directory.open().id == known
    directory.close()


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '{"processId": 5}', '{"processId": "x"}', "\udcff"])
def test_process_id_is_new_with_a_warning_when_the_file_is_of_no_use(
    content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "app").mkdir()
    file = tmp_path / "app" / "kafka-streams-process-metadata"
    file.write_bytes(content.encode(errors="surrogateescape"))
    directory = StateDirectory(str(tmp_path), "app")
    process_id = directory.open()
    directory.close()
    assert "new process id" in caplog.text
    assert json.loads(file.read_text()) == {"processId": str(process_id)}


def test_nothing_touches_the_disk_when_no_store_is_persistent(tmp_path: Path) -> None:
    one, two = (StateDirectory(str(tmp_path / "x"), "app", persistent=False) for _ in range(2))
    assert one.open() != two.open()
    assert one.open() == one.process_id
    assert one.lock(T0, "thread")
    assert one.stored_tasks() == []
    assert one.stored_offset_sum(T0) is None
    assert one.delete_unused(now_ms=10**15, delay_ms=0) == []
    one.clean_up()
    one.close()
    two.close()
    assert not (tmp_path / "x").exists()


def test_process_id_cannot_be_asked_before_opening(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="not open"):
        _ = StateDirectory(str(tmp_path), "app").process_id


# -- owners of tasks ---------------------------------------------------------------------------------------------


def test_task_has_one_owner_who_may_lock_it_again(directory: StateDirectory) -> None:
    assert directory.lock(T0, "one")
    assert directory.lock(T0, "one")
    assert not directory.lock(T0, "two")
    directory.unlock(T0, "two")  # not the owner
    assert directory.owner_of(T0) == "one"
    directory.unlock(T0, "one")
    assert directory.lock(T0, "two")
    assert directory.lock(T1, "one")


def test_task_is_won_by_exactly_one_of_many_threads(directory: StateDirectory) -> None:
    start = threading.Barrier(8)
    winners: list[str] = []

    def compete(name: str) -> None:
        start.wait(30)
        winners.extend(name for task_id in (T0, T1, T2) if directory.lock(task_id, name))

    threads = [threading.Thread(target=compete, args=(str(i),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(winners) == 3


def test_stored_tasks_are_reported_by_one_thread_only(directory: StateDirectory) -> None:
    for task_id in (T2, T0, T1):
        store_something(directory, task_id)
    directory.lock(T1, "two")
    assert directory.lock_stored_tasks("one") == [T0, T2]
    assert directory.lock_stored_tasks("two") == [T1]
    directory.unlock_except("one", {T2})
    assert directory.owner_of(T0) is None
    assert directory.owner_of(T1) == "two"
    assert directory.owner_of(T2) == "one"


def test_task_directory_counts_only_with_store_files(directory: StateDirectory) -> None:
    path = Path(directory.prepare_task(T0))
    write_checkpoint(str(path), {TopicPartition("t", 0): 1})
    (path / "old.lock").write_text("")
    assert directory.stored_tasks() == []
    assert not (path / "old.lock").exists()
    (path / "rocksdb").mkdir()
    assert directory.stored_tasks() == [T0]


def test_other_names_are_no_tasks(directory: StateDirectory) -> None:
    for name in ("global", "0_x", "00_1", "x"):
        path = Path(directory.path, name)
        path.mkdir()
        (path / FORMAT_MARKER).write_bytes(b"1\n")
        (path / "rocksdb").mkdir()
    assert directory.stored_tasks() == []


def test_directory_of_another_library_is_not_reported_and_emptied_only_when_its_task_comes_here(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(directory.path, "0_0")
    path.mkdir()
    write_checkpoint(str(path), {TopicPartition("t", 0): 100})
    (path / "rocksdb").mkdir()
    (path / "rocksdb" / "counts").write_text("")
    assert directory.stored_tasks() == []
    assert directory.stored_offset_sum(T0) is None
    assert directory.delete_unused(now_ms=10**15, delay_ms=0) == []
    assert (path / "rocksdb" / "counts").exists()
    directory.prepare_task(T0)
    assert os.listdir(path) == [FORMAT_MARKER]
    assert "not written by this library" in caplog.text


def test_directory_of_a_newer_format_is_emptied_too(directory: StateDirectory) -> None:
    path = store_something(directory, T0)
    (path / FORMAT_MARKER).write_bytes(b"2\n")
    assert directory.stored_tasks() == []
    directory.prepare_task(T0)
    assert os.listdir(path) == [FORMAT_MARKER]


def test_preparing_keeps_what_is_ours(directory: StateDirectory) -> None:
    path = store_something(directory, T0)
    directory.prepare_task(T0)
    assert (path / "rocksdb").exists()


# -- offset sums -------------------------------------------------------------------------------------------------


def test_offset_sum_adds_the_raw_offsets_and_counts_unknown_as_zero(directory: StateDirectory) -> None:
    path = store_something(directory, T0)
    assert directory.stored_offset_sum(T0) is None
    write_checkpoint(str(path), {TopicPartition("a", 0): 7, TopicPartition("b", 0): -4, TopicPartition("c", 0): 10})
    assert directory.stored_offset_sum(T0) == 17
    assert directory.stored_offset_sum(T1) is None


def test_offset_sum_is_left_out_with_a_warning_when_the_checkpoint_is_damaged(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    path = store_something(directory, T0)
    (path / ".checkpoint").write_text("0\n5\n")
    assert directory.stored_offset_sum(T0) is None
    assert "0_0" in caplog.text


# -- cleaning ----------------------------------------------------------------------------------------------------


def test_cleaner_deletes_what_is_unlocked_and_has_not_changed_for_long(directory: StateDirectory) -> None:
    for task_id, changed_s in ((T0, 1000), (T1, 1000), (T2, 2000)):
        os.utime(store_something(directory, task_id), (changed_s, changed_s))
    directory.lock(T1, "one")
    assert directory.delete_unused(now_ms=1_600_000, delay_ms=600_000) == []
    assert directory.delete_unused(now_ms=1_600_001, delay_ms=600_000) == [T0]
    assert directory.stored_tasks() == [T1, T2]
    assert directory.owner_of(T0) is None


def test_clean_up_deletes_all_but_the_lock(directory: StateDirectory) -> None:
    store_something(directory, T0)
    directory.close()
    directory.clean_up()
    assert os.listdir(directory.path) == [".lock"]
    directory.clean_up()


def test_clean_up_does_nothing_when_there_is_no_directory(tmp_path: Path) -> None:
    StateDirectory(str(tmp_path / "none"), "app").clean_up()
    assert not (tmp_path / "none").exists()


def test_wipe_deletes_everything_of_the_task(directory: StateDirectory) -> None:
    path = store_something(directory, T0)
    directory.wipe_task(T0)
    assert not path.exists()
    directory.wipe_task(T0)
