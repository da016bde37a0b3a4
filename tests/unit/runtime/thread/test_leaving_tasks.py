"""Only a returning task waits until the files of its predecessor are closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams_py.errors import StateError
from streams_py.ports import OffsetAndMetadata
from streams_py.state.disk.background_close import BackgroundWork
from streams_py.state.disk.database import TaskDatabase
from tests.support.runtime.world import Steps, World, counting, task, tp
from tests.support.waiting import PATIENCE_S, until

GOES, STAYS = task("0_0"), task("0_1")
BOTH = {GOES: [tp("in-0")], STAYS: [tp("in-1")]}
ONE = {STAYS: [tp("in-1")]}


class Held:
    """Blocks the close of a database."""

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self.threads: list[str] = []


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    made = Held()
    close = TaskDatabase._close  # the step that takes long for a large database

    def slow(database: TaskDatabase) -> None:
        if not database._is_closed:  # the first of several calls
            made.threads.append(threading.current_thread().name)
            made.begun.set()
            assert made.released.wait(PATIENCE_S)
        close(database)
        error, made.error = made.error, None
        if error is not None:
            raise error

    monkeypatch.setattr(TaskDatabase, "_close", slow)  # see above
    yield made
    made.released.set()


@pytest.fixture
def world() -> World:
    made = World(**{"in": 2, "out": 2, "app-counts-changelog": 2})
    made.committed[tp("in-0")] = made.committed[tp("in-1")] = OffsetAndMetadata(0)
    return made


@pytest.fixture
def steps(world: World, tmp_path: Path) -> Steps:
    """Two tasks run, with stores on disk and data in memory."""
    made = Steps(world, counting(), tmp_path, dsl_store_suppliers_class="rocksdb")
    made.run(BOTH)
    for partition in BOTH.values():
        world.write(partition[0].topic, b"a", key=b"k", partition=partition[0].partition)
    made.turn(2)
    world.clock.advance(2_000)
    made.turn(2)
    made.waits_for_closing = False
    return made


def owner(steps: Steps) -> str | None:
    return steps.instance.directory.owner_of(GOES)


def count(steps: Steps, name: str) -> int:
    (found,) = [one for one in steps.parts.table.all() if str(one.id) == name]
    return found.stores.store("counts").get("k")[0]  # type: ignore[no-any-return]


def test_others_continue_while_a_task_is_closed(world: World, steps: Steps, held: Held) -> None:
    (goes,) = [one for one in steps.parts.table.all() if one.id == GOES]
    steps.membership.round(ONE)
    steps.turn(2)
    assert held.begun.wait(PATIENCE_S)
    assert steps.tasks == {"0_1": "RUNNING"}
    assert goes.state.value == "SUSPENDED"
    world.write("in", b"a", key=b"k", partition=1)
    steps.turn(2)
    assert count(steps, "0_1") == 2
    assert owner(steps) == steps.thread.name
    held.released.set()
    until(lambda: (steps.turn(), goes.state.value == "CLOSED")[1], "it is closed")
    assert owner(steps) is None
    assert held.threads == ["state-close"]
    steps.close()


@pytest.mark.parametrize("standby", [False, True])
def test_task_that_comes_back_waits_until_it_is_closed(steps: Steps, held: Held, standby: bool) -> None:
    steps.membership.round(ONE)
    steps.turn(2)
    assert held.begun.wait(PATIENCE_S)
    if standby:
        steps.membership.round(ONE, {GOES: BOTH[GOES]})
    else:
        steps.membership.round(BOTH)
    steps.turn(4)
    name = "0_0 standby" if standby else "0_0"
    assert steps.tasks == {name: "CREATED", "0_1": "RUNNING"}
    held.released.set()
    until(lambda: (steps.turn(), steps.tasks[name] == "RUNNING")[1], "it is back")
    assert count(steps, "0_0") == 1
    assert not steps.errors
    steps.close()


@pytest.mark.parametrize("ends", [False, True])
def test_task_that_comes_back_and_goes_again_meanwhile_forgets_nothing(steps: Steps, held: Held, ends: bool) -> None:
    steps.membership.round(ONE)
    steps.turn(2)
    assert held.begun.wait(PATIENCE_S)
    steps.membership.round(BOTH)
    steps.turn(2)
    steps.membership.round(ONE)
    steps.turn(2)
    assert steps.tasks == {"0_1": "RUNNING"}
    assert owner(steps) == steps.thread.name, "its files are still open"
    if ends:
        held.released.set()
        until(lambda: (steps.turn(), owner(steps) is None)[1], "it is closed")
    else:
        steps.membership.round(BOTH)
        steps.turn(2)
        assert steps.tasks == {"0_0": "CREATED", "0_1": "RUNNING"}
        held.released.set()
        until(lambda: (steps.turn(), steps.tasks["0_0"] == "RUNNING")[1], "it is back")
    assert not steps.errors
    steps.close()


def test_task_that_is_being_closed_is_reported_as_far_as_it_was(steps: Steps, held: Held) -> None:
    steps.membership.round(ONE)
    steps.turn(2)
    assert held.begun.wait(PATIENCE_S)
    assert steps.membership.round(ONE).task_offset_sums[GOES] == 0
    steps.turn(2)
    assert owner(steps) == steps.thread.name
    held.released.set()
    steps.close()


def test_end_of_a_thread_waits_for_what_is_being_closed(
    steps: Steps, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps.membership.round(ONE)
    steps.turn(2)
    assert held.begun.wait(PATIENCE_S)
    wait = BackgroundWork.wait

    def released(work: BackgroundWork) -> None:
        held.released.set()
        wait(work)

    monkeypatch.setattr(BackgroundWork, "wait", released)
    steps.close()
    assert owner(steps) is None
    reopened = TaskDatabase(steps.instance.directory.task_path(GOES), [])  # it is not open
    assert list(reopened.positions().values()) == [0]
    reopened.close()


def test_error_of_closing_ends_the_thread(steps: Steps, held: Held) -> None:
    steps.membership.round(ONE)
    steps.turn(2)
    assert held.begun.wait(PATIENCE_S)
    held.error = OSError("the disk is full")
    held.released.set()
    with pytest.raises(StateError, match=r"0_0.rocksdb: the disk is full"):
        until(steps.turn, "an error")
    assert owner(steps) is None
    steps.close()
