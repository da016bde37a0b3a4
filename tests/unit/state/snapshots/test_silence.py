"""A store of snapshots that hangs costs time, and not the task."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")

from fsspec.implementations.local import LocalFileSystem

from streams_py.errors import LockError
from streams_py.state.snapshots.transfers import PROGRESS_BYTES
from tests.support.state.snapshots import HOUR_MS, TASK, Machine
from tests.support.waiting import PATIENCE_S

SECOND = 1_000 / HOUR_MS
"""In hours."""


class _Hangs(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """From one call of ``method`` on it does nothing, until it is released."""

    cachable = False

    def __init__(self, method: str) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.hangs, self.released = threading.Event(), threading.Event()
        self._method = method

    def _wait(self, method: str) -> None:
        self.calls.append(method)
        if method == self._method:
            self.hangs.set()
            assert self.released.wait(PATIENCE_S)

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        self._wait("ls")
        return super().ls(path, detail=detail, **options)

    def cat_file(self, path: str, *arguments: Any, **options: Any) -> Any:
        self._wait("cat_file")
        return super().cat_file(path, *arguments, **options)

    def get_file(self, remote: str, local: str, **options: Any) -> None:
        self._wait("get_file")
        super().get_file(remote, local, **options)


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    """Makes machines with an empty disk; there is a snapshot up to offset 9."""
    numbers = iter(range(100))
    Machine(tmp_path / "uploader").open().restore(0, 9).upload().close()
    return lambda **options: Machine(tmp_path / f"machine-{next(numbers)}", **options)


def waits(machine: Machine) -> bool:
    """Whether the task still waits, asked once more."""
    try:
        machine.state.open()
    except LockError:
        return True
    return False


def begun(machine: Machine, store: _Hangs) -> Machine:
    """With a store that hangs by now."""
    machine.use(store)
    assert waits(machine)
    assert store.hangs.wait(PATIENCE_S)
    assert waits(machine)
    return machine


def given_up(machine: Machine) -> int:
    """After how many seconds without a byte the task was opened."""
    for seconds in range(2, 1_000, 2):
        if not waits(machine.at(machine.hour + 2 * SECOND)):
            return seconds
    raise AssertionError("it waits forever")


def thread() -> threading.Thread:
    """The one that downloads."""
    (found,) = [thread for thread in threading.enumerate() if thread.name == f"snapshot-{TASK}"]
    return found


@pytest.mark.parametrize(
    ("method", "what"),
    [("ls", "the list of its snapshots"), ("cat_file", "snapshot 0"), ("get_file", r"\w+\.\w+ of snapshot 0")],
)
def test_store_that_hangs_is_given_up_and_the_changelog_is_replayed(
    machine: Callable[..., Machine], caplog: pytest.LogCaptureFixture, method: str, what: str
) -> None:
    store = _Hangs(method)
    one = begun(machine(), store)
    downloads = thread()
    assert given_up(one) == 120
    assert one.position < 0
    (said,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    start, end = "task 0_1: the download of its snapshot made no progress", "for 120 s; replaying its changelogs"
    assert re.fullmatch(rf"{start} \({what}\S*\) {end}", said)
    assert one.restore(0, 19).position == 20
    one.close()  # the thread still waits
    calls = len(store.calls)
    store.released.set()
    downloads.join(PATIENCE_S)
    assert not downloads.is_alive()
    assert "get_file" not in store.calls[calls:]
    assert not list(one.folder.rglob("snapshot-*"))
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


class _Drips(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Sends a file in drops, one for each release of ``asked``."""

    cachable = False

    def __init__(self, drops: int, size: int) -> None:
        super().__init__()
        self.asked, self.brought = threading.Semaphore(0), threading.Semaphore(0)
        self.drops, self._size = drops, size

    def get_file(self, remote: str, local: str, **options: Any) -> None:
        while self.drops:
            assert self.asked.acquire(timeout=PATIENCE_S)
            with open(local, "ab") as file:
                file.write(bytes(self._size))
            self.drops -= 1
            self.brought.release()
            if not self.drops:  # what is left comes when the last drop was waited for, too
                assert self.asked.acquire(timeout=PATIENCE_S)
        super().get_file(remote, local, **options)


def test_store_that_brings_enough_bytes_is_waited_for(machine: Callable[..., Machine]) -> None:
    one = machine()
    store = _Drips(5, PROGRESS_BYTES)
    one.use(store)
    assert waits(one)
    for _drop in range(5):
        store.asked.release()
        assert store.brought.acquire(timeout=PATIENCE_S)
        for _poll in range(40):
            assert waits(one.at(one.hour + 2 * SECOND))
    store.asked.release()
    assert one.open().position == 10
    one.close()


def test_store_that_brings_a_byte_now_and_then_is_given_up(machine: Callable[..., Machine]) -> None:
    one = machine()
    store = _Drips(10, 1)
    one.use(store)
    assert waits(one)
    downloads = thread()
    polls = 0
    while store.drops > 1:
        store.asked.release()
        assert store.brought.acquire(timeout=PATIENCE_S)
        for _poll in range(40):
            if not waits(one.at(one.hour + 2 * SECOND)):
                break
            polls += 1
        else:
            continue
        break
    left = store.drops
    for _ in range(left + 1):
        store.asked.release()
    downloads.join(PATIENCE_S)
    assert left > 1, "the task waited for all drops"
    assert polls < 80
    assert one.position < 0
    one.close()


def test_store_with_any_number_of_slow_snapshots_is_given_up(machine: Callable[..., Machine]) -> None:
    """Each step succeeds, but no byte of a file arrives."""
    one = machine()
    asked = threading.Semaphore(0)

    class Many(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
        cachable = False

        def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
            found = super().ls(path, detail=detail, **options)
            return [f"{path}/{number:015d}-00000000.json" for number in range(200)] if "manifests" in path else found

        def size(self, path: str) -> int:
            assert asked.acquire(timeout=PATIENCE_S)
            return 2

        def cat_file(self, path: str, *arguments: Any, **options: Any) -> Any:
            return b"{}"

    one.use(Many())
    assert waits(one)
    downloads = thread()
    seconds = 0
    for _number in range(190):
        asked.release()
        if not waits(one.at(one.hour + 2 * SECOND)):
            break
        seconds += 2
    for _number in range(200):
        asked.release()
    downloads.join(PATIENCE_S)
    assert seconds <= 120
    assert one.position < 0
    one.close()


def test_silence_of_a_frozen_process_is_not_that_of_the_store(machine: Callable[..., Machine]) -> None:
    store = _Hangs("get_file")
    one = begun(machine(), store)
    for _ in range(50):
        assert waits(one.at(one.hour + 1))
    store.released.set()
    assert one.open().position == 10
    one.close()


def test_download_that_was_given_up_has_no_part_in_the_next_one(machine: Callable[..., Machine]) -> None:
    store = _Hangs("get_file")
    one = machine()
    good = one.storage
    begun(one, store)
    downloads = thread()
    given_up(one)
    one.state.close(wipe=True)
    one.use(good)
    assert one.open().position == 10
    store.released.set()
    downloads.join(PATIENCE_S)
    assert not downloads.is_alive()
    assert [one.get(number) for number in (0, 9)] == ["value-0", "value-9"]
    assert not list(one.folder.rglob("snapshot-*"))
    one.close()


def test_directory_of_a_task_that_went_away_stays_deleted_although_something_is_still_downloaded_for_it(
    machine: Callable[..., Machine],
) -> None:
    """Who cleans up deletes it. Without the mark of this library it would pass for somebody else's, the next time."""
    Machine(machine().folder.parent / "another").open().restore(0, 19).upload().close()
    store = _Hangs("get_file")
    one = begun(machine(), store)
    downloads = thread()
    one.directory.wipe_task(TASK)
    store.released.set()
    downloads.join(PATIENCE_S)
    assert not downloads.is_alive()
    assert not Path(one.directory.task_path(TASK)).exists()
    assert one.open().position < 0
    assert not list(one.folder.rglob("of-another-library"))
    one.close()


def test_downloads_end_with_their_file_when_the_client_closes(
    machine: Callable[..., Machine], caplog: pytest.LogCaptureFixture
) -> None:
    store = _Hangs("get_file")
    one = begun(machine(), store)
    downloads = thread()
    one.snapshots.stop()
    store.released.set()
    downloads.join(PATIENCE_S)
    assert not downloads.is_alive()
    assert store.calls.count("get_file") == 1
    assert not list(one.folder.rglob("snapshot-*"))
    assert caplog.text == ""
    one.close()
