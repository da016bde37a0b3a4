"""Stores on disk whose declaration has changed so that their files cannot be read."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.ports import BEGINNING
from streams_py.serdes import INT64, STRING
from streams_py.state.directory import StateDirectory
from streams_py.state.task_state import TaskState
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.nodes import RecordContext
from streams_py.topology.stores import StoreBuilder, key_value_store
from streams_py.topology.window_stores import session_store, window_store
from streams_py.topology.windows import TimeWindows

TASK = TaskId(0, 0)
CHANGELOG = TopicPartition("app-s-changelog", 0)


def windows(retention_ms: int, size_ms: int = 10) -> StoreBuilder:
    return window_store("s", retention=retention_ms, size=size_ms, key=STRING, value=INT64)


def pairs(ttl: int | None = None) -> StoreBuilder:
    return key_value_store("s", key=STRING, value=INT64, ttl=ttl)


def opened(folder: Path, declared: StoreBuilder) -> tuple[StateDirectory, TaskState]:
    directory = StateDirectory(str(folder), "app")
    directory.open()
    state = TaskState(TASK, [declared], application_id="app", directory=directory, owner="me")
    state.open()
    state.attach(RecordContext(), None)
    return directory, state


def run(folder: Path, declared: StoreBuilder, put: Any = None) -> list[Any]:
    """Open, put, commit as if up to offset 7, close. What was in it when it was opened, and where a restoration
    starts."""
    directory, state = opened(folder, declared)
    store: Any = state.store("s")
    found = [*store.all(), state.restore_position(CHANGELOG)]
    if put is not None:
        store.put(*put)
        state.update_offsets({CHANGELOG: 7})
        state.commit()
    state.close()
    directory.close()
    return found


@pytest.mark.parametrize(
    ("before", "put", "after"),
    [
        (windows(100), ("k", 1, 50), windows(100_000)),
        (windows(100), ("k", 1, 50), windows(100, size_ms=50)),
        (windows(100), ("k", 1, 50), session_store("s", retention=100, key=STRING, value=INT64)),
        (pairs(), ("k", 1), pairs(ttl=9)),
        (pairs(ttl=3_200), ("k", 1), pairs(ttl=1_600)),
    ],
    ids=["retention", "size", "kind", "time to live", "shorter time to live"],
)
def test_store_whose_files_are_laid_out_otherwise_starts_empty_and_is_restored(
    before: StoreBuilder, put: tuple[Any, ...], after: StoreBuilder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(tmp_path, before, put) == [BEGINNING]
    with caplog.at_level(logging.WARNING):
        assert run(tmp_path, after) == [BEGINNING]
    [sentence] = [record.getMessage() for record in caplog.records if "starts empty" in record.getMessage()]
    assert sentence.startswith("store s in ")
    assert sentence.endswith("it starts empty and is restored from its changelog topic")
    caplog.clear()
    assert run(tmp_path, after) == [BEGINNING]
    assert not caplog.records


def test_store_that_is_declared_as_before_keeps_its_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, windows(100), ("k", 1, 50))
    *entries, position = run(tmp_path, windows(101))  # not long enough to need longer segments
    assert [(window.key, window.start, value) for window, value in entries] == [("k", 50, 1)]
    assert position == 8
    assert not caplog.records


def test_longer_grace_of_a_windowed_count_is_noticed(tmp_path: Path) -> None:
    def declared(grace_ms: int) -> StoreBuilder:
        builder = StreamsBuilder(key=STRING, value=INT64)
        grouped = builder.stream("in").group_by_key()
        grouped.windowed_by(TimeWindows.of(10, grace=grace_ms)).count(store="s")
        return builder.build().stores["s"]

    run(tmp_path, declared(0), ("k", (1, 50), 50))
    assert run(tmp_path, declared(3_600_000)) == [BEGINNING]
