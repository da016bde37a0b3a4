"""A hanging upload loses one snapshot of its task, but not snapshots of other tasks or later ones."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")

from fsspec.callbacks import Callback
from fsspec.implementations.local import LocalFileSystem

from streams_py.state.snapshots import snapshots as snapshots_module
from tests.support.state.snapshots import HOUR_MS, TASK, Machine
from tests.support.waiting import PATIENCE_S, until

LOOK_MS = 2_000


class Hangs(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Its first call of ``method`` does nothing until it is released, then what it should."""

    cachable = False

    def __init__(self, method: str) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.released = threading.Event()
        self.hangs = False
        self._method = method

    def _wait(self, method: str) -> None:
        self.calls.append(method)
        if self.calls.count(method) == 1 and method == self._method:
            self.hangs = True
            assert self.released.wait(PATIENCE_S)
            self.hangs = False

    def exists(self, path: str, **options: Any) -> bool:
        self._wait("exists")
        return bool(super().exists(path, **options))

    def put_file(self, local: str, remote: str, **options: Any) -> None:
        self._wait("put_file")
        super().put_file(local, remote, **options)

    def pipe_file(self, path: str, content: bytes, **options: Any) -> None:
        self._wait("pipe_file")
        super().pipe_file(path, content, **options)

    def rm_file(self, path: str) -> None:
        self._wait("rm_file")
        super().rm_file(path)


class Clock:
    """A clock that advances by two seconds per read while a store hangs. Other stores may be slow on a busy machine."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.stores: list[Hangs] = []

    def __call__(self) -> int:
        if any(store.hangs for store in self.stores):
            self.now_ms += LOOK_MS
        return self.now_ms


@pytest.fixture
def clock() -> Iterator[Clock]:
    made = Clock()
    yield made
    for store in made.stores:
        store.released.set()
    until(lambda: not uploads(), "the end of what was hanging")


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[Machine]:
    """Open, with something to upload."""
    monkeypatch.setattr(snapshots_module, "_LOOK_S", 0.001)
    made = Machine(tmp_path / "machine")
    made.open().restore(0, 9)
    made.now_ms = clock
    yield made
    made.close()


def uploads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"snapshot-upload-{TASK}"]


def use(machine: Machine, store: LocalFileSystem) -> None:
    if isinstance(store, Hangs) and isinstance(clock := machine.now_ms, Clock):
        clock.stores.append(store)
    machine.use(store)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(("method", "what"), [("exists", "000"), ("put_file", "000"), ("pipe_file", "the manifest")])
def test_upload_that_hangs_is_given_up_and_the_next_one_is_made(
    one: Machine, caplog: pytest.LogCaptureFixture, method: str, what: str
) -> None:
    store = Hangs(method)
    use(one, store)
    assert one.snapshots.upload_all() == 0
    (text,) = said(caplog)
    assert text.startswith(f"task 0_1: the upload of its snapshot made no progress ({what}")
    assert text.endswith(") for 600 s; retrying later")
    assert not list(one.folder.rglob("snapshot-make*"))
    assert one.restore(10, 19).upload()
    (hanging,) = uploads()
    made = one.manifests()
    calls = len(store.calls)
    store.released.set()
    hanging.join(PATIENCE_S)
    assert not hanging.is_alive()
    assert not set(store.calls[calls:]) - {method}  # it is at its end with this call
    assert set(one.manifests()) >= set(made)
    assert said(caplog) == [text]
    two = Machine(one.folder.parent / "two")
    assert two.open().position == 20
    two.close()


def test_deletion_that_hangs_deletes_nothing_of_later_snapshots(one: Machine, caplog: pytest.LogCaptureFixture) -> None:
    for last in (9, 19):
        one.restore(last + 1, last + 10).upload()
    store = Hangs("rm_file")
    use(one, store)
    one.restore(30, 39)
    assert one.snapshots.upload_all() == 0
    (text,) = said(caplog)
    assert text.startswith("task 0_1: the upload of its snapshot made no progress (the deletion of ")
    (hanging,) = uploads()
    one.restore(40, 49).upload()
    calls = len(store.calls)
    store.released.set()
    hanging.join(PATIENCE_S)
    assert not hanging.is_alive()
    assert store.calls[calls:] == []
    two = Machine(one.folder.parent / "two")
    assert two.open().position == 50
    two.close()


def test_upload_that_goes_on_is_not_given_up(one: Machine, clock: Clock) -> None:
    looked = threading.Semaphore(0)

    def look() -> int:
        if store.looks_left:
            store.looks_left -= 1
            clock.now_ms += LOOK_MS
            looked.release()
        return clock.now_ms

    class Slow(LocalFileSystem):  # type: ignore[misc]
        cachable = False
        parts = looks_left = 0

        def put_file(self, local: str, remote: str, callback: Callback | None = None, **options: Any) -> None:
            assert callback is not None
            for _ in range(3 if not self.parts else 0):
                self.looks_left = 200  # of the 300 after which it would be given up
                for _ in range(200):
                    assert looked.acquire(timeout=PATIENCE_S)
                callback.relative_update(1)
                self.parts += 1
            super().put_file(local, remote, callback=callback, **options)

    store = Slow()
    one.now_ms = look
    use(one, store)
    assert one.snapshots.upload_all() == 1
    assert store.parts == 3


def test_silence_of_a_frozen_process_is_not_that_of_the_store(one: Machine) -> None:
    store = Hangs("put_file")
    use(one, store)
    hours = itertools.count()

    def now_ms() -> int:
        hour = next(hours)
        if hour == 50:
            store.released.set()
        return hour * HOUR_MS

    one.now_ms = now_ms
    assert one.snapshots.upload_all() == 1


def test_no_more_threads_hang_than_a_few(
    one: Machine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots_module, "_HANGING_MAX", 2)
    stores = [Hangs("put_file") for _ in range(3)]
    for store in stores:
        use(one, store)
        assert one.snapshots.upload_all() == 0
    assert len(uploads()) == 2
    assert said(caplog)[-1] == "task 0_1: not uploading a snapshot while 2 uploads hang"
    for store in stores:
        store.released.set()
    until(lambda: not uploads(), "the end of what was hanging")
    assert one.snapshots.upload_all() == 1


def test_upload_ends_with_its_file_when_the_client_closes(one: Machine, caplog: pytest.LogCaptureFixture) -> None:
    store = Hangs("put_file")
    use(one, store)
    began: Callable[[], int] = one.now_ms

    def now_ms() -> int:
        if store.calls.count("put_file"):
            one.snapshots.stop()
        return began()

    one.now_ms = now_ms
    assert one.snapshots.upload_all() == 0
    (hanging,) = uploads()
    store.released.set()
    hanging.join(PATIENCE_S)
    assert store.calls.count("put_file") == 1
    assert not said(caplog)
