"""Which errors of stores indicate damaged files, and how many times a task is restored after them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams_py.errors import StateError
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.client.kafka_streams import KafkaStreams
from streams_py.runtime.tasks.damage import DamagedFiles
from streams_py.runtime.thread.states import State
from streams_py.serdes import STRING
from streams_py.topology.dsl.builder import StreamsBuilder
from tests.support.runtime.world import Steps, World, counting, task, tp
from tests.support.waiting import until

ONE, OTHER = task("0_0"), task("0_1")
BOTH = {ONE: [tp("in-0")], OTHER: [tp("in-1")]}


@pytest.fixture
def world() -> World:
    made = World(**{"in": 2, "out": 2, "app-counts-changelog": 2})
    made.committed[tp("in-0")] = made.committed[tp("in-1")] = OffsetAndMetadata(0)
    return made


def started(world: World, folder: Path, guarantee: str) -> Steps:
    steps = Steps(world, counting(), folder, dsl_store_suppliers_class="rocksdb", processing_guarantee=guarantee)
    steps.run(BOTH)
    return steps


def test_disk_that_keeps_failing_ends_the_thread(world: World, tmp_path: Path) -> None:
    steps = started(world, tmp_path, "at_least_once")
    running = steps.parts.table.running()
    error = StateError("store 'counts' failed")
    error.__cause__ = Exception(f"Corruption: block checksum mismatch in {tmp_path}/app/0_0/rocksdb/000009.sst")
    damaged = DamagedFiles()
    found = [damaged.in_stores(running, error) for _ in range(4)]
    assert [one and set(one.tasks) for one in found] == [{ONE}, {ONE}, {ONE}, None]
    steps.close()


@pytest.mark.parametrize(
    "cause", ["Corruption: bad block in /elsewhere/000009.sst", "IO error: No space left on device: {}", "IO error: {}"]
)
def test_other_errors_are_no_damage(world: World, tmp_path: Path, cause: str) -> None:
    steps = started(world, tmp_path, "at_least_once")
    error = StateError("store 'counts' failed")
    error.__cause__ = Exception(cause.format(f"{tmp_path}/app/0_0/rocksdb/000009.sst"))
    assert DamagedFiles().in_stores(steps.parts.table.running(), error) is None
    steps.close()
    assert not (tmp_path / "app" / "0_0" / "rocksdb-damaged").exists()


# -- damage that another thread meets --------------------------------------------------------------------------------

KEYS = 3_000


def damage(folder: Path) -> None:
    """Change bytes of data blocks in the largest file of a closed database."""
    largest = max(folder.glob("rocksdb/*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    for at in range(len(content) // 4, len(content) // 2, 500):
        content[at] ^= 0xFF
    largest.write_bytes(content)


def queried(read: Callable[[str], Any], keys: list[str]) -> Exception:
    """The error of the first query that meets damage. Queries run on a thread of their own, as those of HTTP do."""
    errors: list[Exception] = []

    def query() -> None:
        for key in keys:
            try:
                read(key)
            except Exception as error:
                errors.append(error)
                return

    thread = threading.Thread(target=query)
    thread.start()
    thread.join()
    (error,) = errors
    assert isinstance(error, StateError)
    assert "Corruption" in str(error)
    return error


def filled(world: World, folder: Path) -> None:
    """Count keys, stop, and damage the files of the task."""
    steps = started(world, folder, "at_least_once")
    for number in range(KEYS):
        world.write("in", b"v", key=b"%06d" % (number * 7_919 % KEYS))
    steps.turn(10)
    steps.close()
    steps.instance.close()
    damage(folder / "app" / "0_0")


@pytest.mark.parametrize("is_active", [True, False], ids=["active", "standby"])
def test_query_that_meets_damage_makes_the_owner_restore_the_task(
    world: World, tmp_path: Path, is_active: bool, caplog: pytest.LogCaptureFixture
) -> None:
    filled(world, tmp_path)
    steps = Steps(world, counting(), tmp_path, dsl_store_suppliers_class="rocksdb")
    if is_active:
        steps.run(BOTH)
    else:
        steps.membership.round({}, {ONE: [tp("in-0")]})
        steps.turn(4)
    (held,) = [one for one in steps.parts.table.all() if one.id == ONE]
    queried(held.stores.store("counts").peek, [f"{number:06d}" for number in range(KEYS)])
    assert [record for record in caplog.records if "store files are damaged" in record.getMessage()] == []
    steps.turn(12)
    (warning,) = [record for record in caplog.records if "store files are damaged" in record.getMessage()]
    assert "task 0_0" in warning.getMessage()
    assert (tmp_path / "app" / "0_0" / "rocksdb-damaged").is_dir()
    assert steps.errors == []
    (held,) = [one for one in steps.parts.table.all() if one.id == ONE]
    store = held.stores.store("counts")
    assert [store.peek(f"{number:06d}").value for number in range(KEYS)] == [1] * KEYS
    steps.close()
    steps.instance.close()


def test_read_that_meets_damage_while_a_record_is_processed_is_no_error_of_the_record(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(world, tmp_path)
    steps = Steps(
        world,
        counting(),
        tmp_path,
        dsl_store_suppliers_class="rocksdb",
        processing_exception_handler="log_and_continue",  # must not drop the record
    )
    steps.run(BOTH)
    for number in range(KEYS):
        world.write("in", b"v", key=b"%06d" % number)
    steps.turn(30)
    assert (tmp_path / "app" / "0_0" / "rocksdb-damaged").is_dir()
    (held,) = [one for one in steps.parts.table.all() if one.id == ONE]
    store = held.stores.store("counts")
    assert [store.peek(f"{number:06d}").value for number in range(KEYS)] == [2] * KEYS
    assert steps.errors == []
    steps.close()
    steps.instance.close()


def test_query_that_meets_damage_of_a_global_store_ends_the_client_and_the_next_start_restores_it(
    tmp_path: Path,
) -> None:
    world = World(g=1)
    for number in range(KEYS):
        world.write("g", b"v%d" % number, key=b"%06d" % (number * 7_919 % KEYS))
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.global_table("g", store="names")
    topology = builder.build()
    config = {
        "application.id": "app",
        "bootstrap.servers": "localhost:1",
        "state.dir": str(tmp_path),
        "dsl.store.suppliers.class": "rocksdb",
    }
    for _ in range(2):  # the second start flushes the entries of the log to a file
        with KafkaStreams(topology, config, clients=world):
            pass
    damage(tmp_path / "app" / "global")
    keys = [f"{number:06d}" for number in range(KEYS)]
    with KafkaStreams(topology, config, clients=world) as streams:
        queried(streams.store("names").get, keys)
        until(lambda: streams.state is State.ERROR, "the client to fail")
    assert (tmp_path / "app" / "global" / "rocksdb-damaged").is_dir()
    with KafkaStreams(topology, config, clients=world) as streams:
        view = streams.store("names")
        assert sum(view.get(key) is not None for key in keys) == KEYS
