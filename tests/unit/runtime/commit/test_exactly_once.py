"""Exactly-once after any failure in a commit: every result exists once, and stores equal their changelogs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError, StateError, TaskCorruptedError, TaskMigratedError
from streams_py.runtime.thread.states import ThreadState
from streams_py.state.disk.database import TaskDatabase
from tests.support.runtime.world import Steps, World, counting, task, tp

A, B = task("0_0"), task("0_1")
BOTH = {A: [tp("in-0")], B: [tp("in-1")]}
KEYS = (b"a", b"b")


class KilledError(BaseException):
    """The process is killed at this point."""


@pytest.fixture
def world() -> World:
    return World(**{"in": 2, "out": 2, "app_counts_changelog": 2})


@pytest.fixture(params=[0, 1 << 20], ids=["uncached", "cached"])
def open_steps(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Callable[[], Steps]:
    return lambda: Steps(
        world,
        counting(),
        tmp_path,
        dsl_store_suppliers_class="rocksdb",
        statestore_cache_max_bytes=request.param,
        processing_guarantee="exactly_once_v2",
    )


def kill(steps: Steps) -> None:
    """Reduce the state to what SIGKILL leaves: committed data of the database, and no locks."""
    for one in steps.parts.table.all():
        database: Any = one.stores._database  # type: ignore[attr-defined]  # the real ones
        if database is not None:
            database.close()
    steps.instance.directory.close()


def feed(world: World, *keys: bytes) -> None:
    for key in keys:
        world.write("in", b"x", key=key, partition=KEYS.index(key))


def commit(steps: Steps) -> None:
    """Iterate until everything is processed and committed."""
    for _ in range(8):
        steps.world.clock.sleep_ms(1_001)
        steps.turn()


def check(steps: Steps, world: World) -> None:
    for number, key in enumerate(KEYS):
        fed = len(world.records(TopicPartition("in", number)))
        for topic in ("out", "app-counts-changelog"):
            logs = [log for partition, log in world.log.records.items() if partition.topic == topic]
            found = [
                int.from_bytes(record.value() or b"", "big") for log in logs for record in log if record.key() == key
            ]
            assert found == sorted(set(found)), topic  # no record twice or out of order
            assert (found[-1] if found else 0) == fed
        (running,) = [one for one in steps.parts.table.running() if one.id.partition == number]
        stored = running.stores.store("counts").get(key.decode())
        assert (0 if stored is None else stored[0]) == fed
        assert world.committed[TopicPartition("in", number)].offset == fed


@contextlib.contextmanager
def failing_store(error: BaseException, *, after: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let store commits fail before or after they have taken effect."""
    real = TaskDatabase.commit

    def broken(self: TaskDatabase, positions: Any, inputs: Any) -> None:
        if after:
            real(self, positions, inputs)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(TaskDatabase, "commit", broken)
        yield


def failing(steps: Steps, step: str, error: BaseException) -> None:
    """Let the next call of this step fail."""

    def at(now: str) -> None:
        if now == step:
            steps.producer.at = lambda _: None  # type: ignore[attr-defined]  # transactional ones have it
            raise error

    steps.producer.at = at  # type: ignore[attr-defined]


ABORTED = TaskCorruptedError("outcome unknown", {})
FENCED = TaskMigratedError("fenced")


@pytest.mark.parametrize("step", ["produce", "commit", "committed"])
@pytest.mark.parametrize("error", [KilledError(), ABORTED, FENCED], ids=["killed", "unknown outcome", "fenced"])
def test_every_effect_is_there_once_whatever_step_of_a_commit_fails(
    world: World, open_steps: Callable[[], Steps], step: str, error: BaseException
) -> None:
    steps = open_steps()
    steps.run(BOTH)
    feed(world, b"a", b"b", b"a")
    commit(steps)
    feed(world, b"a", b"b", b"b")
    failing(steps, step, error)
    with contextlib.suppress(KilledError):
        commit(steps)
    if isinstance(error, KilledError):
        kill(steps)
        steps = open_steps()
        steps.run(BOTH)
    elif isinstance(error, TaskMigratedError):
        assert ("join as a new member",) in world.diary
        steps.membership.lose()
        steps.run(BOTH)
    commit(steps)
    feed(world, b"a", b"b")
    commit(steps)
    check(steps, world)
    kill(steps)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", [KilledError(), StateError("disk full")], ids=["killed", "disk full"])
def test_store_that_could_not_follow_a_committed_transaction_catches_up_from_its_changelog(
    world: World, open_steps: Callable[[], Steps], error: BaseException, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = open_steps()
    steps.run(BOTH)
    feed(world, b"a", b"b")
    commit(steps)
    feed(world, b"a", b"b", b"b")
    with failing_store(error, after=after, monkeypatch=monkeypatch), pytest.raises(type(error)):
        commit(steps)
    kill(steps)
    steps = open_steps()
    steps.run(BOTH)
    feed(world, b"a", b"b")
    commit(steps)
    check(steps, world)
    kill(steps)


def test_offsets_and_results_of_all_tasks_are_one_transaction_of_the_generation(
    world: World, open_steps: Callable[[], Steps]
) -> None:
    steps = open_steps()
    steps.run(BOTH)
    assert ("initialize",) in world.diary
    assert steps.producer.transactional_id.startswith("app-")  # type: ignore[attr-defined]
    assert steps.producer.transactional_id.endswith("-1")  # type: ignore[attr-defined]
    feed(world, b"a", b"b")
    steps.turn()
    assert not any(partition.topic == "out" for partition in world.log.records)
    commit(steps)
    transactions = [entry for entry in world.diary if entry[0] == "transaction"]
    assert transactions == [("transaction", {tp("in-0"): 1, tp("in-1"): 1}, steps.membership.generation)]
    assert not any("commit" in entry[0] for entry in world.diary)
    kill(steps)


def test_revocation_commits_the_transaction_of_the_whole_thread(world: World, open_steps: Callable[[], Steps]) -> None:
    steps = open_steps()
    steps.run(BOTH)
    feed(world, b"a", b"b")
    steps.turn()
    steps.membership.round({A: [tp("in-0")]})
    steps.turn(4)
    transactions = [entry[:2] for entry in world.diary if entry[0] == "transaction"]
    assert transactions == [("transaction", {tp("in-0"): 1, tp("in-1"): 1})]
    steps.run(BOTH)
    feed(world, b"a", b"b")
    commit(steps)
    check(steps, world)
    kill(steps)


@pytest.mark.parametrize("error", [ABORTED, FENCED, BrokerUnavailableError("away")], ids=["unknown", "fenced", "away"])
def test_tasks_that_stay_start_over_too_when_a_revocation_cannot_commit(
    world: World, open_steps: Callable[[], Steps], error: Exception
) -> None:
    steps = open_steps()
    steps.run(BOTH)
    feed(world, b"a", b"b")
    steps.turn()
    failing(steps, "commit", error)
    steps.membership.round({A: [tp("in-0")]})
    if error is FENCED:
        steps.turn()
        steps.membership.lose()
    steps.turn(4)
    steps.run(BOTH)
    commit(steps)
    feed(world, b"a", b"b")
    commit(steps)
    check(steps, world)
    kill(steps)


@pytest.mark.parametrize("error", [ABORTED, BrokerUnavailableError("away")], ids=["unknown", "away"])
def test_what_a_revocation_could_not_commit_is_in_no_later_transaction(
    world: World, open_steps: Callable[[], Steps], error: Exception
) -> None:
    """The thread starts over only after the next revocation.

    That revocation would commit the same transaction without the offsets of the lost tasks.
    """
    steps = open_steps()
    steps.run(BOTH)
    feed(world, b"a", b"b")
    steps.turn()
    failing(steps, "commit", error)
    steps.membership.round({A: [tp("in-0")]})
    steps.membership.round({})
    steps.turn(4)
    steps.run(BOTH)
    commit(steps)
    feed(world, b"a", b"b")
    commit(steps)
    check(steps, world)
    kill(steps)


def test_nothing_is_restored_before_a_predecessors_transaction_is_ended(
    world: World, open_steps: Callable[[], Steps]
) -> None:
    steps = open_steps()
    world.away = True
    steps.membership.round(BOTH)
    steps.turn(2)
    assert set(steps.tasks.values()) == {"CREATED"}
    world.away = False
    steps.turn(4)
    assert steps.thread.state is ThreadState.RUNNING
    kill(steps)


def test_member_without_a_generation_commits_nothing(world: World, open_steps: Callable[[], Steps]) -> None:
    """A broker would accept it without fencing."""
    steps = open_steps()
    steps.run(BOTH)
    feed(world, b"a")
    steps.turn()
    steps.membership.group_metadata = lambda: None  # type: ignore[method-assign,assignment,return-value]
    commit(steps)
    assert tp("in-0") not in world.committed
    assert ("join as a new member",) in world.diary
    kill(steps)
