"""The state directory: its lock, the process id, tasks and their owners, cleaning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from streams_py.errors import BrokerUnavailableError, LockError, StateError
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.directory.task_files import FORMAT_MARKER
from tests.support.state.directories import T0, T1, opened, store_something


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


def test_locked_directory_knows_that_of_its_application_whatever_the_names_are(tmp_path: Path) -> None:
    """The directory of an application may have the name of an instance's directory."""
    first, second = StateDirectory(str(tmp_path), "instance-2"), StateDirectory(str(tmp_path), "instance-2")
    assert first.locked is None
    for directory in (first, second):
        directory.open()
        assert directory.locked is not None
        assert directory.locked.application == str(tmp_path / "instance-2")
    assert second.path == str(tmp_path / "instance-2" / "instance-2")
    second.close()
    first.close()


def test_another_application_has_its_own_lock(tmp_path: Path, directory: StateDirectory) -> None:
    other = StateDirectory(str(tmp_path), "other")
    other.open()
    other.close()


HOLD = """
import sys
from streams_py.state.directory.state_directory import StateDirectory
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

    monkeypatch.setattr("streams_py.state.directory.instances.open_file", refuse)
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
    with pytest.raises(StateError, match="is not a valid name"):
        StateDirectory(str(tmp_path), name)


def test_directories_are_closed_to_others(directory: StateDirectory) -> None:
    for path in (directory.path, directory.prepare_task(T0)):
        assert os.stat(path).st_mode & 0o777 == 0o700


def test_directory_below_the_temporary_one_gets_a_warning_with_both_dangers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
    for state_dir, warned in ((tmp_path / "tmp" / "kafka-streams", True), (tmp_path / "tmpfoo", False)):
        caplog.clear()
        caplog.set_level("INFO")
        directory = StateDirectory(str(state_dir), "app")
        directory.open()
        directory.close()
        logged = [record for record in caplog.records if "temporary files" in record.message]
        assert [record.levelname for record in logged] == (["WARNING"] if warned else [])
        for record in logged:
            assert "may delete it" in record.message
            assert "Another user of this host" in record.message


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
    for folder in (store_something(directory, T0), Path(directory.prepare_global())):
        (folder / "content").write_text(str(cluster.id))
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
        assert f"connected to cluster {other}: moving it to {new.path}/of-cluster-one" in message
        new.close()
        for name in (str(T0), "global"):
            assert (Path(new.path) / "of-cluster-one" / name / "content").read_text() == "one"
            assert not (Path(new.path) / name).exists()
        back = filled(Cluster(), tmp_path)
        assert back.stored_tasks() == [T0], round_trip
        back.close()


def test_state_of_an_embedded_cluster_that_is_gone_is_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    filled(Cluster("embedded-1"), tmp_path).close()
    new = on(Cluster("embedded-2"), tmp_path)
    assert new.lock_stored_tasks("thread") == []
    assert "its embedded cluster no longer exists" in caplog.text
    assert {entry.name for entry in Path(new.path).iterdir()} == {".lock", "kafka-streams-process-metadata"}
    new.close()


def test_global_stores_of_another_cluster_are_set_aside_though_there_are_no_tasks(tmp_path: Path) -> None:
    old = on(Cluster(), tmp_path)
    (Path(old.prepare_global()) / "content").write_text("one")
    old.close()
    new = on(Cluster("two"), tmp_path)
    assert os.listdir(new.prepare_global()) == [FORMAT_MARKER]
    assert (Path(new.path) / "of-cluster-one" / "global" / "content").read_text() == "one"
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
    with pytest.raises(LockError, match="task 0_0 waits for the id of the cluster"):
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
