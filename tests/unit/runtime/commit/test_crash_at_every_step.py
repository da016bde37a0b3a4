"""A commit is interrupted at each of its steps: by a kill, by a broker that does not answer, by a failing file system.

Afterwards the state must be a committed state, and nothing may be lost. Under exactly-once nothing may exist twice.

The steps are all calls of the application to producer, group and file system while it commits, gives up a task, and
closes. They are counted, not listed, so a new step of the product is also interrupted.

"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError, StreamsError, TaskCorruptedError
from streams_py.ports import OffsetAndMetadata
from streams_py.state.directory import checkpoint
from streams_py.state.disk.background_close import BackgroundWork
from streams_py.state.disk.database import TaskDatabase
from tests.support.runtime.world import Steps, World, WorldProducer, WorldTransactions, counting, task, tp
from tests.support.runtime.world_membership import WorldMembership
from tests.support.waiting import until

A, B = task("0_0"), task("0_1")
BOTH = {A: [tp("in-0")], B: [tp("in-1")]}
KEYS = (b"a", b"b")
CHANGELOG = "app-counts-changelog"


class KilledError(BaseException):
    """The process is killed at this point."""


class Gate:
    """Every step passes the gate; one of them is stopped there."""

    def __init__(self, broken: int | None, fault: str, *, exact: bool) -> None:
        self.passed: list[str] = []
        self.is_open = True
        self._broken = broken
        self._fault = fault
        self._exact = exact

    def __call__(self, step: str) -> None:
        if self.is_open:
            return
        self.passed.append(step)
        if len(self.passed) - 1 == self._broken:
            error = self._error(step)
            try:
                raise error
            finally:
                del error  # otherwise its frames stay alive for some time, and with them open files

    def _error(self, step: str) -> BaseException:
        if self._fault == "kill":
            return KilledError(step)
        if self._fault == "file system":
            return OSError(errno.ENOSPC, "no space left on device")
        return TaskCorruptedError(f"{step}: outcome unknown", {}) if self._exact else BrokerUnavailableError(step)


class FaultyProducer(WorldProducer):
    """At-least-once: records reach the log only when they are flushed; after a crash the log has a prefix of them."""

    def __init__(self, world: FaultyWorld) -> None:
        super().__init__(world)
        self._gate = world.gate
        self._sent: list[tuple[Any, ...]] = []
        self.produce = self._send

    def _send(self, *record: Any) -> None:
        self._gate("producer: send")
        self._sent.append(record)

    def flush(self, timeout_ms: int) -> int:
        self._gate("producer: flush")
        self.arrive(len(self._sent))
        self._gate("producer: flushed")
        return super().flush(timeout_ms)

    def arrive(self, count: int) -> None:
        for record in self._sent[:count]:
            self._produce(*record)
        self._sent.clear()

    def reset(self) -> None:
        super().reset()
        self._sent.clear()


class FaultyMembership(WorldMembership):
    def _commit(self, what: str, offsets: Any) -> None:
        self._world.gate("group: commit")  # type: ignore[attr-defined]  # a FaultyWorld
        super()._commit(what, offsets)
        self._world.gate("group: committed")  # type: ignore[attr-defined]


class FaultyWorld(World):
    def __init__(self, gate: Gate) -> None:
        super().__init__(**{"in": 2, "out": 2, "app_counts_changelog": 2})
        self.gate = gate
        self.databases: list[TaskDatabase] = []
        """All objects that the application has opened."""

    def producer(self, thread_name: str) -> FaultyProducer:
        self.producers[thread_name] = made = FaultyProducer(self)
        return made

    def transactional_producer(self, thread_name: str, transactional_id: str) -> WorldTransactions:
        made = super().transactional_producer(thread_name, transactional_id)
        made.at = lambda step: self.gate(f"producer: {step}")
        return made

    def membership(self, thread_name: str, thread_index: int, listener: Any) -> WorldMembership:
        self.memberships[thread_name] = made = FaultyMembership(self, listener)
        return made

    # -- what is known of it ---------------------------------

    def feed(self, *keys: bytes) -> None:
        for key in keys:
            self.write("in", b"x", key=key, partition=KEYS.index(key))

    def counts(self, topic: str, number: int) -> list[int]:
        """Return the counts for the key of an input partition, from a topic that has it in one partition."""
        logs = [log for at, log in self.log.records.items() if at.topic == topic]
        return [int.from_bytes(one.value() or b"", "big") for log in logs for one in log if one.key() == KEYS[number]]

    def committed_of(self, number: int) -> int:
        return self.committed.get(TopicPartition("in", number), OffsetAndMetadata(0)).offset


@contextlib.contextmanager
def faulty_files(world: FaultyWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let writes to databases and checkpoint files pass the gate, before and after each write."""
    gate, opened, attempt = world.gate, TaskDatabase.__init__, TaskDatabase._attempt  # every write passes `_attempt`
    is_done_now = BackgroundWork.is_done

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            gate(f"file: {name}")
            result = real(*arguments, **options)
            gate(f"file: {name} done")
            return result

        return call

    def open_database(self: TaskDatabase, *arguments: Any, **options: Any) -> None:
        opened(self, *arguments, **options)
        world.databases.append(self)

    def is_done(self: BackgroundWork, work: Callable[[], None]) -> bool:
        """Poll until the work is done: each poll is a step, and their number would depend on the speed of the disk."""
        until(lambda: is_done_now(self, work), "the work on a background thread is done")
        return True

    with monkeypatch.context() as patch:
        patch.setattr(BackgroundWork, "is_done", is_done)
        patch.setattr(TaskDatabase, "__init__", open_database)
        # See above.
        patch.setattr(TaskDatabase, "_attempt", lambda self, action: attempt(self, watched("database", action)))
        patch.setattr(checkpoint, "replace_file", watched("write checkpoint", checkpoint.replace_file))
        patch.setattr(os, "fsync", watched("force", os.fsync))
        patch.setattr(os, "replace", watched("rename checkpoint", os.replace))
        yield


def end(steps: Steps, world: FaultyWorld, draw: random.Random) -> None:
    """Return the state after the process was killed: a prefix of the sent records, written files, and no locks."""
    world.gate.is_open = True
    if isinstance(steps.producer, FaultyProducer):
        steps.producer.arrive(draw.randint(0, len(steps.producer._sent)))
    for database in world.databases:
        database.close()
    world.databases.clear()
    steps.instance.directory.close()


def check_what_is_left(world: FaultyWorld, folder: Path, *, exact: bool) -> None:
    """Check that files equal their changelog up to their position, and that offsets do not exceed the output."""
    for number, key in enumerate(KEYS):
        changelog = TopicPartition(CHANGELOG, number)
        logged, out = world.counts(CHANGELOG, number), world.counts("out", number)
        database = TaskDatabase(str(folder / "app" / f"0_{number}"), ["counts"])
        position = database.positions().get(changelog, -1)
        stored = dict(database.store("counts").scan(None, None))
        database.close()
        assert position < len(logged)
        assert {name: int.from_bytes(value[8:], "big") for name, value in stored.items()} == (
            {} if position < 0 else {key: logged[position]}
        )
        for made in (logged[-1] if logged else 0, out[-1] if out else 0):
            assert made == world.committed_of(number) if exact else made >= world.committed_of(number)


def check_the_end(world: FaultyWorld, steps: Steps, *, exact: bool) -> None:
    """Check that every record was processed once, or at least once."""
    for number, key in enumerate(KEYS):
        fed = len(world.records(TopicPartition("in", number)))
        assert world.committed_of(number) == fed
        logged, out = world.counts(CHANGELOG, number), world.counts("out", number)
        for found in (logged, out):
            assert found == sorted(set(found))  # after starting over, the count continues from the changelog
            assert found[-1] == logged[-1]
            assert found[-1] == fed if exact else found[-1] >= fed
        (running,) = [one for one in steps.parts.table.running() if one.id.partition == number]
        stored = running.stores.store("counts").get(key.decode())
        assert stored is not None
        assert stored[0] == logged[-1]


def work(world: FaultyWorld, steps: Steps) -> None:
    """Iterate until everything is processed and committed."""
    for _ in range(8):
        world.clock.sleep_ms(1_001)
        steps.turn()


def commit_give_up_and_close(world: FaultyWorld, steps: Steps) -> None:
    world.feed(b"a", b"b", b"b")
    work(world, steps)
    world.feed(b"a", b"b")
    steps.turn()
    steps.membership.round({A: [tp("in-0")]})
    steps.turn(2)
    world.feed(b"a")
    steps.turn()
    steps.close()


def applies(fault: str, step: str) -> bool:
    return fault == "kill" or step.startswith("file") == (fault == "file system")


@pytest.mark.parametrize(
    ("fault", "cache"),
    [
        ("kill", 0),
        pytest.param("file system", 0, marks=pytest.mark.slow),
        pytest.param("broker", 0, marks=pytest.mark.slow),
        pytest.param("kill", 1 << 20, marks=pytest.mark.weekly),
    ],
)
@pytest.mark.parametrize("exact", [True, False], ids=["exactly once", "at least once"])
def test_nothing_is_lost_and_files_are_a_committed_state_whichever_step_is_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact: bool, fault: str, cache: int
) -> None:
    def run(broken: int | None) -> list[str]:
        """Run all steps; return their number."""
        gate = Gate(broken, fault, exact=exact)
        world, folder, draw = FaultyWorld(gate), tmp_path / str(broken), random.Random(broken)

        def begin() -> Steps:
            steps = Steps(
                world,
                counting(),
                folder,
                dsl_store_suppliers_class="rocksdb",
                statestore_cache_max_bytes=cache,
                processing_guarantee="exactly_once_v2" if exact else "at_least_once",
            )
            steps.run(BOTH)
            return steps

        with faulty_files(world, monkeypatch):
            steps = begin()
            world.feed(b"a", b"b", b"a")
            work(world, steps)
            with contextlib.suppress(KilledError, StreamsError):
                gate.is_open = False
                commit_give_up_and_close(world, steps)
            end(steps, world, draw)
            check_what_is_left(world, folder, exact=exact)
            steps = begin()
            world.feed(b"a", b"b")
            work(world, steps)
            check_the_end(world, steps, exact=exact)
            end(steps, world, draw)
        return gate.passed

    whole = run(None)
    assert {step.partition(":")[0] for step in whole} == {"producer", "file"} | (set() if exact else {"group"})
    for number, step in enumerate(whole):
        if applies(fault, step):
            assert run(number)[: number + 1] == whole[: number + 1]
