"""A task that restores its changelogs has the windows, sessions and waiting changes of the one that wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TaskId
from streams_py.serdes import STRING
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.opening.stores import StoreDefaults
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.suppressed import Suppressed
from streams_py.topology.topology import Topology
from tests.support.topology.driver_parts import written_by


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StateDirectory]:
    directory = StateDirectory(str(tmp_path), "test", warns_of_temporary=False)
    directory.open()
    yield directory
    directory.close()


def topology() -> Topology:
    builder = StreamsBuilder(key=STRING, value=STRING)
    grouped = builder.stream("in").group_by_key()
    counts = grouped.windowed_by(TimeWindows.of(10, grace=50)).count(store="windows")
    counts.suppress(Suppressed.until_window_closes(), name="final").to_stream().to("out")
    grouped.windowed_by(SlidingWindows.of(10, grace=50)).count(store="sliding")
    grouped.windowed_by(SessionWindows.of(5, grace=50)).count(store="sessions")
    return builder.build()


@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
def test_restored_stores_equal_those_that_were_logged(directory: StateDirectory, persistent: bool) -> None:
    described = topology()
    with TopologyTestDriver(described) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for number, at in enumerate((1, 4, 12, 7, 30, 26, 41)):
            source.send("ab"[number % 2], "v", timestamp_ms=at)
        state = TaskState(
            TaskId(0, 0),
            described.stores.values(),
            StoreEnvironment(directory, "thread-1", defaults=StoreDefaults(STRING, STRING, persistent=persistent)),
            application_id="test",
        )
        state.open()
        for changelog in state.changelog_partitions:
            state.restore(changelog, written_by(driver)[changelog])
        for name in ("windows", "sliding", "sessions"):
            written: Any = driver.store(name)
            restored: Any = state.store(name)
            assert list(restored.all()) == list(written.all())
            assert restored.persistent is persistent
        waiting: Any = state.store("final-store")
        logged: Any = driver.store("final-store")
        assert len(waiting) == len(logged)
        assert waiting.first_time_ms() == 10
        changes = [taken_first(waiting) for _ in range(len(waiting))]
        assert changes == [taken_first(logged) for _ in range(len(logged))]
        assert [(change.key.key, change.new, change.topic) for change in changes[:2]] == [
            ("a", 1, "in"),
            ("b", 2, "in"),
        ]
    state.close()


def test_null_in_a_join_moves_time_in_a_restored_store_too(directory: StateDirectory) -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    joined = builder.stream("in").join(builder.stream("other"), str.__add__, JoinWindows.of(5), store="j")
    joined.to("out")
    described = builder.build()
    with TopologyTestDriver(described) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        source.send("a", "v", timestamp_ms=10)
        source.send("a", None, timestamp_ms=100)
        state = TaskState(
            TaskId(0, 0),
            described.stores.values(),
            StoreEnvironment(directory, "thread-1", defaults=StoreDefaults(STRING, STRING, persistent=False)),
            application_id="test",
        )
        state.open()
        for changelog in state.changelog_partitions:
            state.restore(changelog, written_by(driver).get(changelog, []))
        kept: Any = driver.store("j-this-join-store")
        restored: Any = state.store("j-this-join-store")
        assert list(restored.all()) == list(kept.all()) == []
    state.close()


def taken_first(buffer: Any) -> Any:
    first = buffer.first()
    buffer.remove_first()
    return first
