"""Committed offsets from a coordinator that has not read its whole log: older ones, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams_py import Materialized, StreamsBuilder, serdes
from streams_py.ports import BEGINNING, OffsetAndMetadata
from streams_py.runtime.tasks.record.offset_metadata import OffsetMetadata, encode_offset_metadata
from streams_py.runtime.thread.states import ThreadState
from tests.support.runtime.world import Steps, World, copying, counting, task, tp

A, B = task("0_0"), task("0_1")
ONE = {A: [tp("in-0")]}
BOTH = {A: [tp("in-0")], B: [tp("in-1")]}
TOLD = "its coordinator may not have read all of its log yet; requesting the offsets again"


@pytest.fixture
def world() -> World:
    return World(**{"in": 2, "out": 2, "app-counts-changelog": 2})


@pytest.fixture(params=["at_least_once", "exactly_once_v2"])
def counter(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Callable[..., Steps]:
    def start(**options: Any) -> Steps:
        return Steps(world, counting(), tmp_path, processing_guarantee=request.param, **options)

    return start


def count(steps: Steps, times: int) -> None:
    steps.world.write("in", *[b"x"] * times)
    for _ in range(4):
        steps.world.clock.sleep_ms(30_001)
        steps.turn()


def ask_again(steps: Steps, *, until_s: int) -> None:
    for _ in range(until_s):
        steps.world.clock.sleep_ms(1_000)
        steps.turn(2)


def counts(world: World) -> list[int]:
    return [int.from_bytes(record.value() or b"", "big") for record in world.records(tp("out-0"))]


@pytest.mark.parametrize("told", [OffsetAndMetadata(2), None], ids=["older", "none"])
def test_answer_below_what_this_process_has_committed_is_asked_for_again(
    counter: Callable[..., Steps], world: World, caplog: pytest.LogCaptureFixture, told: OffsetAndMetadata | None
) -> None:
    steps = counter(dsl_store_suppliers_class="in_memory")
    steps.run(ONE)
    count(steps, 5)
    steps.membership.round({})
    committed = world.committed[tp("in-0")]
    assert committed.offset == 5
    if told is None:
        del world.committed[tp("in-0")]
    else:
        world.committed[tp("in-0")] = told
    steps.membership.round(ONE)
    ask_again(steps, until_s=3)
    assert steps.tasks == {"0_0": "RESTORING"}
    said = "nothing" if told is None else "offset 2"
    assert f"reports {said} as committed for in-0 of task 0_0, but offset 5 was committed before; {TOLD}" in caplog.text
    world.committed[tp("in-0")] = committed
    ask_again(steps, until_s=1)
    assert steps.consumer.assigned[-1] == {tp("in-0"): 5}
    count(steps, 1)
    assert counts(world)[-1] == 6


def test_answer_below_what_the_state_on_disk_was_made_of_is_asked_for_again_by_another_process(
    counter: Callable[..., Steps], world: World
) -> None:
    steps = counter(dsl_store_suppliers_class="rocksdb")
    steps.run(ONE)
    count(steps, 5)
    steps.close()
    steps.instance.directory.close()
    world.committed[tp("in-0")], committed = OffsetAndMetadata(2), world.committed[tp("in-0")]
    steps = counter(dsl_store_suppliers_class="rocksdb")
    steps.membership.round(ONE)
    ask_again(steps, until_s=3)
    assert steps.tasks == {"0_0": "RESTORING"}
    world.committed[tp("in-0")] = committed
    ask_again(steps, until_s=1)
    assert steps.consumer.assigned[-1] == {tp("in-0"): 5}
    steps.close()
    steps.instance.directory.close()


def test_nothing_committed_for_a_task_whose_changelog_is_not_empty_is_asked_for_again(
    counter: Callable[..., Steps], world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.write("app-counts-changelog", (7).to_bytes(8, "big"), key=b"k")
    world.write("in", *[b"x"] * 9)
    steps = counter(dsl_store_suppliers_class="in_memory")
    steps.membership.round(ONE)
    ask_again(steps, until_s=3)
    assert steps.tasks == {"0_0": "RESTORING"}
    assert (
        "the group's coordinator reports no committed offsets for the partitions of task 0_0 (in-0), whose stores "
        "are not empty" in caplog.text
    )
    world.committed[tp("in-0")] = OffsetAndMetadata(7)
    ask_again(steps, until_s=1)
    assert steps.consumer.assigned[-1] == {tp("in-0"): 7}


def test_answer_that_stays_is_believed_since_somebody_may_have_reset_the_offsets(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps(world, counting(), tmp_path, dsl_store_suppliers_class="in_memory")
    steps.run(ONE)
    count(steps, 5)
    steps.membership.round({})
    del world.committed[tp("in-0")]
    steps.membership.round(ONE)
    ask_again(steps, until_s=9)
    assert steps.tasks == {"0_0": "RESTORING"}
    ask_again(steps, until_s=3)
    assert steps.tasks == {"0_0": "RUNNING"}
    assert steps.consumer.assigned[-1] == {tp("in-0"): BEGINNING}
    assert "the answer is the same after 10 s and is accepted" in caplog.text
    caplog.clear()
    count(steps, 0)
    steps.membership.round({})
    steps.membership.round(ONE)
    ask_again(steps, until_s=2)
    assert steps.thread.state is ThreadState.RUNNING
    assert TOLD not in caplog.text


@pytest.mark.parametrize("told", [OffsetAndMetadata(2), None], ids=["older", "none"])
def test_under_exactly_once_nothing_is_believed_against_what_this_process_has_committed(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture, told: OffsetAndMetadata | None
) -> None:
    """The coordinator stopped reading its log too early, and returns the same offsets until it restarts."""
    steps = Steps(
        world, counting(), tmp_path, processing_guarantee="exactly_once_v2", dsl_store_suppliers_class="in_memory"
    )
    both = {A: [tp("in-0")], B: [tp("in-1")]}
    steps.run(both)
    count(steps, 5)
    steps.membership.round({})
    committed = dict(world.committed)
    world.committed.clear()
    if told is not None:
        world.committed[tp("in-0")] = told
    steps.membership.round(both)
    ask_again(steps, until_s=150)
    assert steps.tasks == {"0_0": "RESTORING", "0_1": "RESTORING"}
    assert steps.thread.state is not ThreadState.RUNNING
    complaints = [record for record in caplog.records if "Restart the broker that leads" in record.getMessage()]
    assert len(complaints) == 3
    assert "for in-0 of task 0_0, but offset 5 was committed before by this process" in complaints[0].getMessage()
    world.committed.update(committed)
    ask_again(steps, until_s=2)
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RUNNING"}
    count(steps, 1)
    assert counts(world)[-1] == 6


@pytest.mark.parametrize(
    ("told", "doubted_s"),
    [(OffsetAndMetadata(2, encode_offset_metadata(OffsetMetadata(7))), 58), (OffsetAndMetadata(2), 8)],
    ids=["committed by a member", "reset"],
)
def test_under_exactly_once_another_process_doubts_for_longer_what_a_member_has_committed(
    world: World, tmp_path: Path, told: OffsetAndMetadata, doubted_s: int
) -> None:
    def start() -> Steps:
        return Steps(
            world, counting(), tmp_path, processing_guarantee="exactly_once_v2", dsl_store_suppliers_class="rocksdb"
        )

    steps = start()
    steps.run(ONE)
    count(steps, 5)
    steps.close()
    steps.instance.directory.close()
    world.committed[tp("in-0")] = told
    steps = start()
    steps.membership.round(ONE)
    ask_again(steps, until_s=doubted_s)
    assert steps.tasks == {"0_0": "RESTORING"}
    ask_again(steps, until_s=6)
    assert steps.tasks == {"0_0": "RUNNING"}
    assert steps.consumer.assigned[-1] == {tp("in-0"): 2}
    steps.close()
    steps.instance.directory.close()


def restart_with_state(world: World, folder: Path, *, told: dict[int, OffsetAndMetadata | None]) -> Callable[[], Steps]:
    """Count records of both partitions under exactly-once, stop, and let the group report ``told`` from now on."""

    def start() -> Steps:
        return Steps(
            world, counting(), folder, processing_guarantee="exactly_once_v2", dsl_store_suppliers_class="rocksdb"
        )

    steps = start()
    steps.run(BOTH)
    world.write("in", *[b"x"] * 5, partition=1)
    count(steps, 5)
    steps.close()
    steps.instance.directory.close()
    for partition, at in told.items():
        if at is None:
            del world.committed[tp(f"in-{partition}")]
        else:
            world.committed[tp(f"in-{partition}")] = at
    return start


MEMBERS = OffsetAndMetadata(2, encode_offset_metadata(OffsetMetadata(7)))


@pytest.mark.parametrize("impatient", [0, 1])
def test_partition_that_needs_more_patience_is_not_accepted_with_another_one(
    world: World, tmp_path: Path, impatient: int
) -> None:
    start = restart_with_state(world, tmp_path, told={impatient: None, 1 - impatient: MEMBERS})
    steps = start()
    steps.membership.round(BOTH)
    ask_again(steps, until_s=58)
    assert steps.tasks == {"0_0": "RESTORING", "0_1": "RESTORING"}
    ask_again(steps, until_s=6)
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RUNNING"}
    assert steps.consumer.assigned[-1] == {tp(f"in-{impatient}"): BEGINNING, tp(f"in-{1 - impatient}"): 2}
    steps.close()
    steps.instance.directory.close()


def test_partition_that_becomes_suspect_later_is_not_accepted_with_an_earlier_one(world: World, tmp_path: Path) -> None:
    start = restart_with_state(world, tmp_path, told={0: None, 1: None})
    steps = start()
    steps.membership.round(ONE)
    ask_again(steps, until_s=9)
    assert steps.tasks == {"0_0": "RESTORING"}
    steps.membership.round(BOTH)
    ask_again(steps, until_s=4)
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RESTORING"}
    ask_again(steps, until_s=9)
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RUNNING"}
    steps.close()
    steps.instance.directory.close()


def test_older_offset_of_a_partition_that_was_requested_later_is_still_replaced(world: World, tmp_path: Path) -> None:
    start = restart_with_state(world, tmp_path, told={0: None})
    committed = world.committed[tp("in-1")]
    steps = start()
    steps.membership.round(ONE)
    ask_again(steps, until_s=9)
    world.committed[tp("in-1")] = MEMBERS
    steps.membership.round(BOTH)
    ask_again(steps, until_s=20)
    assert steps.tasks == {"0_0": "RESTORING", "0_1": "RESTORING"}
    world.committed[tp("in-1")] = world.committed[tp("in-0")] = committed
    ask_again(steps, until_s=2)
    assert steps.consumer.assigned[-1] == {tp("in-0"): 5, tp("in-1"): 5}
    steps.close()
    steps.instance.directory.close()


@pytest.mark.parametrize("answers", [4, 5])
def test_number_of_equal_answers_that_are_needed(
    world: World, tmp_path: Path, answers: int, caplog: pytest.LogCaptureFixture
) -> None:
    start = restart_with_state(world, tmp_path, told={0: None})
    steps = start()
    steps.membership.round(ONE)
    steps.turn(4)
    assert caplog.text.count(TOLD) == 1
    for _ in range(answers - 1):
        assert steps.tasks == {"0_0": "RESTORING"}
        steps.world.clock.sleep_ms(10_000)
        steps.turn()
    assert steps.tasks == {"0_0": "RUNNING" if answers == 5 else "RESTORING"}
    steps.close()
    steps.instance.directory.close()


def test_answers_that_change_are_not_believed_before_they_stay(counter: Callable[..., Steps], world: World) -> None:
    """The coordinator continues to read its log, so every answer is newer."""
    steps = counter(dsl_store_suppliers_class="in_memory")
    steps.run(ONE)
    count(steps, 40)
    steps.membership.round({})
    steps.membership.round(ONE)
    for offset in range(30):
        world.committed[tp("in-0")] = OffsetAndMetadata(offset)
        ask_again(steps, until_s=1)
        assert steps.tasks == {"0_0": "RESTORING"}
    world.committed[tp("in-0")] = OffsetAndMetadata(40)
    ask_again(steps, until_s=2)
    assert steps.tasks == {"0_0": "RUNNING"}
    assert steps.consumer.assigned[-1] == {tp("in-0"): 40}


def test_doubt_does_not_begin_again_with_each_rebalance(world: World, tmp_path: Path) -> None:
    steps = Steps(world, counting(), tmp_path, dsl_store_suppliers_class="in_memory")
    steps.run(ONE)
    count(steps, 5)
    world.committed[tp("in-0")] = OffsetAndMetadata(2)
    for _ in range(3):
        steps.membership.round({})
        steps.membership.round(ONE)
        ask_again(steps, until_s=4)
    assert steps.tasks == {"0_0": "RUNNING"}
    assert steps.consumer.assigned[-1] == {tp("in-0"): 2}


def test_doubt_does_not_begin_again_with_each_task_that_comes_to_wait(world: World, tmp_path: Path) -> None:
    """Tasks of a large application are restored one after the other."""
    for partition, key in ((0, b"k"), (1, b"l")):
        world.write("app-counts-changelog", (7).to_bytes(8, "big"), key=key, partition=partition)
    steps = Steps(world, counting(), tmp_path, dsl_store_suppliers_class="in_memory")
    steps.membership.round({B: [tp("in-1")]})
    ask_again(steps, until_s=8)
    assert steps.tasks == {"0_1": "RESTORING"}
    steps.membership.round({A: [tp("in-0")], B: [tp("in-1")]})
    ask_again(steps, until_s=4)
    assert steps.tasks == {"0_0": "RESTORING", "0_1": "RUNNING"}
    ask_again(steps, until_s=8)
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RUNNING"}


def test_answer_that_changes_for_one_partition_is_not_believed_for_another(world: World, tmp_path: Path) -> None:
    steps = Steps(world, copying(), tmp_path)
    both = {A: [tp("in-0")], B: [tp("in-1")]}
    steps.run(both)
    for partition in (0, 1):
        world.write("in", *[b"x"] * 40, partition=partition)
    count(steps, 0)
    assert [world.committed[tp(f"in-{partition}")].offset for partition in (0, 1)] == [40, 40]
    steps.membership.round({})
    world.committed[tp("in-0")] = OffsetAndMetadata(2)
    steps.membership.round(both)
    for offset in range(20):
        world.committed[tp("in-1")] = OffsetAndMetadata(offset)
        ask_again(steps, until_s=1)
        assert steps.tasks == {"0_0": "RESTORING", "0_1": "RESTORING"}
    world.committed[tp("in-0")] = world.committed[tp("in-1")] = OffsetAndMetadata(40)
    ask_again(steps, until_s=2)
    assert steps.consumer.assigned[-1] == {tp("in-0"): 40, tp("in-1"): 40}


def test_what_was_believed_against_the_disk_is_not_doubted_when_the_task_comes_back(
    counter: Callable[..., Steps], world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Offsets expire while the group has no members, and no new records arrive."""
    steps = counter(dsl_store_suppliers_class="rocksdb")
    steps.run(ONE)
    count(steps, 5)
    steps.close()
    steps.instance.directory.close()
    world.committed.clear()
    steps = counter(dsl_store_suppliers_class="rocksdb", auto_offset_reset="latest")
    steps.membership.round(ONE)
    ask_again(steps, until_s=12)
    assert steps.tasks == {"0_0": "RUNNING"}
    assert TOLD in caplog.text
    caplog.clear()
    steps.membership.round({})
    steps.membership.round(ONE)
    ask_again(steps, until_s=2)
    assert steps.tasks == {"0_0": "RUNNING"}
    assert TOLD not in caplog.text
    steps.close()
    steps.instance.directory.close()


def test_first_task_of_an_application_is_not_doubted(
    counter: Callable[..., Steps], caplog: pytest.LogCaptureFixture
) -> None:
    steps = counter()
    steps.run(ONE)
    assert steps.thread.state is ThreadState.RUNNING
    assert TOLD not in caplog.text


def test_other_partitions_of_a_doubted_answer_wait_as_well(world: World, tmp_path: Path) -> None:
    """One partition's answer is from before the end of the coordinator's log, so the others may be, too."""
    steps = Steps(world, copying(), tmp_path)
    steps.run(ONE)
    count(steps, 5)
    world.committed[tp("in-1")] = OffsetAndMetadata(3)
    steps.membership.round({})
    world.committed[tp("in-0")], committed = OffsetAndMetadata(2), world.committed[tp("in-0")]
    steps.membership.round({A: [tp("in-0")], B: [tp("in-1")]})
    ask_again(steps, until_s=3)
    assert steps.tasks == {"0_0": "RESTORING", "0_1": "RESTORING"}
    world.committed[tp("in-0")] = committed
    world.committed[tp("in-1")] = OffsetAndMetadata(8)
    ask_again(steps, until_s=1)
    assert steps.consumer.assigned[-1] == {tp("in-0"): 5, tp("in-1"): 8}


def test_state_that_is_restored_from_the_beginning_says_nothing_of_what_was_committed(
    counter: Callable[..., Steps], world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A reset of the application deletes its changelogs, but not the state directories of all members."""
    world.topic_ids["app-counts-changelog"] = "first"
    steps = counter(dsl_store_suppliers_class="rocksdb")
    steps.run(ONE)
    count(steps, 5)
    steps.close()
    steps.instance.directory.close()
    world.records(tp("app-counts-changelog-0")).clear()
    world.topic_ids["app-counts-changelog"] = "second"
    world.committed.clear()
    steps = counter(dsl_store_suppliers_class="rocksdb")
    steps.membership.round(ONE)
    ask_again(steps, until_s=2)
    assert steps.tasks == {"0_0": "RUNNING"}
    assert TOLD not in caplog.text
    steps.close()
    steps.instance.directory.close()


def test_table_is_read_on_when_the_group_has_committed_more_than_it_was_said_to_have(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic is the table's changelog, and is read for the table up to the committed offset."""
    builder = StreamsBuilder()
    table = builder.table("in", key=serdes.BYTES, value=serdes.BYTES, materialized=Materialized("copy"))
    table.to_stream().to("out", key=serdes.BYTES, value=serdes.BYTES)
    for key in (b"a", b"b", b"c", b"d"):
        world.write("in", key, key=key)
    topology = builder.build({"topology.optimization": "all"})
    steps = Steps(world, topology, tmp_path, topology_optimization="all", statestore_cache_max_bytes=0)
    world.committed[tp("in-0")] = OffsetAndMetadata(1)
    steps.membership.answers = False
    steps.membership.round(ONE)
    ask_again(steps, until_s=1)
    world.committed[tp("in-0")] = OffsetAndMetadata(3)
    steps.membership.answers = True
    steps.membership.answer()
    ask_again(steps, until_s=2)
    assert steps.tasks == {"0_0": "RUNNING"}
    assert "offset 3 of in-0, beyond the records in its tables; reading them before it starts" in caplog.text
    steps.turn(2)
    (task_,) = steps.parts.table.running()
    copy = task_.stores.store("copy")
    assert all(copy.get(key) is not None for key in (b"a", b"b", b"c", b"d"))
    assert [record.key() for number in (0, 1) for record in world.records(tp(f"out-{number}"))] == [b"d"]


def test_table_whose_offsets_were_reset_is_doubted_once(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its files claim a higher committed offset than the group has now, until the records are processed again."""
    builder = StreamsBuilder()
    builder.table("in", key=serdes.BYTES, value=serdes.BYTES, materialized=Materialized("copy"))
    topology = builder.build({"topology.optimization": "all"})
    world.write("in", *[b"x"] * 40)

    def started(**options: Any) -> Steps:
        steps = Steps(
            world, topology, tmp_path, topology_optimization="all", dsl_store_suppliers_class="rocksdb", **options
        )
        steps.membership.round(ONE)
        return steps

    def end(steps: Steps) -> None:
        steps.close()
        steps.instance.directory.close()

    steps = started()
    steps.turn(4)
    end(steps)
    assert world.committed[tp("in-0")].offset == 40
    world.committed[tp("in-0")] = OffsetAndMetadata(2)
    steps = started(max_poll_records=1)
    ask_again(steps, until_s=18)
    assert steps.tasks == {"0_0": "RUNNING"}
    assert TOLD in caplog.text
    end(steps)
    assert 2 < world.committed[tp("in-0")].offset < 39
    caplog.clear()
    steps = started()
    steps.turn(4)
    assert steps.tasks == {"0_0": "RUNNING"}
    assert not [record for record in caplog.records if "requesting the offsets again" in record.getMessage()]
    end(steps)
