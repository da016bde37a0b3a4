"""A changelog is recreated while its task runs or is stopped: the state on disk belongs to another topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streams_protocol.types import TopicPartition
from streams_py.errors import StreamsError
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.thread.states import ThreadState
from tests.support.runtime.world import Steps, World, counting, task, tp

ONE = {task("0_0"): [tp("in-0")]}
TOPIC = "app-counts-changelog"


@pytest.fixture
def world() -> World:
    made = World(**{"in": 1, "out": 1, TOPIC: 1})
    made.topic_ids[TOPIC] = "first"
    return made


@pytest.fixture(params=["at_least_once", "exactly_once_v2"])
def started(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Callable[..., Steps]:
    def start(**more: str) -> Steps:
        options = {"dsl_store_suppliers_class": "rocksdb", "statestore_cache_max_bytes": 0}
        steps = Steps(world, counting(), tmp_path, processing_guarantee=request.param, **options, **more)
        steps.membership.round(ONE)
        steps.turn(8)
        assert steps.thread.state is ThreadState.RUNNING
        return steps

    return start


def count(steps: Steps, *keys: bytes) -> None:
    for key in keys:
        steps.world.write("in", b"x", key=key)
    for _ in range(6):
        steps.world.clock.sleep_ms(1_001)
        steps.turn()


def end(steps: Steps) -> None:
    steps.close()
    steps.instance.directory.close()


def recreate(world: World, *counts: tuple[bytes, int]) -> None:
    """Recreate the topic, with records that another client has written to it."""
    world.records(TopicPartition(TOPIC, 0)).clear()
    world.topic_ids[TOPIC] = "second"
    for key, number in counts:
        world.write(TOPIC, number.to_bytes(8, "big"), key=key)


def outputs(world: World, key: bytes) -> list[int]:
    return [int.from_bytes(r.value() or b"", "big") for r in world.records(TopicPartition("out", 0)) if r.key() == key]


def test_state_that_was_left_before_a_changelog_was_recreated_is_restored_from_the_new_one(
    started: Callable[..., Steps], world: World, caplog: pytest.LogCaptureFixture
) -> None:
    steps = started()
    count(steps, b"a", b"a", b"a", b"b")
    end(steps)
    recreate(world, (b"a", 1), (b"c", 1), (b"c", 2), (b"c", 3), (b"a", 2))
    with pytest.raises(StreamsError, match=r"app-counts-changelog-0 was deleted .* committed offset 4 of in-0"):
        started()
    steps = started(recreated_internal_topics="continue")
    assert "task 0_0: topic app-counts-changelog was deleted and created again since store counts" in caplog.text
    count(steps, b"a", b"b", b"c")
    assert [outputs(world, key)[-1] for key in (b"a", b"b", b"c")] == [3, 1, 4]
    end(steps)


def test_task_whose_changelog_is_recreated_under_it_says_so_and_keeps_what_it_has(
    started: Callable[[], Steps], world: World, caplog: pytest.LogCaptureFixture
) -> None:
    steps = started()
    count(steps, b"a", b"a", b"a", b"b")
    recreate(world)
    count(steps, b"a")
    count(steps, b"a")
    assert (
        caplog.text.count("task 0_0: changelog app-counts-changelog-0 continues at offset 0, but was already at 3") == 1
    )
    end(steps)
    steps = started()
    count(steps, b"a", b"b")
    assert outputs(world, b"a") == [1, 2, 3, 4, 5, 6]
    assert outputs(world, b"b") == [1, 2]
    assert "deleted and created again since" not in caplog.text
    end(steps)


def test_state_is_restored_from_a_changelog_recreated_after_a_reset(
    started: Callable[..., Steps], world: World
) -> None:
    """Without committed offsets nothing is lost: the input is processed again."""
    steps = started()
    count(steps, b"a", b"a", b"b")
    end(steps)
    recreate(world)
    world.committed.clear()
    steps = started()
    count(steps, b"a")
    assert outputs(world, b"a")[-3:] == [1, 2, 3]
    end(steps)


@pytest.mark.parametrize("kept", ["in_memory", "rocksdb"])
def test_store_that_starts_empty_behind_committed_offsets_is_a_warning(
    world: World, tmp_path: Path, kept: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.committed[tp("in-0")] = OffsetAndMetadata(3)
    world.write("in", b"x", b"x", b"x")
    steps = Steps(world, counting(), tmp_path, dsl_store_suppliers_class=kept)
    steps.run(ONE)
    assert "changelog app-counts-changelog-0 is empty, although the group has committed offset 3 of in-0" in caplog.text
    steps.close()


def test_new_application_is_not_warned_of_empty_changelogs(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps(world, counting(), tmp_path)
    steps.run(ONE)
    assert "is empty, although" not in caplog.text
    steps.close()
