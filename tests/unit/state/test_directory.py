"""The state directory: its lock, the process id, tasks and their owners, cleaning."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, LockError, StateError
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


def opened(state_dir: Path, name: str | None = None) -> StateDirectory:
    directory = StateDirectory(str(state_dir), "app", name=name)
    directory.open()
    return directory


def test_every_client_of_a_process_has_a_directory_of_its_own(tmp_path: Path) -> None:
    first, second, third = (opened(tmp_path) for _ in range(3))
    assert [Path(one.path) for one in (first, second, third)] == [
        tmp_path / "app",
        tmp_path / "app" / "instance-2",
        tmp_path / "app" / "instance-3",
    ]
    assert len({one.process_id for one in (first, second, third)}) == 3
    known = second.process_id
    second.close()
    first.close()
    first.close()  # again: must not free anybody else's lock
    again = [opened(tmp_path) for _ in range(3)]
    assert [Path(one.path).name for one in again] == ["app", "instance-2", "instance-4"]
    assert again[1].process_id == known
    for one in (*again, third):
        one.close()


def test_tasks_of_one_instance_are_not_those_of_another(tmp_path: Path, directory: StateDirectory) -> None:
    store_something(directory, T0)
    other = opened(tmp_path)
    store_something(other, T1)
    assert (directory.stored_tasks(), other.stored_tasks()) == ([T0], [T1])
    other.close()


def test_named_instance_finds_its_directory_whoever_starts_first(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    before = {name: opened(tmp_path, name) for name in names}
    paths = {name: one.path for name, one in before.items()}
    for one in before.values():
        one.close()
    for name in reversed(names):
        again = opened(tmp_path, name)
        assert again.path == paths[name]
        again.close()
    stranger = opened(tmp_path, "d")  # takes what is free rather than making ever more directories
    assert stranger.path == paths["a"]
    stranger.close()


def test_instance_without_a_name_leaves_the_directories_of_named_ones_if_it_can(tmp_path: Path) -> None:
    named, nameless = opened(tmp_path, "a"), opened(tmp_path)
    path = nameless.path
    named.close()
    nameless.close()
    again = opened(tmp_path)
    assert again.path == path
    again.close()


def test_another_application_has_its_own_lock(tmp_path: Path, directory: StateDirectory) -> None:
    other = StateDirectory(str(tmp_path), "other")
    other.open()
    other.close()


HOLD = """
import sys
from streams_py.state.directory import StateDirectory
directory = StateDirectory(sys.argv[1], "app")
print(directory.open(), directory.path, flush=True)
sys.stdin.read()
"""


def other_process(state_dir: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(state_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_processes_have_directories_of_their_own_and_find_them_again(tmp_path: Path) -> None:
    processes = [other_process(tmp_path) for _ in range(4)]
    try:
        lines = [first_line(process).split() for process in processes]
        known = {path: process_id for process_id, path in lines}
        assert {Path(path).name for path in known} == {"app", "instance-2", "instance-3", "instance-4"}
        assert len(set(known.values())) == 4
        mine = StateDirectory(str(tmp_path), "app")
        mine.open()
        assert Path(mine.path).name == "instance-5"
        mine.close()
        processes[2].kill()  # no time to unlock anything
        processes[2].wait(60)
        assert str(mine.open()) == known[mine.path] == lines[2][0]
        mine.close()
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=60)


def test_state_error_says_what_to_do_when_the_directory_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"cannot write the state directory .*file.*set state\.dir"):
        StateDirectory(str(tmp_path / "file"), "app").open()


def test_state_error_says_what_to_do_when_the_lock_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("streams_py.state.instances.private", refuse)
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
        logged = [record.levelname for record in caplog.records if "temporary files" in record.message]
        assert logged == (["INFO"] if warned else [])


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


# -- clusters ----------------------------------------------------------------------------------------------------


class Cluster:
    """A cluster that may be silent."""

    def __init__(self, id: str | None = "one") -> None:
        self.id = id
        self.silent = False
        self.asked = 0

    def __call__(self) -> str | None:
        self.asked += 1
        if self.silent:
            raise BrokerUnavailableError("no answer")
        return self.id


def on(cluster: Cluster, state_dir: Path) -> StateDirectory:
    directory = StateDirectory(str(state_dir), "app", cluster_id=cluster)
    directory.open()
    return directory


def filled(cluster: Cluster, state_dir: Path) -> StateDirectory:
    directory = on(cluster, state_dir)
    (store_something(directory, T0) / "content").write_text(str(cluster.id))
    return directory


def test_state_of_the_same_cluster_is_used(tmp_path: Path) -> None:
    cluster = Cluster()
    filled(cluster, tmp_path).close()
    again = on(cluster, tmp_path)
    assert again.lock_stored_tasks("thread") == [T0]
    assert cluster.asked == 2  # once per start
    again.close()


@pytest.mark.parametrize("other", ["two", "embedded-2", "../../etc"])
def test_state_of_another_cluster_is_set_aside_with_one_sentence(
    other: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = filled(Cluster(), tmp_path)
    process_id = old.process_id
    old.close()
    for round_trip in range(2):  # there and back again, and once more
        caplog.clear()
        new = on(Cluster(other), tmp_path)
        assert new.process_id == process_id
        assert new.lock_stored_tasks("thread") == []
        (message,) = (found for found in caplog.messages if "belongs to cluster one" in found)
        assert f"connected to cluster {other} now: it is set aside in {new.path}/of-cluster-one" in message
        new.close()
        assert (Path(new.path) / "of-cluster-one" / str(T0) / "content").read_text() == "one"
        back = filled(Cluster(), tmp_path)
        assert back.stored_tasks() == [T0], round_trip
        back.close()


def test_state_of_an_embedded_cluster_that_is_gone_is_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    filled(Cluster("embedded-1"), tmp_path).close()
    new = on(Cluster("embedded-2"), tmp_path)
    assert new.lock_stored_tasks("thread") == []
    assert "the embedded cluster that it belongs to is gone" in caplog.text
    assert {entry.name for entry in Path(new.path).iterdir()} == {".lock", "kafka-streams-process-metadata"}
    new.close()


@pytest.mark.parametrize(("cluster", "kept"), [("one", True), (None, True), ("embedded-1", False)])
def test_state_that_does_not_say_where_it_comes_from_is_not_of_an_embedded_cluster(
    cluster: str | None, kept: bool, tmp_path: Path
) -> None:
    unknown = opened(tmp_path)
    store_something(unknown, T0)
    unknown.close()
    directory = on(Cluster(cluster), tmp_path)
    assert directory.lock_stored_tasks("thread") == ([T0] if kept else [])
    assert (Path(directory.path) / "of-cluster-unknown" / str(T0)).exists() is not kept
    directory.close()


def test_nothing_is_reported_or_opened_before_the_cluster_has_said_who_it_is(tmp_path: Path) -> None:
    filled(Cluster(), tmp_path).close()
    cluster = Cluster("two")
    cluster.silent = True
    directory = on(cluster, tmp_path)
    assert directory.lock_stored_tasks("thread") == []
    with pytest.raises(LockError, match="task 0_0 waits for an answer of the cluster"):
        directory.prepare_task(T0)
    assert directory.owner_of(T0) is None
    cluster.silent = False
    assert not (Path(directory.prepare_task(T0)) / "content").exists()
    directory.close()


def test_task_directories_of_another_library_are_not_set_aside(tmp_path: Path) -> None:
    filled(Cluster(), tmp_path).close()
    foreign = tmp_path / "app" / str(T1)
    foreign.mkdir()
    (foreign / "rocksdb").mkdir()
    directory = on(Cluster("two"), tmp_path)
    directory.lock_stored_tasks("thread")
    assert foreign.exists()
    directory.close()


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
    (path / "rocksdb" / "CURRENT").touch()
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


def test_clean_up_deletes_the_state_of_all_instances_that_do_not_run(tmp_path: Path) -> None:
    first, second, third = (opened(tmp_path) for _ in range(3))
    for one in (first, second, third):
        store_something(one, T0)
    first.close()
    third.close()
    first.clean_up()
    assert second.stored_tasks() == [T0]
    assert sorted(os.listdir(first.path)) == [".lock", "instance-2", "instance-3"]
    assert os.listdir(third.path) == [".lock"]
    second.close()


def test_clean_up_does_nothing_when_there_is_no_directory(tmp_path: Path) -> None:
    StateDirectory(str(tmp_path / "none"), "app").clean_up()
    assert not (tmp_path / "none").exists()


def test_wipe_deletes_everything_of_the_task(directory: StateDirectory) -> None:
    path = store_something(directory, T0)
    directory.wipe_task(T0)
    assert not path.exists()
    directory.wipe_task(T0)


def test_directory_that_goes_while_it_is_looked_at_is_no_error(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = directory.prepare_task(T0)
    Path(path, "store").write_text("x")
    listdir = os.listdir

    def too_late(folder: str) -> list[str]:
        if folder == path:
            shutil.rmtree(path, ignore_errors=True)
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", too_late)
    assert directory.lock_stored_tasks("thread") == []
    assert directory.delete_unused(now_ms=10**15, delay_ms=0) == []


def test_file_that_goes_while_its_directory_is_deleted_does_not_stop_that(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = directory.prepare_task(T0)
    for number in range(5):
        Path(path, f"{number}.lock").write_text("")
    rmtree = shutil.rmtree
    tries: list[str] = []

    def raced(folder: str) -> None:
        tries.append(folder)
        if len(tries) == 1:
            raise FileNotFoundError(2, "gone", f"{folder}/3.lock")
        rmtree(folder)

    monkeypatch.setattr(shutil, "rmtree", raced)
    directory.wipe_task(T0)
    assert not os.path.exists(path)


def test_checkpoint_is_the_first_to_go_when_a_task_is_wiped(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = directory.prepare_task(T0)
    Path(path, ".checkpoint").write_text("0\n0\n")

    def killed(folder: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        directory.wipe_task(T0)
    assert not Path(path, ".checkpoint").exists()
