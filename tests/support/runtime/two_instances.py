"""Two instances of one application in one world: tasks that move between them, and faults drawn from a seed.

Everything happens on the test's thread, step by step, so each seed gives one history. :meth:`TwoInstances.check` checks
the end of a history. Under exactly-once every result exists once and in order; otherwise nothing is lost. And every
store, including copies, equals its compacted changelog.

"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py import Punctuation, StreamsBuilder, Topology, key_value_store, serdes
from streams_py.errors import BrokerUnavailableError, StateError, TaskCorruptedError, TaskMigratedError
from streams_py.runtime.restore import updater
from streams_py.state.disk import bundles
from streams_py.state.disk.database import TaskDatabase
from streams_py.topology.declare.processor import Processor, Record
from tests.support.runtime.world import Steps, World, tp

_Positions: TypeAlias = Mapping[TopicPartition, int]
_TASKS = 3
_BOTH = (0, 1)
_TICKS = b"ticks"


class _KilledError(BaseException):
    """The process is killed at this point."""


class _Counting(Processor[bytes, bytes, bytes, int]):
    """Counts by key, and counts its own punctuations."""

    def init(self, context: Any) -> None:
        self._context, self._counts = context, context.get_state_store("counts")
        context.schedule(3_000, Punctuation.WALL_CLOCK_TIME, lambda now_ms: self._count(_TICKS))

    def _count(self, key: bytes) -> int:
        count = (self._counts.get(key) or 0) + 1
        self._counts.put(key, count)
        return int(count)

    def process(self, record: Record[bytes, bytes]) -> None:
        self._context.forward(Record(record.key, self._count(record.key), record.timestamp))


def _topology(kind: str, *, persistent: bool) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.BYTES, value=serdes.BYTES)
    if kind == "table":
        stream.group_by_key().count(store="counts").to_stream().to("out", key=serdes.BYTES, value=serdes.INT64)
        return builder.build()
    builder.add_state_store(
        key_value_store(
            "counts", key=serdes.BYTES, value=serdes.INT64, persistent=persistent, caching=kind == "cached store"
        )
    )
    counted = stream.process(_Counting, stores="counts")
    counted.to("out", key=serdes.BYTES, value=serdes.INT64)
    return builder.build()


class TwoInstances:
    """``log`` is the history of the seed so far."""

    def __init__(self, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(updater, "_RECORDS_MAX", 2)  # a restore takes many rounds
        monkeypatch.setattr(bundles, "_ENTRIES_MIN", 1)
        self.log: list[tuple[object, ...]] = []
        self._dice = dice = random.Random(seed)
        self._exactly_once = dice.random() < 0.6
        self._kind = dice.choice(["table", "store", "cached store"])
        self._is_tight = seed % 4 == 2  # no memory for uncommitted writes, also during rebalances
        self._persistent = dice.random() < 0.4 or self._is_tight  # opening files takes most of the time of these tests
        self._cache = dice.choice([0, 1 << 20])
        self._world = World(**{"in": _TASKS, "out": _TASKS, "app_counts_changelog": _TASKS})
        self._folder = folder
        self._full_in = 0  # number of store commits until the disk is full
        self._patch_disk(monkeypatch)
        self._owners: list[int | None] = [None] * _TASKS
        self._instances = [self._started(one) for one in _BOTH]

    def _patch_disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        commit = TaskDatabase.commit

        def commit_or_fail(database: TaskDatabase, positions: _Positions, inputs: _Positions) -> bool:
            self._full_in -= self._full_in > 0
            if self._full_in == 1:
                self._full_in = 0
                raise StateError("no space left on device")
            return commit(database, positions, inputs)

        monkeypatch.setattr(TaskDatabase, "commit", commit_or_fail)

    # -- instances --------------------------------------------------------------------------------------------------

    def _started(self, number: int) -> Steps:
        folder = self._folder / str(number)
        folder.mkdir(exist_ok=True)
        steps = Steps(
            self._world,
            _topology(self._kind, persistent=self._persistent),
            folder,
            dsl_store_suppliers_class="rocksdb" if self._persistent else "in_memory",
            statestore_cache_max_bytes=self._cache,
            processing_guarantee="exactly_once_v2" if self._exactly_once else "at_least_once",
        )
        if self._is_tight:
            # The memory of the machine sets this limit.
            steps.loop._pace._settings = replace(steps.loop._pace._settings, uncommitted_max_bytes=0)
        return steps

    def _restart(self, number: int) -> None:
        self._instances[number] = self._started(number)

    def _kill(self, number: int) -> None:
        """Return the state that SIGKILL leaves: committed data of the databases, and no locks."""
        killed = self._instances[number]
        for one in killed.parts.table.all():
            database: Any = one.stores._database  # type: ignore[attr-defined]  # the real ones
            if database is not None:
                database.close()
        killed.instance.directory.close()
        self._restart(number)

    @contextmanager
    def _mortal(self) -> Iterator[None]:
        try:
            yield
        except _KilledError:
            for number in _BOTH:
                self._kill(number)

    def _turn(self, number: int, times: int = 1) -> None:
        for _ in range(times):
            steps = self._instances[number]
            before = len(self._world.diary)
            try:
                steps.turn()
            except Exception as error:
                self.log.append(("failed", number, error))
                steps.fail(error)
                steps.thread._close(clean=False)  # as the thread does after its loop
                steps.instance.close()
                self._restart(number)
                return
            if ("join as a new member",) in self._world.diary[before:]:
                steps.membership.lose()

    def end(self) -> None:
        """Close everything without reporting errors."""
        for number in _BOTH:
            self._kill(number)
            self._instances[number].instance.directory.close()

    # -- what happens -----------------------------------------------------------------------------------------------

    def run(self, steps: int = 60) -> None:
        """Run moves, records and faults; then process everything without faults."""
        dice = self._dice
        things: dict[Callable[[], None], int] = {
            self._feed: 35,
            lambda: self._turn(dice.choice(_BOTH), dice.randrange(1, 4)): 35,
            lambda: self._world.clock.advance(dice.choice([10, 500, 1_100])): 10,
            self._move: 10,
            self._fault: 10,
        }
        with self._mortal():
            self._move()
        for _ in range(steps):
            with self._mortal():
                dice.choices(list(things), list(things.values()))[0]()
        self._calm_down()
        for round_ in range(40):
            self._world.clock.advance(1_100)
            for number in _BOTH:
                self._turn(number, 8)
            if round_ in (3, 16, 25):
                self._move()

    def _calm_down(self) -> None:
        self._full_in = 0
        for steps in self._instances:
            steps.membership.commit_error = steps.membership.problem = None
            steps.producer.flush_error = None  # type: ignore[attr-defined]  # the world's have it
            steps.producer.at = lambda _: None  # type: ignore[attr-defined]
        self._move()
        for number in range(_TASKS):
            self._world.write("in", b"x", key=b"%d" % number, partition=number)

    def _feed(self) -> None:
        number = self._dice.randrange(_TASKS)
        self.log.append(("feed", number))
        self._world.write("in", *[b"x"] * self._dice.randrange(1, 4), key=b"%d" % number, partition=number)

    def _owned(self) -> list[int | None]:
        found: list[int | None] = []
        for number in range(_TASKS):
            owners = [one for one in _BOTH if tp(f"in-{number}") in self._instances[one].membership.owned]
            assert len(owners) < 2, "a partition has two owners"
            found.append(owners[0] if owners else None)
        return found

    def _move(self) -> None:
        """Run a cooperative rebalance: members first revoke tasks, and others get them in a second round."""
        dice, before = self._dice, self._owned()
        after = [dice.choice(_BOTH) for _ in range(_TASKS)]
        copies = dice.random() < 0.6
        self.log.append(("move", before, after, copies))
        kept = [old if old == new else None for old, new in zip(before, after, strict=True)]
        for owners in (kept, after):
            for number in dice.sample(_BOTH, 2):
                active = {TaskId(0, at): [tp(f"in-{at}")] for at in range(_TASKS) if owners[at] == number}
                others = [at for at in range(_TASKS) if owners[at] != number] if copies else []
                standby = {TaskId(0, at): [tp(f"in-{at}")] for at in others}
                self._instances[number].membership.join()
                if dice.random() < 0.4:
                    self._turn(number)
                self._instances[number].membership.finish(active, standby)
                if dice.random() < 0.3:
                    self._turn(dice.choice(_BOTH))

    def _fault(self) -> None:
        dice = self._dice
        number = dice.choice(_BOTH)
        steps = self._instances[number]
        what = dice.choice(["corrupted", "lost", "commit", "killed", "closed", "copy", "full", "flush"])
        self.log.append((what, number))
        for one in self._instances:
            one.membership.commit_error = None
        match what:
            case "corrupted" if running := steps.parts.table.running():
                task = dice.choice(running)
                changelogs = task.stores.changelog_partitions if dice.random() < 0.5 else frozenset()
                steps.membership.problem = TaskCorruptedError("bad state", {task.id: changelogs})
            case "lost":
                steps.membership.lose()
            case "commit" if self._exactly_once:
                self._spoil_commit(steps)
            case "commit":
                steps.membership.commit_error = dice.choice([BrokerUnavailableError("away"), TaskMigratedError("gone")])
            case "killed":
                self._kill(number)
            case "closed":
                steps.producer.at = lambda _: None  # type: ignore[attr-defined]
                steps.close()
                steps.instance.close()
                self._restart(number)
            case "copy" if held := steps.updater.tasks():
                copy = dice.choice(held)
                steps.fail_restoration(copy, TaskCorruptedError("bad copy", {copy.id: copy.changelog_partitions}))
            case "full":
                self._full_in = dice.randrange(2, 7)
            case "flush" if not self._exactly_once:
                errors = [TaskMigratedError("out of step"), BrokerUnavailableError("away")]
                steps.producer.flush_error = dice.choice(errors)  # type: ignore[attr-defined]

    def _spoil_commit(self, steps: Steps) -> None:
        dice = self._dice
        step = dice.choice(["produce", "commit", "committed"])
        errors: list[BaseException] = [TaskCorruptedError("unknown", {}), TaskMigratedError("fenced"), _KilledError()]
        if step != "committed":  # committed records are never only in transit
            errors.append(BrokerUnavailableError("away"))
        error = dice.choice(errors)

        def at(now: str) -> None:
            if now == step:
                steps.producer.at = lambda _: None  # type: ignore[attr-defined]
                raise error

        steps.producer.at = at  # type: ignore[attr-defined]

    # -- what must hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        for number in range(_TASKS):
            self._check_task(number, b"%d" % number)
        for steps in self._instances:
            for one in steps.parts.table.all():
                if one.stores.is_open and not one.is_active:
                    at = tp(f"app-counts-changelog-{one.id.partition}")
                    end = one.stores.changelog_offsets.get(at, -1) + 1
                    assert _content(one.stores.store("counts")) == _fold(self._world, at, end)

    def _check_task(self, number: int, key: bytes) -> None:
        world = self._world
        fed = len(world.records(tp(f"in-{number}")))
        tables = [steps.parts.table.running() for steps in self._instances]
        (running,) = [task for tasks in tables for task in tasks if task.id.partition == number]
        changelog = tp(f"app-counts-changelog-{number}")
        logged = [_number(record.value()) for record in world.records(changelog) if record.key() == key]
        outs = [log for partition, log in world.log.records.items() if partition.topic == "out"]
        sent = [_number(record.value()) for log in outs for record in log if record.key() == key]
        assert world.committed[tp(f"in-{number}")].offset == fed
        fold = _fold(world, changelog, len(world.records(changelog)))
        held = _content(running.stores.store("counts"))
        assert {at: count for at, count in held.items() if at != _TICKS} == {key: fold[key]}
        if self._exactly_once:
            assert fold[key] == sent[-1] == fed
            assert logged == sorted(set(logged)), "something twice, or out of order, in the changelog"
            assert sent == sorted(set(sent)), "something twice, or out of order, in the output"
        else:
            assert fold[key] >= fed
            assert max(sent) >= fed


def _number(data: bytes | None) -> int:
    return int.from_bytes((data or b"")[-8:], "big")


def _fold(world: World, changelog: TopicPartition, end: int) -> dict[bytes, int]:
    return {record.key() or b"": _number(record.value()) for record in world.records(changelog)[:end]}


def _content(store: Any) -> dict[bytes, int]:
    return {key: value[0] if isinstance(value, tuple) else value for key, value in store.all()}
