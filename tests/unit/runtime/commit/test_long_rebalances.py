"""Rebalances that take longer than a transaction may, because a member that joins slowly delays the whole group."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from streams_py.errors import BrokerUnavailableError
from streams_py.state.disk.database import TaskDatabase
from tests.support.runtime.world import Steps, World, counting, task, tp

BOTH = {task("0_0"): [tp("in-0")], task("0_1"): [tp("in-1")]}
TIMEOUT_MS = 20_000


@pytest.fixture
def world() -> World:
    return World(**{"in": 2, "out": 2, "app_counts_changelog": 2})


def steps_of(world: World, folder: Path, **config: str) -> Steps:
    exactly_once = {"processing_guarantee": "exactly_once_v2", "producer_transaction_timeout_ms": str(TIMEOUT_MS)}
    return Steps(world, counting(), folder, statestore_cache_max_bytes=0, **{**exactly_once, **config})


def wait_in_rebalance(steps: Steps, duration_ms: int) -> None:
    """Iterate while a record arrives every 100 ms, and the group waits for another member."""
    for _ in range(duration_ms // 100):
        steps.world.write("in", b"x")
        steps.world.clock.sleep_ms(100)
        steps.turn()


def transactions(world: World) -> list[tuple[int, int]]:
    """Return the committed transactions: (offset, generation)."""
    return [(entry[1][tp("in-0")], entry[2]) for entry in world.diary if entry[0] == "transaction"]


def counted(world: World) -> list[int]:
    return [int.from_bytes(record.value() or b"", "big") for record in world.records(tp("out-0"))]


def test_no_transaction_lasts_for_its_timeout_however_long_a_rebalance_takes(world: World, tmp_path: Path) -> None:
    steps = steps_of(world, tmp_path)
    steps.run(BOTH)
    steps.membership.join()
    wait_in_rebalance(steps, 3 * TIMEOUT_MS)
    committed = [offset for offset, _ in transactions(world)]
    steps_between = [after - before for before, after in zip([0, *committed], committed, strict=False)]
    assert max(steps_between) * 100 <= TIMEOUT_MS // 2  # a record came every tenth of a second
    assert len(world.records(tp("in-0"))) - committed[-1] <= TIMEOUT_MS // 200
    assert steps.parts.transport.rebalancing
    assert world.names().count("initialize") == 1
    steps.membership.finish(BOTH)
    wait_in_rebalance(steps, 2_000)
    steps.close()
    assert counted(world) == list(range(1, len(world.records(tp("in-0"))) + 1))


def test_short_rebalance_commits_nothing(world: World, tmp_path: Path) -> None:
    """A commit that is pending when the next generation starts is rejected."""
    steps = steps_of(world, tmp_path)
    steps.run(BOTH)
    steps.membership.join()
    wait_in_rebalance(steps, 1_500)
    assert transactions(world) == []
    steps.close()


def test_transaction_in_a_rebalance_has_the_generation_that_is_being_formed(world: World, tmp_path: Path) -> None:
    steps = steps_of(world, tmp_path)
    steps.run(BOTH)
    before = steps.membership.generation
    steps.membership.join()
    wait_in_rebalance(steps, TIMEOUT_MS)
    assert {generation for _, generation in transactions(world)} == {before}
    world.diary.clear()
    steps.membership.joins = True  # all members have joined; the leader is still assigning
    world.group_generation = before + 1
    wait_in_rebalance(steps, TIMEOUT_MS)
    assert {generation for _, generation in transactions(world)} == {before + 1}
    steps.close()


def test_commit_that_is_overtaken_by_the_next_generation_takes_tasks_back_and_keeps_the_membership(
    world: World, tmp_path: Path
) -> None:
    steps = steps_of(world, tmp_path)
    steps.run(BOTH)
    world.write("in", b"x")
    steps.membership.join()

    def begins(step: str) -> None:
        if step == "commit" and not steps.membership.joins:
            steps.membership.joins = True
            world.group_generation = steps.membership.generation + 1

    steps.producer.at = begins  # type: ignore[attr-defined]  # transactional ones have it
    wait_in_rebalance(steps, TIMEOUT_MS)
    assert world.names().count("initialize") == 2
    assert ("join as a new member",) not in world.diary
    steps.membership.finish(BOTH)
    wait_in_rebalance(steps, 2_000)
    steps.close()
    assert counted(world) == list(range(1, len(world.records(tp("in-0"))) + 1))


def test_last_commit_has_the_generation_that_is_being_formed_when_a_rebalance_does_not_end(
    world: World, tmp_path: Path
) -> None:
    steps = steps_of(world, tmp_path)
    steps.run(BOTH)
    world.write("in", b"x")
    steps.turn()
    steps.membership.join()
    steps.membership.joins = True
    world.group_generation = steps.membership.generation + 1
    began_ms = world.clock.monotonic_ms()
    steps.close()
    assert world.clock.monotonic_ms() - began_ms <= TIMEOUT_MS // 5
    assert transactions(world) == [(1, steps.membership.generation + 1)]
    assert world.committed[tp("in-0")].offset == 1


@pytest.mark.parametrize("how", ["lost", "revoked"])
def test_last_commit_is_not_one_of_a_member_that_has_joined_again_without_its_tasks(
    world: World, tmp_path: Path, how: str
) -> None:
    """A broker would accept it: it checks the member, not the partitions. The new owner started with equal records."""
    steps = steps_of(world, tmp_path, max_poll_interval_ms="1")
    steps.run(BOTH)
    world.write("in", b"x")
    steps.turn()
    joined_again: list[object] = []

    def joins_again(step: str) -> None:
        if step == "commit":
            if how == "lost":
                steps.membership.lose()
            else:
                steps.membership.revoke([tp("in-0")])
            with contextlib.suppress(BrokerUnavailableError):
                joined_again.append(steps.membership.join())

    steps.producer.at = joins_again  # type: ignore[attr-defined]  # transactional ones have it
    steps.close()
    assert len(transactions(world)) == 1
    assert joined_again == []


def test_member_that_may_be_none_commits_nothing_in_a_rebalance(world: World, tmp_path: Path) -> None:
    """And the time does not count against ``task.timeout.ms``."""
    steps = steps_of(world, tmp_path, task_timeout_ms="10000")
    steps.run(BOTH)
    world.write("in", b"x")
    steps.turn()
    steps.membership.join()
    steps.membership.counted = False
    wait_in_rebalance(steps, 2 * TIMEOUT_MS)
    assert transactions(world) == []
    steps.membership.lose()
    steps.turn()
    steps.membership.counted = True
    steps.run(BOTH)
    wait_in_rebalance(steps, 2_000)
    steps.close()
    assert counted(world) == list(range(1, len(world.records(tp("in-0"))) + 1))


def test_offsets_alone_wait_for_the_end_of_a_rebalance(world: World, tmp_path: Path) -> None:
    steps = steps_of(world, tmp_path, processing_guarantee="at_least_once")
    steps.run(BOTH)
    steps.membership.join()
    wait_in_rebalance(steps, 2 * TIMEOUT_MS)
    assert "commit" not in world.names()
    steps.membership.finish(BOTH)
    steps.close()
    assert world.committed[tp("in-0")].offset == len(world.records(tp("in-0")))


def test_work_continues_when_uncommitted_writes_fill_memory_in_a_rebalance(world: World, tmp_path: Path) -> None:
    """They are written to disk, together with the matching changelog positions."""
    steps = steps_of(
        world,
        tmp_path,
        processing_guarantee="at_least_once",
        dsl_store_suppliers_class="rocksdb",
        statestore_uncommitted_max_bytes=str(1 << 20),
    )
    steps.run({task("0_0"): [tp("in-0")]})
    steps.membership.join()
    for number in range(3_000):
        world.write("in", b"x", key=b"%01000d" % number)
    running = steps.parts.table.running()[0]
    for _ in range(50):
        steps.turn()
        assert running.stores.uncommitted_bytes < 2 << 20
    assert steps.thread.control.processed_records == 3_000
    assert world.committed == {}
    database = running.stores._database  # type: ignore[attr-defined]  # the real ones
    at = database.positions()[tp("app-counts-changelog-0")]
    assert 1_000 < at < 3_000
    shutil.copytree(database.path, tmp_path / "killed" / "rocksdb")
    left = TaskDatabase(str(tmp_path / "killed"), ["counts"])
    assert sum(1 for _ in left.store("counts").scan(None, None)) == at + 1
    left.close()
    steps.membership.finish({task("0_0"): [tp("in-0")]})
    steps.close()
    assert world.committed[tp("in-0")].offset == 3_000
