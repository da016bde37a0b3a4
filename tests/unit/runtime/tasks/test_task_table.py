"""All combinations of a thread's tasks and a new assignment, recycling, and errors on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streams_protocol.types import TaskId
from streams_py.errors import LockError, StateError, TaskCorruptedError, TaskMigratedError
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.task import Task
from streams_py.runtime.tasks.task_table import TaskTable
from tests.support.runtime.world import Steps, World, counting, task, tp

ONE = task("0_0")
INPUT, CHANGELOG = tp("in-0"), tp("app-counts-changelog-0")
PARTS = frozenset({INPUT})


@pytest.fixture
def world() -> World:
    made = World(**{"in": 2, "out": 2, "app-counts-changelog": 2})
    made.write("app-counts-changelog", (1).to_bytes(8, "big"))
    made.committed[tp("in-0")] = made.committed[tp("in-1")] = OffsetAndMetadata(0)
    return made


@pytest.fixture
def steps(world: World, tmp_path: Path) -> Steps:
    return Steps(world, counting(), tmp_path)


def only(table: TaskTable) -> Task:
    (found,) = table.all()
    return found


# -- existing: how to get a task into each place ------------------------------------------------------------------


def nothing(steps: Steps) -> None:
    steps.parts.table.assign({}, {})


def pending(steps: Steps) -> None:
    steps.parts.table.assign({ONE: PARTS}, {})


def restoring(steps: Steps) -> None:
    pending(steps)
    steps.parts.table.initialize_pending()


def restored(steps: Steps) -> None:
    restoring(steps)
    steps.restore()
    assert len(steps.parts.table.restored()) == 1


def running(steps: Steps) -> None:
    restored(steps)
    active = only(steps.parts.table)
    assert isinstance(active, ActiveTask)
    steps.parts.table.start(active, {})


def suspended(steps: Steps) -> None:
    running(steps)
    only(steps.parts.table).suspend()


def failed(steps: Steps) -> None:
    restoring(steps)
    steps.fail_restoration(only(steps.parts.table).restoring, StateError("disk on fire"))


def pending_standby(steps: Steps) -> None:
    steps.parts.table.assign({}, {ONE: PARTS})


def standby(steps: Steps) -> None:
    pending_standby(steps)
    steps.parts.table.initialize_pending()
    steps.restore()


def recycled_pending(steps: Steps) -> None:
    """Return a standby recycled from an active task: its stores are open, and the updater does not have it yet."""
    suspended(steps)
    steps.parts.table.assign({}, {ONE: PARTS})


PLACES: dict[str, Callable[[Steps], None]] = {
    place.__name__: place
    for place in (pending, restoring, restored, running, suspended, failed, pending_standby, standby, recycled_pending)
}
ACTIVE_PLACES = ("pending", "restoring", "restored", "running", "suspended", "failed")
OPEN_PLACES = ("restoring", "restored", "running", "suspended", "standby", "recycled_pending", "failed")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("wish", ["active", "standby", "nothing"])
def test_existing_task_is_kept_recycled_or_closed_as_wanted(steps: Steps, place: str, wish: str) -> None:
    table = steps.parts.table
    PLACES[place](steps)
    before = only(table)
    stores = before.stores
    active = {ONE: PARTS} if wish == "active" else {}
    table.assign(active, {ONE: PARTS} if wish == "standby" else {})
    if wish == "nothing":
        assert table.all() == []
        assert not stores.is_open
        assert before.state.value == "CLOSED"
        assert steps.instance.directory.owner_of(ONE) is None
        return
    after = only(table)
    same_kind = (place in ACTIVE_PLACES) == (wish == "active")
    assert after.is_active == (wish == "active")
    if same_kind:
        assert after is before
        assert after.state.value == {"suspended": "RESTORING"}.get(place, before.state.value)
    else:
        assert after is not before
        assert before.state.value == "CLOSED"
        assert after.state.value == "CREATED"
    # The stores stay open, and are the same objects: nothing is read again.
    if place in OPEN_PLACES:
        assert after.stores is stores
        assert stores.is_open
        assert stores.restore_position(CHANGELOG) == (1 if place not in ("restoring", "failed") else -2)


@pytest.mark.parametrize("wish", ["active", "standby"])
def test_new_task_waits_to_be_initialised(steps: Steps, wish: str) -> None:
    nothing(steps)
    steps.parts.table.assign({ONE: PARTS} if wish == "active" else {}, {ONE: PARTS} if wish == "standby" else {})
    assert only(steps.parts.table).state.value == "CREATED"
    assert not steps.parts.table.all_ready()


@pytest.mark.parametrize("place", ["restoring", "restored", "running", "suspended", "pending"])
def test_kept_task_reads_other_partitions_when_those_changed(steps: Steps, place: str) -> None:
    table = steps.parts.table
    PLACES[place](steps)
    before = only(table)
    more = PARTS | {tp("in-1")}
    table.assign({ONE: more}, {})
    assert only(table) is before
    for grown, _ in table.growing():
        table.grow(grown)
    assert before.input_partitions == more
    steps.turn(3)
    assert only(table) in table.running()


def test_standby_without_a_logged_store_is_not_made(world: World, tmp_path: Path) -> None:
    from tests.support.runtime.world import copying

    steps = Steps(world, copying(), tmp_path)
    steps.parts.table.assign({}, {ONE: PARTS})
    assert steps.parts.table.all() == []
    assert steps.parts.table.all_ready()


# -- recycling ---------------------------------------------------------------------------------------------------


def test_contents_survive_from_standby_to_active_and_back_without_reading_again(world: World, steps: Steps) -> None:
    steps.membership.round({}, {ONE: [INPUT]})
    steps.turn(3)
    assert steps.parts.table.all()[0].stores.store("counts").get("k") is not None
    steps.run({ONE: [INPUT]})
    world.write("in", b"a", b"b", key=b"k")
    steps.turn(2)
    active = only(steps.parts.table)
    assert active.stores.store("counts").get("k")[0] == 3
    reads = [a for a in steps.restore_consumer.assigned if a.get(CHANGELOG) == -2]
    steps.membership.round({}, {ONE: [INPUT]})
    steps.turn(3)
    kept = only(steps.parts.table)
    assert not kept.is_active
    assert kept.stores is active.stores
    assert kept.stores.store("counts").get("k")[0] == 3
    assert [a for a in steps.restore_consumer.assigned if a.get(CHANGELOG) == -2] == reads


@pytest.mark.parametrize("wish", ["standby", "nothing"])
def test_uncommitted_records_are_never_handed_on(world: World, steps: Steps, wish: str) -> None:
    """Under exactly-once the transaction would contain their results, but not their offsets."""
    running(steps)
    world.write("in", b"a")
    active = only(steps.parts.table)
    assert isinstance(active, ActiveTask)
    active.add_records(INPUT, world.records(INPUT))
    assert active.process(1) == 1
    with pytest.raises(TaskMigratedError, match="uncommitted"):
        steps.parts.table.assign({}, {ONE: PARTS} if wish == "standby" else {})
    assert active.state.value == "CLOSED"
    assert not active.stores.is_open
    assert steps.parts.table.all() == []


# -- trouble -----------------------------------------------------------------------------------------------------


def test_task_waits_with_growing_pauses_when_its_directory_is_locked(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="streams_py")
    monkeypatch.setattr("random.uniform", lambda low, high: 1.0)
    steps = Steps(world, counting(), tmp_path, dsl_store_suppliers_class="rocksdb")
    assert steps.instance.directory.lock(ONE, "somebody else")
    pending(steps)
    table, tried = steps.parts.table, []
    waiting = only(table)
    initialize = waiting.initialize

    def counted() -> None:
        tried.append(world.clock.now_ms())
        initialize()

    waiting.initialize = counted  # type: ignore[method-assign]
    start = world.clock.now_ms()
    for _ in range(400):
        table.initialize_pending()
        world.clock.advance(10)
    assert [at - start for at in tried] == [0, 50, 150, 350, 750, 1550, 2550, 3550]
    assert caplog.text.count("task 0_0 waits for its directory") == 1
    steps.instance.directory.unlock(ONE, "somebody else")
    world.clock.advance(10_000)
    table.initialize_pending()
    assert waiting.state.value == "RESTORING"
    steps.close()


@pytest.mark.parametrize("others_run", [False, True])
def test_running_tasks_wait_for_no_more_than_one_task_whose_stores_take_long_to_open(
    world: World, steps: Steps, others_run: bool
) -> None:
    if others_run:
        running(steps)
    others = {task(f"0_{number}"): frozenset({tp(f"in-{number}")}) for number in (1, 2, 3)}
    table = steps.parts.table
    table.assign(({ONE: PARTS} if others_run else {}) | others, {})

    def slow(waiting: Task) -> Callable[[], None]:
        initialize = waiting.initialize
        return lambda: (world.clock.advance(20), initialize())[1]

    opening = [waiting for waiting in table.all() if waiting.id in others]
    for waiting in opening:
        waiting.initialize = slow(waiting)  # type: ignore[method-assign]
    opened = []
    while not all(waiting.stores.is_open for waiting in opening):
        table.initialize_pending()
        opened.append(sum(waiting.stores.is_open for waiting in opening))
    assert opened == ([1, 2, 3] if others_run else [3])


def test_error_of_initialising_a_task_is_raised_unless_it_is_a_lock(steps: Steps) -> None:
    pending(steps)
    waiting = only(steps.parts.table)

    def broken() -> None:
        raise StateError("no space left")

    waiting.initialize = broken  # type: ignore[method-assign]
    with pytest.raises(StateError, match="no space"):
        steps.parts.table.initialize_pending()
    assert steps.parts.table.all() == [waiting]

    def locked() -> None:
        raise LockError("taken")

    waiting.initialize = locked  # type: ignore[method-assign]
    steps.parts.table.initialize_pending()
    assert steps.parts.table.all() == [waiting]


def two_running(steps: Steps) -> list[Task]:
    steps.run({task("0_0"): [tp("in-0")], task("0_1"): [tp("in-1")]})
    return sorted(steps.parts.table.all(), key=lambda one: one.id)


def test_all_tasks_are_dealt_with_before_the_worst_error_is_raised(steps: Steps) -> None:
    first, second = two_running(steps)

    def broken() -> None:
        raise StateError("cannot flush")

    first.close_clean = broken  # type: ignore[method-assign]
    with pytest.raises(StateError, match="cannot flush"):
        steps.parts.table.assign({}, {task("0_1"): frozenset({tp("in-1")})})
    assert first.state.value == second.state.value == "CLOSED"
    assert steps.tasks == {"0_1 standby": "CREATED"}


def test_new_tasks_are_there_although_closing_an_old_one_has_corrupted_others(steps: Steps) -> None:
    """A record that a processor wrote on close may raise the error of a rejected record of any task."""
    first, second = two_running(steps)

    suspend = first.suspend

    def refused() -> None:
        first.suspend = suspend  # type: ignore[method-assign]
        suspend()
        raise TaskCorruptedError("a record was refused", {second.id: ()})

    first.suspend = refused  # type: ignore[method-assign]
    with pytest.raises(TaskCorruptedError):
        steps.parts.table.assign({second.id: frozenset({tp("in-1")})}, {first.id: frozenset({tp("in-0")})})
    assert steps.tasks == {"0_0 standby": "CREATED", "0_1": "RUNNING"}


def test_corruption_of_several_tasks_is_one_error(steps: Steps) -> None:
    steps.parts.table.assign({task("0_0"): frozenset({tp("in-0")}), task("0_1"): frozenset({tp("in-1")})}, {})
    steps.parts.table.initialize_pending()
    for one in steps.parts.table.all():
        steps.fail_restoration(
            one.restoring, TaskCorruptedError(f"bad {one.id}", {one.id: one.stores.changelog_partitions})
        )
    with pytest.raises(TaskCorruptedError) as caught:
        steps.parts.table.raise_failed()
    assert caught.value.tasks.keys() == {task("0_0"), task("0_1")}
    assert len(steps.parts.table.all()) == 2  # to be revived


def test_fatal_error_wins_over_migration_and_migration_over_corruption(steps: Steps) -> None:
    steps.parts.table.assign({TaskId(0, n): frozenset({tp(f"in-{n}")}) for n in (0, 1)}, {})
    steps.parts.table.initialize_pending()
    first, second = steps.parts.table.all()
    steps.fail_restoration(first.restoring, TaskCorruptedError("bad", {first.id: ()}))
    steps.fail_restoration(second.restoring, TaskMigratedError("gone"))
    with pytest.raises(TaskMigratedError):
        steps.parts.table.raise_failed()


def test_task_whose_start_failed_is_still_closed_in_the_end(steps: Steps) -> None:
    restored(steps)
    found = only(steps.parts.table)
    assert isinstance(found, ActiveTask)

    def broken(committed: object) -> None:
        raise ZeroDivisionError("init of a processor")

    found.complete_restoration = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(ZeroDivisionError):
        steps.parts.table.start(found, {})
    assert steps.parts.table.all() == [found]
    steps.parts.table.close_all(clean=False)
    assert not found.stores.is_open
    assert steps.instance.directory.owner_of(ONE) is None


def test_tasks_are_closed_even_when_one_of_them_fails(steps: Steps) -> None:
    first, second = two_running(steps)

    def broken() -> None:
        raise ZeroDivisionError("close of a processor")

    first.suspend = broken  # type: ignore[method-assign]
    errors = steps.parts.table.close_all(clean=True)
    assert [type(error) for error in errors] == [ZeroDivisionError]
    assert not first.stores.is_open
    assert second.state.value == "CLOSED"


@pytest.mark.parametrize("place", ["restoring", "restored", "running"])
def test_revoked_task_is_found_wherever_it_is(steps: Steps, place: str) -> None:
    PLACES[place](steps)
    revoked = steps.parts.table.revoked([ONE, task("0_1")])
    assert [one.id for one in revoked] == ([ONE] if place == "running" else [])
    assert only(steps.parts.table).state.value == ("RUNNING" if place == "running" else "SUSPENDED")
    assert not steps.updater.tasks()


def test_running_task_that_gets_a_partition_continues_and_reads_it_once_it_is_known_from_where(steps: Steps) -> None:
    """A new topic matches the pattern that the task reads."""
    table = steps.parts.table
    running(steps)
    task = only(table)
    assert isinstance(task, ActiveTask)
    more = PARTS | {tp("in-7")}
    table.assign({ONE: more}, {})
    assert task.input_partitions == PARTS
    assert not table.all_ready()
    assert table.growing() == [(task, more - PARTS)]
    table.grow(task)
    assert task.input_partitions == more
    assert table.all_ready()
    table.assign({ONE: more}, {})
    assert table.all_ready()


@pytest.mark.parametrize("then", ["fewer", "nothing"])
def test_partition_that_a_running_task_waits_for_is_forgotten_when_it_is_taken_away(steps: Steps, then: str) -> None:
    table = steps.parts.table
    running(steps)
    table.assign({ONE: PARTS | {tp("in-7")}}, {})
    table.assign({ONE: PARTS} if then == "fewer" else {}, {})
    assert table.growing() == []
    assert table.all_ready()


def test_partition_that_a_running_task_waits_for_is_read_when_the_task_has_started_over(steps: Steps) -> None:
    table = steps.parts.table
    running(steps)
    more = PARTS | {tp("in-7")}
    table.assign({ONE: more}, {})
    table.revive({ONE: ()})
    assert only(table).input_partitions == more
    assert table.growing() == []


# -- rejected records ---------------------------------------------------------------------------------------------


def test_every_running_task_checks_the_sends_and_one_is_enough_for_new_records(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps.run({task("0_0"): [tp("in-0")], task("0_1"): [tp("in-1")]})
    answers = {task("0_0"): True, task("0_1"): False}
    asked: list[TaskId] = []

    def check_sends(self: ActiveTask) -> bool:
        asked.append(self.id)
        return answers[self.id]

    monkeypatch.setattr(ActiveTask, "check_sends", check_sends)
    table, producer = steps.parts.table, steps.parts.producer
    assert table.check_sends(producer)
    answers[task("0_0")] = False
    assert not table.check_sends(producer)
    assert asked == [task("0_0"), task("0_1")] * 2


def test_producer_itself_raises_the_error_of_a_send_when_no_task_is_left(steps: Steps) -> None:
    producer = steps.parts.producer
    producer.check = lambda: 1 // 0  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(ZeroDivisionError):
        steps.parts.table.check_sends(producer)
