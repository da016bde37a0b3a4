"""Stores that are declared as in-memory stores: over a history they are on disk, with the same results."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_py import EmitStrategy, Materialized, Processor, SessionWindows, StreamsBuilder, Topology, Windowed, serdes
from streams_py.topology.declare.stores import key_value_store

pytest.importorskip("pyarrow")

from streams_py.history.loading import TopologySource
from streams_py.history.plan import plan_history
from streams_py.history.task import HistoryTask, StageOrders
from streams_py.state.disk.database import TaskDatabase
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.declare.versioned_stores import versioned_key_value_store
from streams_py.topology.declare.window_stores import session_store, window_store
from tests.support.history.runs import Given, driven, folded, numbered, run_locally

IN_MEMORY = {"dsl.store.suppliers.class": "in_memory"}


class Lists(Processor[str, str, str, str]):
    """Puts a record into stores of every kind, then records what they list, in order."""

    batch_safe = True

    def init(self, context: Any) -> None:
        super().init(context)
        self.plain, self.windows, self.sessions, self.versions = (
            context.get_state_store(name) for name in ("plain", "windows", "sessions", "versions")
        )

    def process(self, record: Any) -> None:
        key, value, at = record.key, record.value, record.timestamp
        self.plain.put(key, None if value == "v3" else value)
        self.windows.put(key, value, at)
        self.versions.put(key, value, at)
        self.sessions.put(Windowed(key, at - 5, at), value)
        self.context.forward(record.with_value(repr([*self._listed(at)])))

    def _listed(self, at: int) -> Iterator[Any]:
        yield list(self.plain.all())
        yield list(self.plain.reverse_range("k2", "k7"))
        yield [str(entry) for entry in self.windows.all()]
        yield [str(entry) for entry in self.sessions.sessions_ended(0, at + 1_000)]
        yield self.versions.get("k4")
        yield [store.persistent for store in (self.plain, self.windows, self.sessions, self.versions)]


def everything() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    text: Any = {"key": serdes.STRING, "value": serdes.STRING, "persistent": False}
    for store in (
        key_value_store("plain", **text),
        window_store("windows", retention=200, size=10, **text),
        session_store("sessions", retention=200, **text),
        versioned_key_value_store("versions", history=500, **text),
    ):
        builder.add_state_store(store)
    orders = builder.stream("orders")
    stores = ["plain", "windows", "sessions", "versions"]
    orders.process(Lists, stores=stores).to("listed")
    counts = orders.group_by_key().count(materialized=Materialized("counts", value=serdes.INT64, persistent=False))
    counts.to_stream().to("counted", value=serdes.INT64)
    return builder.build()


def some_orders(partitions: int) -> list[Given]:
    chance = random.Random(5)
    at = sorted(chance.randrange(1_000) for _ in range(150))
    rows = [("orders", when + chance.randrange(60), b"k%d" % chance.randrange(9), b"v%d" % (when % 7)) for when in at]
    return numbered(rows, partitions)


def test_history_with_stores_in_memory_makes_what_a_live_run_makes() -> None:
    records = some_orders(2)
    run, live = run_locally(everything, records, 2), driven(everything(), records, 2)
    assert len(live["listed"]) == 150
    assert sorted(map(repr, run.records("listed"))) == sorted(map(repr, live["listed"]))
    assert sorted(map(repr, run.records("counted"))) == sorted(map(repr, live["counted"]))
    for store in ("counts", "plain"):
        changelog = f"test-{store}-changelog"
        assert run.state[changelog] == folded(live[changelog])


def final_sessions() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    windows = (
        builder.stream("orders").group_by_key().windowed_by(SessionWindows.of(5), emit=EmitStrategy.ON_WINDOW_CLOSE)
    )
    windows.count(store="counts").to_stream().map(lambda at, count: (at.key, str(count))).to("out")
    return builder.build()


def test_order_of_final_sessions_is_that_of_the_stores_that_the_settings_name() -> None:
    """So the steps of one history need the same settings."""
    at = [(b"b", 7), (b"a", 10), (b"b", 10), (b"c", 100)]
    records = numbered([("orders", at_ms, key, b"") for key, at_ms in at])
    for config, keys in (({}, [b"b", b"a"]), (IN_MEMORY, [b"a", b"b"])):
        run, live = run_locally(final_sessions, records, 1, config), driven(final_sessions(), records, 1, config)
        assert [record[3] for record in run.records("out")] == keys
        if config == IN_MEMORY:  # a test driver keeps all stores in memory
            assert run.records("out") == live["out"]


def task_of(build: Any, folder: Path, config: dict[str, Any]) -> HistoryTask:
    settings = {"application.id": "test", **config}
    source = TopologySource(build, settings)
    plan = plan_history(source.build(), "test", settings, {"orders": 1})
    return HistoryTask(StageOrders(source, settings, plan.stages[0], str(folder)).load(), 0)


def test_task_says_nothing_of_its_temporary_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each task has one, and it need not be kept, so the usual warning does not apply."""
    caplog.set_level("INFO")
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("tempfile.gettempdir", lambda: str(tmp_path))
        task_of(everything, tmp_path, {}).close()
    assert caplog.messages == []


def test_bytes_of_stores_in_memory_lie_on_disk(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    task = task_of(everything, tmp_path / "tasks", {})
    records = some_orders(1)
    task.feed(
        "orders", [MemoryRecord("orders", 0, r.offset, r.key, r.value, timestamp_ms=r.timestamp_ms) for r in records]
    )
    task.finish()
    [current] = (tmp_path / "tasks").rglob("CURRENT")
    shutil.copytree(current.parent.parent, tmp_path / "copied")
    task.close()
    names = ["plain", "counts", "windows", "sessions", "versions"]
    database = TaskDatabase(str(tmp_path / "copied"), names)
    try:
        found = {name: list(database.store(name).scan(None, None)) for name in names}
    finally:
        database.close()
    assert [key for key, _ in found["counts"]] == [b"k%d" % at for at in range(9)]
    assert {key for key, _ in found["plain"]} <= {b"k%d" % at for at in range(9)}
    assert all(found.values())


@pytest.mark.parametrize(("config", "is_persistent"), [(IN_MEMORY, False), ({}, True)], ids=["in memory", "default"])
def test_store_that_leaves_it_open_is_of_the_kind_that_the_application_has(
    tmp_path: Path, config: dict[str, Any], is_persistent: bool
) -> None:
    def counts() -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream("orders").group_by_key().count(store="counts")
        return builder.build()

    task = task_of(counts, tmp_path, config)
    try:
        assert task._executor.store("counts").persistent is is_persistent  # a history shows rows only
    finally:
        task.close()
