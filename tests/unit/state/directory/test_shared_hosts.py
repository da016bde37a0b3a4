"""The state directory on a host with other users: planted links, foreign folders, modes of files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from streams_py.errors import StateError
from streams_py.state.directory.checkpoint import DATABASE_DIRECTORY
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.directory.task_files import FORMAT, FORMAT_MARKER
from streams_py.state.disk.database import TaskDatabase
from tests.support.state.directories import T0, opened, store_something

LONG_AFTER_MS = 10**15


def victim_of(tmp_path: Path) -> Path:
    """A folder that an attacker wants to have emptied: it even looks like a task of ours."""
    victim = tmp_path / "victim"
    (victim / "rocksdb").mkdir(parents=True)
    (victim / FORMAT_MARKER).write_bytes(FORMAT)
    (victim / "old.lock").write_text("precious")
    return victim


def is_whole(victim: Path) -> bool:
    return sorted(os.listdir(victim)) == [FORMAT_MARKER, "old.lock", "rocksdb"]


@pytest.mark.parametrize("place", ["app", "app/instance-2", "app/0_0", "app/global", "app/of-another-library"])
def test_clean_up_refuses_planted_links_at_every_level(tmp_path: Path, place: str) -> None:
    victim = victim_of(tmp_path)
    link = tmp_path / "state" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    with pytest.raises(StateError, match=f"{place} is a symbolic link"):
        StateDirectory(str(tmp_path / "state"), "app").clean_up()
    assert is_whole(victim)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("place", ["", "app", "app/instance-2", "app/0_0", "app/0_0/rocksdb"])
def test_folders_of_another_user_are_refused_at_every_level(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "state" / place
    (tmp_path / "state" / "app").mkdir(parents=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "file").write_text("x")
    os.chown(folder, 65_534, -1)
    with pytest.raises(StateError, match="belongs to"):
        StateDirectory(str(tmp_path / "state"), "app").clean_up()
    assert (folder / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("place", ["", "app"])
def test_folder_that_another_user_made_first_is_not_used(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "state" / place
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    os.chown(folder, 65_534, -1)
    with pytest.raises(StateError, match=r"belongs to|writable"):
        StateDirectory(str(tmp_path / "state"), "app").open()


def test_state_dir_that_everybody_may_write_is_refused_unless_it_is_sticky(tmp_path: Path) -> None:
    base = tmp_path / "state"
    base.mkdir()
    base.chmod(0o777)
    with pytest.raises(StateError, match="writable for all users"):
        StateDirectory(str(base), "app").open()
    base.chmod(0o1777)
    opened(base).close()


def test_task_directory_that_is_a_link_receives_no_database(tmp_path: Path, directory: StateDirectory) -> None:
    victim = victim_of(tmp_path)
    victim.chmod(0o755)
    Path(directory.task_path(T0)).symlink_to(victim)
    with pytest.raises(StateError, match="0_0 is a symbolic link"):
        directory.prepare_task(T0)
    assert is_whole(victim)
    assert stat.S_IMODE(victim.stat().st_mode) == 0o755


def test_cleaner_and_reports_pass_by_a_task_directory_that_is_a_link(tmp_path: Path, directory: StateDirectory) -> None:
    victim = victim_of(tmp_path)
    Path(directory.task_path(T0)).symlink_to(victim)
    assert directory.stored_tasks() == []
    assert directory.stored_offset_sum(T0) is None
    assert directory.delete_unused(now_ms=LONG_AFTER_MS, delay_ms=0) == []
    assert is_whole(victim)


def test_database_folder_that_is_a_link_receives_no_files(tmp_path: Path, directory: StateDirectory) -> None:
    victim = victim_of(tmp_path)
    task = directory.prepare_task(T0)
    Path(task, DATABASE_DIRECTORY).symlink_to(victim)
    with pytest.raises(StateError, match="symbolic link"):
        TaskDatabase(task, ["counts"])
    assert is_whole(victim)


def test_lock_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "state" / "app").mkdir(parents=True)
    (tmp_path / "state" / "app" / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StateError, match=r"\.lock is a symbolic link"):
        opened(tmp_path / "state")
    assert (tmp_path / "victim").read_text() == "precious"


def test_every_file_and_folder_of_a_task_is_for_this_user_alone(tmp_path: Path, directory: StateDirectory) -> None:
    before = os.umask(0o022)
    try:
        path = store_something(directory, T0)
        (path / "rocksdb" / "of-an-older-version.sst").touch(0o644)
        (path / "rocksdb" / "of-an-older-version.sst").chmod(0o644)
        database = TaskDatabase(str(path), ["counts"])
        database.store("counts").write(b"k", b"v")
        database.commit({})
        database.close()
    finally:
        os.umask(before)
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            assert os.stat(os.path.join(folder, name)).st_mode & 0o077 == 0, name
