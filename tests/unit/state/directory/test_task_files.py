"""Task directories: their owners, reported offsets, cleaning."""

from __future__ import annotations

import os
import resource
import shutil
import threading
from pathlib import Path

import pytest

from streams_protocol.types import TopicPartition
from streams_py.errors import StateError
from streams_py.state.directory.checkpoint import CHECKPOINT_FILE, write_checkpoint
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.directory.task_files import FORMAT_MARKER
from tests.support.state.directories import T0, T1, T2, opened, store_something

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
    (path / f"{CHECKPOINT_FILE}.0123456789abcdef.tmp").write_text("")
    assert directory.stored_tasks() == []
    assert (path / "old.lock").exists()
    (path / "rocksdb").mkdir()
    assert directory.stored_tasks() == [T0]


def test_other_names_are_no_tasks(directory: StateDirectory) -> None:
    for name in ("global", "0_x", "00_1", "x"):
        path = Path(directory.path, name)
        path.mkdir()
        (path / FORMAT_MARKER).write_bytes(b"1\n")
        (path / "rocksdb").mkdir()
    assert directory.stored_tasks() == []


def test_directory_of_another_library_is_not_reported_and_set_aside_only_when_its_task_comes_here(
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
    aside = Path(directory.path, "of-another-library", "0_0")
    assert (aside / "rocksdb" / "counts").exists()
    [sentence] = [record.getMessage() for record in caplog.records if "not written by" in record.getMessage()]
    assert sentence.startswith(f"{path} was not written by this library")
    assert f"moved it to {aside} and restoring the state" in sentence
    assert "use a separate state.dir" in sentence


def test_directory_of_a_newer_format_is_set_aside_beside_earlier_ones(directory: StateDirectory) -> None:
    for name in ("0_0", "0_0.2"):
        path = store_something(directory, T0)
        (path / FORMAT_MARKER).write_bytes(b"2\n")
        assert directory.stored_tasks() == []
        directory.prepare_task(T0)
        assert os.listdir(path) == [FORMAT_MARKER]
        assert (Path(directory.path, "of-another-library", name) / FORMAT_MARKER).read_bytes() == b"2\n"


def test_directory_that_a_full_disk_left_without_content_is_used_again(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # files can be made, but not written
    try:
        with pytest.raises(StateError, match="cannot write the state directory"):
            directory.prepare_task(T0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(directory.task_path(T0)) == [FORMAT_MARKER]
    assert directory.prepare_task(T0) == directory.task_path(T0)
    assert "not written by this library" not in caplog.text
    assert directory.stored_tasks() == []


def test_directory_that_cannot_be_set_aside_is_named(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(directory.path, "0_0")
    (path / "rocksdb").mkdir(parents=True)

    def refuse(*_: object) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(StateError, match=r"this library did not write .*0_0: move it away by hand \(read-only\)"):
        directory.prepare_task(T0)
    assert (path / "rocksdb").exists()


def test_directory_that_is_half_deleted_is_still_ours(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store_something(directory, T0)

    def die(*_: object, **__: object) -> None:
        raise OSError("killed")

    monkeypatch.setattr(shutil, "rmtree", die)
    with pytest.raises(StateError, match="killed"):
        directory.wipe_task(T0)
    monkeypatch.undo()
    assert FORMAT_MARKER in os.listdir(path)
    directory.prepare_task(T0)
    assert not Path(directory.path, "of-another-library").exists()


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
    (path / CHECKPOINT_FILE).write_text("0\n5\n")
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

    def raced(folder: str, *, dir_fd: int) -> None:
        tries.append(folder)
        if len(tries) == 1:
            raise FileNotFoundError(2, "gone", f"{folder}/3.lock")
        rmtree(folder, dir_fd=dir_fd)

    monkeypatch.setattr(shutil, "rmtree", raced)
    directory.wipe_task(T0)
    assert not os.path.exists(path)


def test_checkpoint_is_the_first_to_go_when_a_task_is_wiped(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = directory.prepare_task(T0)
    Path(path, CHECKPOINT_FILE).write_text("0\n0\n")

    def killed(folder: str, *, dir_fd: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        directory.wipe_task(T0)
    assert not Path(path, CHECKPOINT_FILE).exists()
