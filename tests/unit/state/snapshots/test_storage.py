"""The files of snapshots: where they are kept, by several owners in turn, and on the disk that they are fetched to."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("fsspec")

from fsspec.implementations.local import LocalFileSystem

from streams_py.errors import LockError, StateError
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.snapshots import storage as storage_module
from streams_py.state.snapshots.manifest import Manifest
from streams_py.state.snapshots.storage import TaskSnapshots, hash_of
from tests.support.state.snapshots import TASK, Machine
from tests.support.waiting import until


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    """Makes machines with an empty disk."""
    numbers = iter(range(100))
    return lambda **options: Machine(tmp_path / f"machine-{next(numbers)}", **options)


def test_snapshot_is_the_newest_though_the_clock_of_the_owner_before_was_ahead(
    machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = machine().open()
    with monkeypatch.context() as patch:
        patch.setattr(storage_module, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + 3_600 * 10**9))
        ahead.restore(0, 9).upload().restore(10, 19).upload()
    ahead.close()
    machine().open().restore(20, 29).upload().close()
    third = machine().open()
    assert third.position == 30
    third.close()


class _Remembers(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Believes that what was there still is, as file systems of clouds do."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def exists(self, path: str, **_: object) -> bool:
        if path not in self.seen and super().exists(path):
            self.seen.add(path)
        return path in self.seen

    def invalidate_cache(self, path: str | None = None) -> None:
        self.seen.clear()


def test_file_that_another_owner_has_deleted_is_uploaded_again(tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(b"data")
    file, storage = hash_of(str(tmp_path / "local")), (_Remembers(), str(tmp_path / "place"))
    TaskSnapshots(storage, "app", "0_1").put_file(str(tmp_path / "local"), file, int)
    uploaded = tmp_path / "place" / "app" / "0_1" / "files" / file.sha256
    assert storage[0].exists(str(uploaded))
    uploaded.unlink()
    TaskSnapshots(storage, "app", "0_1").put_file(str(tmp_path / "local"), file, int)
    assert uploaded.read_bytes() == b"data"


def test_fetched_files_are_forced_to_the_disk_before_they_are_a_database(
    machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine().open().restore(0, 9).upload().close()
    forced: set[int] = set()
    fsync, replace, moved = os.fsync, os.replace, []

    def noting(descriptor: int) -> None:
        forced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def looking(source: str, target: str) -> None:
        if os.path.isdir(source):
            moved.append(target)
            assert {entry.inode() for entry in os.scandir(source)} | {os.stat(source).st_ino} <= forced
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(os, "replace", looking)
    two = machine()
    with monkeypatch.context() as patch:
        patch.setattr(TaskDatabase, "__init__", _ends)
        until(lambda: _is_there(two), "the snapshot to be fetched")
    assert moved == [os.path.join(two.directory.task_path(TASK), "rocksdb")]
    assert os.stat(two.directory.task_path(TASK)).st_ino in forced
    two.directory.close()


def _ends(*_: object, **__: object) -> None:
    raise StateError("it would be opened")


def _is_there(machine: Machine) -> bool:
    try:
        machine.state.open()
    except LockError:
        return False
    except StateError:
        return True
    return False


def test_snapshot_that_is_whole_and_cannot_be_opened_is_dropped_and_the_changelog_replayed(
    machine: Callable[..., Machine], caplog: pytest.LogCaptureFixture
) -> None:
    """For example, a newer RocksDB wrote it. Deleting the directory would only download the same snapshot again."""
    one = machine().open().restore(0, 9).upload()
    one.close()
    (path,) = one.manifests()
    snapshot = Manifest.decode(path.read_bytes())
    strange = one.folder / "strange"
    strange.write_bytes(b"of a later version")
    name = next(name for name in snapshot.files if name.startswith("MANIFEST-"))
    made = hash_of(str(strange))
    strange.rename(one.files()[0].with_name(made.sha256))
    path.write_bytes(replace(snapshot, files={**snapshot.files, name: made}).encode())
    two = machine().open()
    assert two.position < 0
    (said,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said.startswith("task 0_1: cannot open its snapshot, replaying its changelogs instead: cannot open")
    assert two.restore(0, 19).position == 20
    two.state.commit()
    two.state.close()
    assert two.open().position == 20
    two.close()
