"""Which errors of stores indicate damaged files, and how many times a task is restored after them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams_py.errors import StateError
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.tasks.damage import DamagedFiles
from tests.unit.runtime.world import Steps, World, counting, task, tp

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
