"""The state directory is deleted while a stream thread runs: the thread stops with an error, and no data is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from streams_py.errors import StateError
from streams_py.ports import OffsetAndMetadata
from tests.support.runtime.world import Steps, World, counting, task, tp

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


def feed(world: World, steps: Steps, *values: bytes) -> None:
    """Write one key to each partition, and iterate until they are committed."""
    for partition in (0, 1):
        world.write("in", *values, partition=partition, key=b"k%d" % partition)
    steps.turn(2)
    world.clock.advance(2_000)
    steps.turn(2)


def counts(steps: Steps) -> list[int]:
    return [one.stores.store("counts").get(f"k{one.id.partition}")[0] for one in steps.parts.table.running()]


def ends(steps: Steps) -> str:
    """Return the error with which the thread stops, without its own loop."""
    with pytest.raises(StateError) as caught:
        steps.turn(3)
    steps.fail(caught.value)
    steps.thread._close(clean=False)  # as the thread does after its loop
    assert steps.errors == [caught.value]
    return str(caught.value)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("gone", ["app", "app/0_0"])
def test_next_commit_ends_the_thread_and_the_next_one_restores_all(
    world: World, tmp_path: Path, guarantee: str, gone: str
) -> None:
    steps = started(world, tmp_path, guarantee)
    feed(world, steps, b"a", b"b")
    assert counts(steps) == [2, 2]
    shutil.rmtree(tmp_path / gone)
    for partition in (0, 1):
        world.write("in", b"c", partition=partition, key=b"k%d" % partition)
    steps.turn(2)
    assert counts(steps) == [3, 3]
    world.clock.advance(2_000)
    assert ends(steps).startswith(f"{tmp_path / gone} was deleted while state stores in it were in use")
    steps.instance.close()
    again = started(world, tmp_path, guarantee)
    feed(world, again, b"d")
    assert counts(again) == [4, 4]
    again.close()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_task_that_is_handed_over_from_a_deleted_directory_is_whole_elsewhere(
    world: World, tmp_path: Path, guarantee: str
) -> None:
    """The task has nothing to commit, and closing would flush."""
    steps = started(world, tmp_path / "one", guarantee)
    feed(world, steps, b"a", b"b")
    shutil.rmtree(tmp_path / "one")
    steps.membership.round({OTHER: BOTH[OTHER]})
    assert ends(steps).startswith(f"{tmp_path / 'one' / 'app' / '0_0'} was deleted while state stores in it")
    again = started(world, tmp_path / "two", guarantee)
    assert counts(again) == [2, 2]
    again.close()


def test_task_that_opens_in_a_deleted_directory_has_a_new_one(world: World, tmp_path: Path) -> None:
    steps = started(world, tmp_path, "at_least_once")
    feed(world, steps, b"a")
    steps.membership.round({OTHER: BOTH[OTHER]})
    steps.turn(3)
    shutil.rmtree(tmp_path / "app" / "0_0")
    (tmp_path / "app" / ".lock").unlink()
    steps.run(BOTH)
    assert counts(steps) == [1, 1]
    feed(world, steps, b"b")
    assert counts(steps) == [2, 2]
    assert (tmp_path / "app" / ".lock").exists()
    steps.close()
