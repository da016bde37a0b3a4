"""What is special about the stores on disk: files, limits, errors."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams_protocol.types import TopicPartition
from streams_py.errors import InvalidStateStoreError, StateError
from streams_py.state.disk import bundles
from streams_py.state.disk.bulk_load import BulkLoad
from streams_py.state.disk.bundles import packed, unpacked
from streams_py.state.disk.database import RocksBytes, RocksMemory, TaskDatabase
from tests.support.state.counters import COUNTERS, count

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


def test_positions_are_written_with_the_data(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s", "default"], memory=MEMORY)
    assert database.positions() == {}
    assert database.found_stores == set()
    database.store("s").write(b"k", b"v")
    database.commit({TopicPartition("a-changelog", 3): 7})
    database.commit({TopicPartition("b", 0): 0})
    database.store("s").write(b"k", b"not committed")
    database.close()
    database = TaskDatabase(str(tmp_path), ["s", "default"], memory=MEMORY)
    assert database.positions() == {TopicPartition("a-changelog", 3): 7, TopicPartition("b", 0): 0}
    assert database.store("s").read(b"k") == b"v"
    assert list(database.store("default").scan(None, None)) == []
    database.forget([TopicPartition("b", 0)])
    assert database.positions() == {TopicPartition("a-changelog", 3): 7}
    database.close()


def test_a_store_may_come_and_go_with_the_topology(tmp_path: Path) -> None:
    first = TaskDatabase(str(tmp_path), ["old"], memory=MEMORY)
    first.store("old").write(b"k", b"v")
    first.commit({})
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
from streams_py.state.disk import bundles
from streams_py.state.disk.bundles import packed, unpacked
from streams_py.state.disk.database import RocksMemory, TaskDatabase
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
    store.write_batch([bytes([i]) for i in range(10)], [b"v"] * 10)
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
    store.write_batch(keys, [b"v"] * len(keys))
    scans = [store.scan(f"{i:03}".encode(), f"{i + 10:03}".encode(), reverse=reverse) for i in range(80)]
    for i, scan in enumerate(scans):
        expected = keys[i : i + 10]
        assert [key for key, _ in scan] == (expected[::-1] if reverse else expected)
    database.close()


def test_shared_limit_makes_databases_flush_before_their_own_buffers_are_full(tmp_path: Path) -> None:
    memory = RocksMemory(block_cache_bytes=1 << 20, write_buffer_bytes=1 << 20)
    databases = [TaskDatabase(str(tmp_path / str(i)), ["s"], memory=memory) for i in range(3)]
    for i in range(9000):  # 12 MB each
        databases[i % 3].store("s").write(f"{i}".encode(), b"x" * 4000)
        if i % 100 < 3:
            databases[i % 3].commit({})
    for database in databases:
        assert any(name.endswith(".sst") for name in os.listdir(database.path))
    assert all(databases[i % 3].store("s").read(f"{i}".encode()) is not None for i in range(9000))
    for database in databases:
        database.close()


def test_what_was_written_in_bulk_is_not_kept_in_memory_when_it_is_committed(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    store = database.store("s")
    large = bytes(1_000_000)
    holders = sys.getrefcount(large)
    store.write_batch([b"k"], [large])
    database.commit({})
    assert sys.getrefcount(large) == holders
    assert store.read(b"k") == large
    database.close()


def test_entries_of_several_stores_and_positions_do_not_mix_in_one_commit(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["one", "two"], memory=MEMORY)
    one, two = database.store("one"), database.store("two")
    for store in (one, two):
        store.write_batch([b"both", b"gone"], [b"old", b"old"])
    database.commit({})
    one.write_batch([b"both", b"gone"], [b"1", None])
    two.write_batch([b"both", b"new"], [b"2", b"2"])
    database.commit({TopicPartition("t", 0): 4})
    assert list(one.scan(None, None)) == [(b"both", b"1")]
    assert list(two.scan(None, None)) == [(b"both", b"2"), (b"gone", b"old"), (b"new", b"2")]
    assert database.positions() == {TopicPartition("t", 0): 4}
    assert list(database.store("default").scan(None, None)) == []
    database.close()


# -- the latest writes, which wait in memory ---------------------------------------------------------------------------


def on_another_thread(action: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(action).result()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[TaskDatabase]:
    database = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    yield database
    database.close()


@pytest.fixture
def store(database: TaskDatabase) -> RocksBytes:
    return database.store("s")


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_of_another_thread_sees_what_waits_over_what_is_written(store: RocksBytes, reverse: bool) -> None:
    store.write_batch([b"a", b"b", b"d", b"e"], [b"old"] * 4)
    store.write(b"b", b"new")
    store.write(b"c", b"new")
    store.remove(b"d")
    store.write(b"z", b"beyond")
    expected = [(b"a", b"old"), (b"b", b"new"), (b"c", b"new"), (b"e", b"old")]
    scanned = on_another_thread(lambda: list(store.scan(b"a", b"f", reverse=reverse)))
    assert scanned == (expected[::-1] if reverse else expected)
    assert list(store.scan(b"a", b"f", reverse=reverse)) == scanned


def test_scan_is_a_snapshot_when_its_writes_still_wait(database: TaskDatabase, store: RocksBytes) -> None:
    store.write(b"a", b"1")
    store.write(b"b", b"1")
    mine, of_another = store.scan(None, None), on_another_thread(lambda: store.scan(None, None))
    store.write(b"b", b"2")
    store.remove(b"a")
    database.commit({})
    assert list(mine) == list(of_another) == [(b"a", b"1"), (b"b", b"1")]


def test_uncommitted_bytes_are_counted(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["many", "large"], memory=MEMORY)
    many, large = database.store("many"), database.store("large")
    for number in range(1_000):
        many.write(b"%05d" % number, b"v")
    few = database.uncommitted_bytes
    assert 100_000 < few < 400_000
    for number in range(40):
        for _ in range(2):
            large.write(b"%05d" % number, b"x" * 100_000)
    assert 4_000_000 < database.uncommitted_bytes - few < 5_000_000
    database.commit({})
    assert database.uncommitted_bytes == 0
    assert all(many.read(b"%05d" % number) == b"v" for number in range(1_000))
    assert many.approximate_count() == 1_000
    database.close()


def test_closed_store_refuses_to_read_and_to_write(store: RocksBytes) -> None:
    read, write, remove = store.read, store.write, store.remove
    write(b"a", b"1")
    store.close()
    for call in (lambda: read(b"a"), lambda: write(b"a", b"2"), lambda: remove(b"a")):
        with pytest.raises(InvalidStateStoreError):
            call()


def test_readers_always_find_a_key_while_it_is_committed(database: TaskDatabase, store: RocksBytes) -> None:
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
        for number in range(1, 40_000):
            store.write(b"key" if number % 3 == 0 else b"%d" % number, b"%d" % number)
            if number % 100 == 0:
                database.commit({})
        ended.set()
        assert reading.result() == (0, 0)


# -- small commits that overwrite each other, as one entry each --------------------------------------------------------


def entries_in_memtable(store: RocksBytes) -> int:
    # Only RocksDB knows its memtable.
    found: int = store._family.property_int_value("rocksdb.num-entries-active-mem-table")
    return found


def test_counters_that_are_committed_often_are_written_key_by_key_now_and_then(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s"])
    store = database.store("s")
    count(database, 50)
    assert entries_in_memtable(store) < 10 * len(COUNTERS)
    count(database, 1_050, first=50)
    assert len(COUNTERS) < entries_in_memtable(store) < 10 * len(COUNTERS)
    assert all(store.read(key) == b"1099" for key in COUNTERS)
    database.close()


def test_what_a_killed_process_has_committed_is_there_in_whatever_form(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path / "lives"), ["s"])
    count(database, 7)
    database.store("s").write(COUNTERS[0], b"not committed")
    shutil.copytree(tmp_path / "lives", tmp_path / "left")  # while it is open, as a kill leaves it
    database.close()
    found = TaskDatabase(str(tmp_path / "left"), ["s"])
    assert found.positions() == {TopicPartition("log", 0): 6}
    assert list(found.store("s").scan(None, None)) == [(key, b"6") for key in COUNTERS]
    count(found, 2, first=7)  # and continues with new bundles
    found.close()
    again = TaskDatabase(str(tmp_path / "left"), ["s"])
    assert list(again.store("s").scan(None, None)) == [(key, b"8") for key in COUNTERS]
    again.close()


def test_scan_of_another_thread_sees_what_is_bundled_in_its_place(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s"])
    store = database.store("s")
    count(database, 3)
    store.write(b"0005", b"new")
    store.remove(COUNTERS[1])
    scanned = on_another_thread(lambda: list(store.scan(b"000", b"003", reverse=True)))
    assert scanned == [(b"002", b"2"), (b"0005", b"new"), (b"000", b"2")]
    assert list(store.collect(b"000", b"003")) == scanned[::-1]
    database.close()


def test_store_that_is_scanned_is_written_out(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s"])
    count(database, 5)
    before = entries_in_memtable(database.store("s"))
    for number in range(3):
        list(database.store("s").scan(None, None))
        count(database, 1, first=5 + number)
    assert entries_in_memtable(database.store("s")) == before + 3 * len(COUNTERS)
    database.close()


def test_store_that_was_emptied_stays_so(tmp_path: Path) -> None:
    database = TaskDatabase(str(tmp_path), ["s"])
    count(database, 3)
    database.store("s").clear()
    database.close()
    database = TaskDatabase(str(tmp_path), ["s"])
    assert list(database.store("s").scan(None, None)) == []
    database.close()


def test_stores_of_a_process_share_what_they_may_keep_in_memory(tmp_path: Path) -> None:
    memory = RocksMemory(block_cache_bytes=1 << 20, write_buffer_bytes=1 << 20)
    for _ in range(100):
        memory.note_opened()
    assert memory.kept_entries == 2_621
    for _ in range(100):
        memory.note_closed()
    assert memory.kept_entries == 16_384
    database = TaskDatabase(str(tmp_path), ["s"], memory=memory)
    for _ in range(1_000):
        memory.note_opened()
    store = database.store("s")
    for number in range(40):
        for key in range(100):
            store.write(b"%d" % (100 * number + key), b"v")
        database.commit({})
        assert len(store._held.written) <= 1_024  # kept in memory, beside what RocksDB has
    database.close()


@given(st.dictionaries(st.binary(max_size=300), st.none() | st.binary(max_size=300)))
def test_bundle_has_all_entries_in_their_order(entries: dict[bytes, bytes | None]) -> None:
    assert list(unpacked(packed(entries)).items()) == list(entries.items())


# -- against a model ---------------------------------------------------------------------------------------------------

KEYS = st.sampled_from([b"k", b"ka", b"kb", b"m"]) | st.binary(max_size=2).map(lambda key: b"k" + key)
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.binary(max_size=300)),
    st.tuples(st.just("put"), KEYS, st.binary(max_size=3)),
    st.tuples(st.just("remove"), KEYS),
    st.tuples(st.just("scan"), st.none() | KEYS, st.none() | KEYS, st.booleans()),
    st.tuples(st.just("commit")),
    st.tuples(st.sampled_from(["commit", "roll back", "reopen", "clear"])),
    st.tuples(st.just("remove below"), KEYS),
    st.tuples(
        st.sampled_from(["write batch", "restore"]),
        st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=3)), max_size=5),
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=40))
def test_store_is_a_dict_of_what_is_committed_under_one_of_what_is_not(steps: list[Any]) -> None:
    go(steps)


@pytest.mark.parametrize("seed", range(7))
def test_store_is_the_same_dict_when_commits_are_bundled(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many commits of few keys, which the test above hardly ever draws."""
    monkeypatch.setattr(bundles, "_ENTRIES_MIN", 1)
    draw = random.Random(seed)

    def step() -> Any:
        key = draw.choice([b"a", b"b", b"c"])
        rare = [("roll back",), ("reopen",), ("clear",), ("remove below", b"b"), ("scan", None, key, True)]
        steps = [("put", key, b"%d" % draw.randrange(99)), ("remove", key), ("commit",), draw.choice(rare)]
        [step] = draw.choices(steps, (6, 2, 4, 1))
        return step

    assert go(step() for _ in range(200)) > 9


def go(steps: Iterable[Any]) -> int:
    """Take these steps, on a store and on dicts; how many commits were bundled."""
    bundled = 0
    with tempfile.TemporaryDirectory() as folder:
        database = TaskDatabase(folder, ["s"], memory=MEMORY)
        store = database.store("s")
        committed: dict[bytes, bytes] = {}
        now: dict[bytes, bytes] = {}
        for step in steps:
            match step:
                case ("put", key, data):
                    store.write(key, data)
                    now[key] = data
                case ("remove", key):
                    store.remove(key)
                    now.pop(key, None)
                case ("scan", first, end, reverse):
                    expected = sorted(
                        (k, d) for k, d in now.items() if (first is None or k >= first) and (end is None or k < end)
                    )
                    assert list(store.scan(first, end, reverse=reverse)) == (expected[::-1] if reverse else expected)
                case ("commit",):
                    before = len(store.bundle_keys)
                    database.commit({})
                    bundled += len(store.bundle_keys) > before
                    committed = dict(now)
                case ("roll back",):
                    database.roll_back()
                    now = dict(committed)
                case ("reopen",):
                    database.close()
                    database = TaskDatabase(folder, ["s"], memory=MEMORY)
                    store = database.store("s")
                    now = dict(committed)
                case ("clear",):  # before a restore: immediate and permanent
                    store.clear()
                    now, committed = {}, {}
                case ("remove below", key):
                    store.remove_below(key)
                    now = {k: d for k, d in now.items() if k >= key}
                case ("write batch" | "restore" as way, entries):
                    columns = [key for key, _ in entries], [data for _, data in entries]
                    if way == "restore":  # with everything that waits
                        BulkLoad(database).restore(partial(store.write_batch, *columns), {})
                    else:
                        store.write_batch(*columns)
                    for key, data in entries:
                        now[key] = data
                        if data is None:
                            del now[key]
                    committed = dict(now) if way == "restore" else committed
            # Not a scan: a store that is scanned has no bundles.
            assert all(store.read(key) == now.get(key) for key in {*now, *committed})
        assert dict(store.scan(None, None)) == now
        database.close()
    return bundled
