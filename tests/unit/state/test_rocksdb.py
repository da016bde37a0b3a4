"""What is special about the stores on disk: files, limits, errors."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from streams_py.errors import InvalidStateStoreError, StateError
from streams_py.state.rocksdb import RocksBytes, RocksMemory, TaskDatabase

T = TypeVar("T")

MEMORY = RocksMemory(block_cache_bytes=1 << 20, write_buffer_bytes=1 << 20)


def test_stores_of_a_task_share_one_database_and_keep_apart(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["one", "two"], memory=MEMORY)
    one, two = database.store("one"), database.store("two")
    assert database.store("one") is one
    one.write(b"k", b"1")
    two.write(b"k", b"2")
    assert (one.read(b"k"), two.read(b"k")) == (b"1", b"2")
    assert [name for name in os.listdir(tmp_path) if name != "rocksdb"] == []
    two.clear()
    assert (one.read(b"k"), two.read(b"k")) == (b"1", None)
    database.close()
    database.close()


def test_nothing_is_written_to_a_write_ahead_log(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    store = database.store("s")
    store.write(b"k", b"v" * 1000)
    store.write_batch([(b"l", b"v" * 1000), (b"k", None)])
    store.remove(b"l")
    store.clear()
    database.store("s").write(b"k", b"v" * 1000)
    logs = [name for name in os.listdir(database.path) if name.endswith(".log")]
    assert sum(os.path.getsize(os.path.join(database.path, name)) for name in logs) == 0
    database.close()


def test_a_store_may_come_and_go_with_the_topology(tmp_path: Path) -> None:
    first = TaskDatabase(str(tmp_path), ["old"], memory=MEMORY)
    first.store("old").write(b"k", b"v")
    first.flush()
    first.close()
    second = TaskDatabase(str(tmp_path), ["new"], memory=MEMORY)
    assert second.store("new").read(b"k") is None
    second.close()
    third = TaskDatabase(str(tmp_path), ["old", "new"], memory=MEMORY)
    assert third.store("old").read(b"k") == b"v"
    third.close()


def test_error_names_the_path_and_what_to_do_when_files_are_damaged(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    database.close()
    Path(database.path, "CURRENT").write_text("nonsense\n")
    with pytest.raises(StateError, match=rf"{database.path}.*delete {tmp_path}.*restored from the changelog"):
        TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)


def test_error_names_the_path_when_the_database_is_open_already(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    with pytest.raises(StateError, match=r"lock.*state\.dir"):
        TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    database.close()


_FEW_FILES = """
import resource, sys
from streams_py.state.rocksdb import RocksMemory, TaskDatabase
memory = RocksMemory(block_cache_bytes=1 << 20, write_buffer_bytes=1 << 20)
TaskDatabase(sys.argv[1] + "/first", ["s"], memory=memory).close()  # whatever is loaded late is loaded
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
kept = [TaskDatabase(f"{sys.argv[1]}/{number}", ["s"], memory=memory) for number in range(20)]
"""


def test_error_says_which_limit_to_raise_when_there_are_too_many_open_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FEW_FILES, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "StateError" in last
    assert "ulimit -n" in last
    assert "delete" not in last


def test_scan_ends_with_an_error_when_the_store_is_closed_meanwhile(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    store = database.store("s")
    store.write_batch((bytes([i]), b"v") for i in range(10))
    scan = store.scan(None, None)
    next(scan)
    finished = store.scan(None, None)
    assert len(list(finished)) == 10
    database.close()
    with pytest.raises(InvalidStateStoreError, match="closed while"):
        next(scan)
    with pytest.raises(InvalidStateStoreError, match="closed"):
        store.scan(None, None)
    TaskDatabase(str(tmp_path), ["s"], memory=MEMORY).close()


@pytest.mark.parametrize("reverse", [False, True])
def test_bounds_of_many_open_scans_stay_apart(reverse: bool, tmp_path: Path) -> None:
    """Each scan's bounds live as long as the scan (rocksdict only keeps a pointer)."""
    database = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    store = database.store("s")
    keys = [f"{i:03}".encode() for i in range(100)]
    store.write_batch((key, b"v") for key in keys)
    scans = [store.scan(f"{i:03}".encode(), f"{i + 10:03}".encode(), reverse=reverse) for i in range(80)]
    for i, scan in enumerate(scans):
        expected = keys[i : i + 10]
        assert [key for key, _ in scan] == (expected[::-1] if reverse else expected)
    database.close()


def test_shared_limit_makes_databases_flush_before_their_own_buffers_are_full(tmp_path: Path) -> None:
    memory = RocksMemory(block_cache_bytes=1 << 20, write_buffer_bytes=1 << 20)
    databases = [TaskDatabase(str(tmp_path / str(i)), ["s"], memory=memory) for i in range(3)]
    for i in range(9000):  # 12 MB each: less than one write buffer
        databases[i % 3].store("s").write(f"{i}".encode(), b"x" * 4000)
    for database in databases:
        assert any(name.endswith(".sst") for name in os.listdir(database.path))
    assert all(databases[i % 3].store("s").read(f"{i}".encode()) is not None for i in range(9000))
    for database in databases:
        database.close()


# -- the latest writes, which wait in memory ---------------------------------------------------------------------------


def on_another_thread(action: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(action).result()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksBytes]:
    database = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    yield database.store("s")
    database.close()


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_of_another_thread_sees_what_waits_over_what_is_written(store: RocksBytes, reverse: bool) -> None:
    store.write_batch([(b"a", b"old"), (b"b", b"old"), (b"d", b"old"), (b"e", b"old")])
    store.write(b"b", b"new")
    store.write(b"c", b"new")
    store.remove(b"d")
    store.write(b"z", b"beyond")
    expected = [(b"a", b"old"), (b"b", b"new"), (b"c", b"new"), (b"e", b"old")]
    scanned = on_another_thread(lambda: list(store.scan(b"a", b"f", reverse=reverse)))
    assert scanned == (expected[::-1] if reverse else expected)
    assert list(store.scan(b"a", b"f", reverse=reverse)) == scanned


def test_scan_is_a_snapshot_when_its_writes_still_wait(store: RocksBytes) -> None:
    store.write(b"a", b"1")
    store.write(b"b", b"1")
    mine, of_another = store.scan(None, None), on_another_thread(lambda: store.scan(None, None))
    store.write(b"b", b"2")
    store.remove(b"a")
    store.flush()
    assert list(mine) == list(of_another) == [(b"a", b"1"), (b"b", b"1")]


def test_waiting_writes_go_in_by_themselves_when_they_are_many_or_large(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["many", "large"], memory=MEMORY)
    many, large = database.store("many"), database.store("large")
    for number in range(10_000):
        many.write(b"%05d" % number, b"v")
    for number in range(40):
        large.write(b"%05d" % number, b"x" * 100_000)
    in_database = [database.family(name) for name in ("many", "large")]
    assert [handle.get(b"00000") for handle in in_database] == [b"v", b"x" * 100_000]
    assert all(many.read(b"%05d" % number) == b"v" for number in range(10_000))
    assert many.approximate_count() == 10_000
    for handle in in_database:
        handle.close()
    database.close()


def test_writes_that_wait_are_kept_when_the_database_is_closed(tmp_path: Path) -> None:
    first = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    first.store("s").write(b"a", b"1")
    first.store("s").write(b"b", b"1")
    first.store("s").remove(b"a")
    first.close()
    second = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    assert list(second.store("s").scan(None, None)) == [(b"b", b"1")]
    second.close()


def test_closed_store_refuses_to_read_and_to_write(store: RocksBytes) -> None:
    read, write, remove = store.read, store.write, store.remove
    write(b"a", b"1")
    store.close()
    for call in (lambda: read(b"a"), lambda: write(b"a", b"2"), lambda: remove(b"a")):
        with pytest.raises(InvalidStateStoreError):
            call()


def test_restored_records_win_over_earlier_writes(store: RocksBytes) -> None:
    store.write(b"a", b"1")
    store.write_batch([(b"a", b"2")])
    assert store.read(b"a") == b"2"
    store.clear()
    assert store.read(b"a") is None


def test_readers_always_find_a_key_while_its_writes_go_in(store: RocksBytes) -> None:
    store.write(b"key", b"0")
    ended = threading.Event()

    def read_all_the_time() -> tuple[int, int]:
        """How often the value was missing, and how often it went back."""
        missing = backwards = last = 0
        while not ended.is_set():
            data = store.read(b"key")
            missing += data is None
            number = last if data is None else int(data)
            backwards += number < last
            last = number
        return missing, backwards

    with ThreadPoolExecutor(1) as executor:
        reading = executor.submit(read_all_the_time)
        for number in range(1, 60_000):
            store.write(b"key" if number % 3 == 0 else b"%d" % number, b"%d" % number)
        ended.set()
        assert reading.result() == (0, 0)
