"""The config topic: records of Kafka Connect's formats, in and out (specification 5.5)."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_protocol.connect import TaskId
from streams_py.connect.stores.configs import (
    ConfigChange,
    ConfigStore,
    ConfigTable,
    ConnectorRemoved,
    ConnectorUpdated,
    RestartRequest,
    SessionKey,
    TargetState,
    TargetStateChanged,
    TasksUpdated,
)
from tests.support.connect.memory_log import MemoryLog

A = (b"connector-a", b'{"properties":{"name":"a"}}')
A0 = (b"task-a-0", b'{"properties":{"n":"0"}}')
A1 = (b"task-a-1", b'{"properties":{"n":"1"}}')
COMMIT_1 = (b"commit-a", b'{"tasks":1}')
COMMIT_2 = (b"commit-a", b'{"tasks":2}')


class Reader:
    def __init__(self, *records: tuple[bytes, bytes | None]) -> None:
        self.log = MemoryLog(records)
        self.changes: list[ConfigChange] = []
        self.store = ConfigStore(self.log)  # type: ignore[arg-type]  # a log without a topic
        self.store.start(self.changes.append)


def test_tasks_exist_once_their_commit_record_is_there() -> None:
    before = Reader(A, A0, A1).store.snapshot()
    assert (before.offset, dict(before.tasks), before.target_state("a")) == (3, {}, TargetState.STARTED)
    after = Reader(A, A0, A1, COMMIT_2).store.snapshot()
    assert after.task_configs("a") == [{"n": "0"}, {"n": "1"}]
    assert after.applied["a"] == {"name": "a"}
    assert after.group_view.jobs.tasks == {TaskId("a", 0), TaskId("a", 1)}


def test_a_commit_with_missing_tasks_makes_a_connector_inconsistent_until_the_next_complete_one() -> None:
    reader = Reader(A, A1, COMMIT_2)
    snapshot = reader.store.snapshot()
    assert snapshot.inconsistent == {"a"}
    assert snapshot.task_configs("a") == []
    assert snapshot.group_view.jobs.connectors == {"a"}
    assert not snapshot.group_view.jobs.tasks
    reader.log.append(*A0)
    reader.log.append(*COMMIT_1)
    assert reader.store.snapshot().task_configs("a") == [{"n": "0"}]
    assert reader.changes == [TasksUpdated("a")]


def test_tasks_beyond_the_committed_number_are_tolerated() -> None:
    assert Reader(A, A0, A1, COMMIT_1).store.snapshot().task_configs("a") == [{"n": "0"}]


def test_tasks_survive_compaction_that_puts_their_connector_behind_them() -> None:
    reader = Reader(A0, COMMIT_1, A)
    snapshot = reader.store.snapshot()
    assert snapshot.task_configs("a") == [{"n": "0"}]
    assert snapshot.group_view.jobs.tasks == {TaskId("a", 0)}
    assert "a" not in snapshot.applied  # its worker compares, and writes the tasks again if they differ
    two = Reader(A1, A0, COMMIT_2, (b"target-state-a", b'{"state":"PAUSED"}'), A).store.snapshot()
    assert two.task_configs("a") == [{"n": "0"}, {"n": "1"}]
    assert two.target_state("a") is TargetState.PAUSED


def test_incomplete_tasks_before_their_connector_make_it_inconsistent() -> None:
    snapshot = Reader(A0, COMMIT_2, A).store.snapshot()
    assert snapshot.inconsistent == {"a"}
    assert snapshot.task_configs("a") == []


GONE = (b"connector-a", None)


@pytest.mark.parametrize(
    "records",
    [
        (A, A0, COMMIT_1, GONE, A),
        (A0, COMMIT_1, GONE, A),  # compacted
        (A0, (b"commit-a", None), A),  # the connector's tombstone has expired, that of its tasks has not
        (A0, COMMIT_1, (b"commit-a", None), (b"task-a-0", None), A),
    ],
)
def test_connector_that_is_created_again_does_not_get_the_tasks_of_its_namesake(
    records: list[tuple[bytes, bytes | None]],
) -> None:
    snapshot = Reader(*records).store.snapshot()
    assert dict(snapshot.task_counts) == {}
    assert not snapshot.group_view.jobs.tasks


def test_commit_of_an_unknown_connector_is_not_shown() -> None:
    snapshot = Reader(A0, COMMIT_1).store.snapshot()
    assert (dict(snapshot.task_counts), dict(snapshot.tasks)) == ({}, {})


def test_names_may_have_dashes_and_look_like_other_keys() -> None:
    snapshot = Reader(
        (b"connector-task-a-1", b'{"properties":{}}'),
        (b"task-task-a-1-0", b'{"properties":{"x":"y"}}'),
        (b"commit-task-a-1", b'{"tasks":1}'),
    ).store.snapshot()
    assert snapshot.task_configs("task-a-1") == [{"x": "y"}]


@pytest.mark.parametrize(
    ("value", "state"),
    [
        (b'{"state":"PAUSED"}', TargetState.PAUSED),
        (b'{"state":"PAUSED","state.v2":"STOPPED"}', TargetState.STOPPED),
        (b'{"state":"STARTED","state.v2":null}', TargetState.STARTED),
    ],
)
def test_the_newer_target_state_is_preferred(value: bytes, state: TargetState) -> None:
    assert Reader(A, (b"target-state-a", value)).store.snapshot().target_state("a") is state


def test_what_is_no_json_does_not_count_as_read_and_what_is_unknown_does() -> None:
    reader = Reader(A, (b"connector-b", b"{"))
    assert reader.store.snapshot().offset == 1
    reader.log.append(b"tasks-fencing-a", b'{"task-count":1}')
    assert reader.store.snapshot().offset == 3
    reader.log.append(b"connector-b", b'["no properties"]')
    assert reader.store.snapshot().offset == 4
    assert set(reader.store.snapshot().connectors) == {"a"}


def test_changes_are_told_after_the_first_read_only() -> None:
    restart = (b"restart-connector-a", b'{"include-tasks":true,"only-failed":false}')
    reader = Reader(A, restart)
    assert reader.changes == []
    reader.log.append(*A)
    reader.log.append(b"connector-b", b'{"properties":{}}')
    reader.log.append(*restart)
    reader.log.append(b"target-state-a", b'{"state":"PAUSED"}')
    reader.log.append(b"connector-a", None)
    reader.log.append(b"target-state-a", None)
    assert reader.changes == [
        ConnectorUpdated("a", is_new=False),
        ConnectorUpdated("b", is_new=True),
        RestartRequest("a", include_tasks=True, only_failed=False),
        TargetStateChanged("a"),
        ConnectorRemoved("a"),
    ]


def test_a_snapshot_does_not_change() -> None:
    reader = Reader(A)
    snapshot = reader.store.snapshot()
    reader.log.append(b"connector-a", None)
    assert set(snapshot.connectors) == {"a"}


def test_what_is_written_has_the_bytes_of_kafka_connect() -> None:
    reader = Reader()
    store = reader.store
    store.put_connector("a", {"name": "a"}, TargetState.STOPPED)
    store.put_tasks("a", [{"n": "0"}])
    store.put_restart(RestartRequest("a", include_tasks=True, only_failed=False))
    store.put_session_key(SessionKey("c2VjcmV0", "HmacSHA256", 7))
    store.remove_connector("a")
    assert reader.log.records == [
        (b"target-state-a", b'{"state":"PAUSED","state.v2":"STOPPED"}'),
        A,
        A0,
        COMMIT_1,
        (b"restart-connector-a", b'{"include-tasks":true,"only-failed":false}'),
        (b"session-key", b'{"key":"c2VjcmV0","algorithm":"HmacSHA256","creation-timestamp":7}'),
        (b"connector-a", None),
        (b"target-state-a", None),
        (b"commit-a", None),
        (b"task-a-0", None),
    ]
    assert "c2VjcmV0" not in repr(store.snapshot())


_NAMES = st.sampled_from(
    ["properties", "tasks", "state", "state.v2", "key", "algorithm", "creation-timestamp", "include-tasks"]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["STARTED", "1" * 5000]),
    lambda inner: st.lists(inner) | st.dictionaries(_NAMES | st.text(), inner),
).map(lambda value: json.dumps(value).encode())
_KEYS = st.tuples(
    st.sampled_from(
        [b"", b"connector-", b"task-", b"commit-", b"target-state-", b"restart-connector-", b"session-key"]
    ),
    st.sampled_from([b"", b"a", b"a-0", b"a--1"]) | st.binary(),
).map(b"".join)


@given(st.lists(st.tuples(_KEYS, st.none() | st.binary() | _JSON)))
def test_no_record_of_the_config_topic_ends_its_reader(records: list[tuple[bytes, bytes | None]]) -> None:
    table = ConfigTable()
    for offset, (key, value) in enumerate([A, A0, COMMIT_1, *records]):
        table.apply(key, value, offset)
    snapshot = table.snapshot()
    for name in snapshot.connectors:
        assert all(isinstance(each, dict) for each in snapshot.task_configs(name))


@pytest.mark.parametrize("tasks", [b"1000000000000", b"-1", b"true", b"1.5", b'"2"', b"null"])
def test_a_commit_of_an_impossible_number_of_tasks_is_ignored(tasks: bytes) -> None:
    before = Reader(A, A0, COMMIT_1, (b"commit-a", b'{"tasks":' + tasks + b"}")).store.snapshot()
    assert before.task_configs("a") == [{"n": "0"}]


def test_a_commit_of_many_missing_tasks_costs_no_memory() -> None:
    tracemalloc.start()
    try:
        snapshot = Reader(A, (b"commit-a", b'{"tasks":1000000}')).store.snapshot()
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert snapshot.inconsistent == {"a"}
