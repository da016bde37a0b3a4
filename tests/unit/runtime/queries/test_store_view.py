"""Which stores may be read, and when: the rules of KIP-535."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streams_py import Materialized, StreamsBuilder, VersionedRecord
from streams_py.errors import (
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    StateStoreMigratedError,
    StreamsNotStartedError,
    UnknownStateStoreError,
)
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.queries.store_view import store_view
from streams_py.runtime.thread.states import State, ThreadState
from streams_py.serdes import STRING
from streams_py.state.reading.queryable import QueryableStoreType
from streams_py.state.reading.store_views import ReadOnlyKeyValueStore
from tests.support.background import in_background
from tests.support.runtime.world import Steps, World, copying, counting, task, tp
from tests.support.waiting import PATIENCE_S

A, B = task("0_0"), task("0_1")
BOTH = {A: [tp("in-0")], B: [tp("in-1")]}


class Reader:
    """A client with one stepped thread."""

    def __init__(self, world: World, folder: Path, topology: Any = None, **config: Any) -> None:
        self.world = world
        self.steps = Steps(world, topology or counting(), folder, **config)
        self.state = State.RUNNING

    def view(self, name: str = "counts", **options: Any) -> ReadOnlyKeyValueStore[Any, Any]:
        choice: dict[str, Any] = {"kind": QueryableStoreType.KEY_VALUE, "partition": None, "stale": False, **options}
        return store_view(
            name,
            lambda: self.state,
            lambda: [self.steps.thread],
            sorted(self.steps.instance.hosts.stores),
            dict,
            **choice,
        )


@pytest.fixture
def world() -> World:
    made = World(**{"in": 2, "out": 2, "app-counts-changelog": 2})
    for partition in (0, 1):
        count = (10 + partition).to_bytes(8, "big")
        made.log.produce("app-counts-changelog", count, b"old-%d" % partition, partition, None, 1, None)
        made.committed[tp(f"in-{partition}")] = OffsetAndMetadata(0)  # otherwise the stores would be suspect
    return made


@pytest.fixture
def reader(world: World, tmp_path: Path) -> Reader:
    return Reader(world, tmp_path)


def test_all_running_actives_are_read_as_one(world: World, reader: Reader) -> None:
    reader.steps.run(BOTH)
    world.write("in", b"x", b"y", key=b"new")
    reader.steps.turn()
    view = reader.view()
    assert (view.get("old-0"), view.get("old-1"), view.get("new"), view.get("none")) == (10, 11, 2, None)
    assert dict(view.all()) == {"old-0": 10, "old-1": 11, "new": 2}
    assert view.approximate_num_entries() == 2  # entries that are only in the cache are not counted
    world.clock.advance(2000)
    reader.steps.turn()
    assert view.approximate_num_entries() == 3
    assert [key for key, _ in view.range("old-0", "old-1")] == ["old-0", "old-1"]


def test_uncommitted_values_in_the_cache_are_seen(world: World, reader: Reader) -> None:
    reader.steps.run(BOTH)
    world.write("in", b"x", key=b"old-0")
    reader.steps.turn()
    assert {at.offset for at in world.committed.values()} == {0}
    assert reader.view().get("old-0") == 11


def test_value_and_timestamp_are_read_from_a_timestamped_store(world: World, reader: Reader) -> None:
    reader.steps.run(BOTH)
    found = reader.view(kind=QueryableStoreType.TIMESTAMPED_KEY_VALUE).get("old-0")
    assert tuple(found) == (10, 1)


def test_client_must_have_been_started(reader: Reader) -> None:
    reader.state = State.CREATED
    with pytest.raises(StreamsNotStartedError):
        reader.view()


@pytest.mark.parametrize("state", [s for s in State if not s.is_running_or_rebalancing and s is not State.CREATED])
def test_client_that_is_ending_cannot_be_read(reader: Reader, state: State) -> None:
    reader.steps.run(BOTH)
    reader.state = state
    with pytest.raises(InvalidStateStoreError, match=state.value):
        reader.view()


def test_client_can_be_read_while_it_rebalances(reader: Reader) -> None:
    reader.steps.run(BOTH)
    reader.state = State.REBALANCING
    assert reader.view().get("old-0") == 10


def test_unknown_name_is_answered_with_the_known_ones(reader: Reader) -> None:
    reader.steps.run(BOTH)
    with pytest.raises(UnknownStateStoreError, match=r"'cuonts'; it has: counts"):
        reader.view("cuonts")


def test_topology_without_stores_says_so(world: World, tmp_path: Path) -> None:
    reader = Reader(world, tmp_path, copying())
    with pytest.raises(UnknownStateStoreError, match="it has: no stores"):
        reader.view()


def test_one_partition_is_read_when_only_that_is_asked_for(reader: Reader) -> None:
    reader.steps.run(BOTH)
    assert dict(reader.view(partition=1).all()) == {"old-1": 11}


def test_partition_that_is_elsewhere_is_named(reader: Reader) -> None:
    reader.steps.run({A: [tp("in-0")]})
    with pytest.raises(InvalidStateStorePartitionError, match="partition 1 of store counts"):
        reader.view(partition=1)


def test_restoring_task_is_not_read_but_the_running_ones_are(world: World, reader: Reader) -> None:
    reader.steps.run({A: [tp("in-0")]})
    reader.steps.membership.round(BOTH)
    reader.steps.loop.iterate()  # the other one restores now
    assert reader.steps.tasks == {"0_0": "RUNNING", "0_1": "RESTORING"}
    assert dict(reader.view().all()) == {"old-0": 10}
    with pytest.raises(InvalidStateStorePartitionError):
        reader.view(partition=1)


def test_standbys_and_restoring_tasks_are_read_when_stale_values_will_do(reader: Reader) -> None:
    reader.steps.run({A: [tp("in-0")]}, standby={B: [tp("in-1")]})
    assert dict(reader.view().all()) == {"old-0": 10}
    assert dict(reader.view(stale=True).all()) == {"old-0": 10, "old-1": 11}
    assert reader.view(partition=1, stale=True).get("old-1") == 11


def test_nothing_here_is_an_error_of_its_own(reader: Reader) -> None:
    reader.steps.run({})
    with pytest.raises(InvalidStateStoreError, match="elsewhere, or it is still being restored"):
        reader.view()


def test_dead_thread_is_passed_over(reader: Reader) -> None:
    reader.steps.run(BOTH)
    reader.steps.close()
    assert reader.steps.thread.state is ThreadState.DEAD
    with pytest.raises(InvalidStateStoreError):
        reader.view(stale=True)


def test_view_becomes_invalid_when_tasks_have_moved(reader: Reader) -> None:
    reader.steps.run(BOTH)
    view = reader.view()
    assert view.get("old-1") == 11
    reader.steps.membership.round({A: [tp("in-0")]})
    with pytest.raises(InvalidStateStoreError, match="request a new view"):
        view.get("old-0")
    assert reader.view().get("old-0") == 10


def test_view_stays_valid_through_a_rebalance_that_moves_nothing(reader: Reader) -> None:
    reader.steps.run(BOTH)
    view = reader.view()
    reader.steps.run(BOTH)
    assert view.get("old-0") == 10


def test_iterator_is_a_snapshot_that_survives_writes(world: World, reader: Reader) -> None:
    reader.steps.run(BOTH)
    entries = reader.view().all()
    first = next(entries)
    world.write("in", *[b"x"] * 50, key=b"new")
    reader.steps.turn()
    assert {first[0], *(key for key, _ in entries)} >= {"old-0", "old-1"}


def test_closed_store_says_that_it_cannot_be_read(reader: Reader) -> None:
    reader.steps.run(BOTH)
    view = reader.view()
    reader.steps.membership.lose()
    with pytest.raises(InvalidStateStoreError):
        view.get("old-0")


def test_versioned_table_is_read_as_it_is_and_as_it_was(tmp_path: Path) -> None:
    world = World(**{"in": 2, "app-versions-changelog": 2})
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.table("in", materialized=Materialized("versions", history=100))
    reader = Reader(world, tmp_path, builder.build())
    reader.steps.run(BOTH)
    for value, timestamp_ms in ((b"x", 10), (b"z", 30), (b"y", 20), (None, 40)):
        world.log.produce("in", value, b"k", 1, None, timestamp_ms, None)
    reader.steps.turn()
    view: Any = reader.view("versions", kind=QueryableStoreType.VERSIONED)
    assert view.get("k") is None
    assert (view.get("k", 40), view.get("k", 9), view.get("none", 9)) == (None, None, None)
    assert view.get("k", 25) == VersionedRecord("y", 20, 30)
    assert list(view.history("k", 20, 35)) == [VersionedRecord("y", 20, 30), VersionedRecord("z", 30, 40)]
    assert [version.value for version in view.history("k", reverse=True)] == ["z", "y", "x"]
    with pytest.raises(InvalidStateStoreError, match="not a key-value store"):
        reader.view("versions")


def test_other_stores_have_no_versions(reader: Reader) -> None:
    reader.steps.run(BOTH)
    with pytest.raises(InvalidStateStoreError, match="'counts' is not a versioned store"):
        reader.view("counts", kind=QueryableStoreType.VERSIONED)


def test_reader_waits_for_no_lock_that_a_restore_or_a_rebalance_holds(reader: Reader) -> None:
    reader.steps.run(BOTH)
    view, found = reader.view(), []
    with reader.steps.parts.table._lock, reader.steps.updater._lock:  # held during a rebalance and a restore
        thread = threading.Thread(target=lambda: found.append((view.get("old-0"), reader.view().get("old-1"))))
        thread.start()
        thread.join(PATIENCE_S)
    assert found == [(10, 11)]


def test_key_is_not_called_absent_when_its_task_goes_away_meanwhile(reader: Reader) -> None:
    reader.steps.run(BOTH)
    view = reader.view()
    store: Any = reader.steps.parts.table.shown[0].stores.store("counts")

    def going(key: str) -> None:
        reader.steps.membership.lose()

    store.peek = going
    with pytest.raises(StateStoreMigratedError) as raised:
        view.get("old-0")
    assert raised.value.retriable


def test_scan_does_not_end_as_if_complete_when_its_store_is_closed_meanwhile(reader: Reader) -> None:
    reader.steps.run(BOTH)
    entries = reader.view().all()
    next(entries)
    reader.steps.membership.lose()
    with pytest.raises(StateStoreMigratedError):
        list(entries)


def test_readers_of_rocksdb_get_the_truth_or_a_retriable_error_while_tasks_come_and_go(tmp_path: Path) -> None:
    """Tasks commit, close and restore on one thread, while other threads read."""
    world = World(**{"in": 2, "out": 2, "app-counts-changelog": 2})
    reader = Reader(world, tmp_path, **{"dsl.store.suppliers.class": "rocksdb", "statestore.cache.max.bytes": 0})
    reader.steps.run(BOTH)
    for number in range(200):
        world.write("in", b"x", key=b"%03d" % number)
    reader.steps.turn(3)
    answers: Counter[object] = Counter()

    def read(ended: threading.Event) -> None:
        while not ended.is_set():
            try:
                view = reader.view(partition=0)
                answers[view.get("007")] += 1
                answers[len(list(view.range("000", "199")))] += 1
            except InvalidStateStoreError as error:
                answers["retriable" if error.retriable else error] += 1

    with in_background(read, threads=2):
        for turn in range(12):
            world.clock.advance(2000)
            world.write("in", b"x", partition=1, key=b"other")
            reader.steps.turn()
            if turn % 3 == 0:
                reader.steps.run({B: [tp("in-1")]})
                reader.steps.run(BOTH)
    assert set(answers) <= {1, 200, "retriable"}
    assert answers[1]
    reader.steps.close()
