"""The status topic (specification 5.5)."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from streams_protocol.connect import TaskId
from streams_py.connect.stores.statuses import JobState, JobStatus, StatusStore
from streams_py.errors import BrokerUnavailableError
from tests.support.connect.memory_log import MemoryLog
from tests.support.waiting import until

TASK = TaskId("a", 0)
_NAMES = st.sampled_from(["state", "worker_id", "generation", "trace"]) | st.text()
JSON_BYTES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["RUNNING", "1" * 5000]),
    lambda inner: st.lists(inner) | st.dictionaries(_NAMES, inner),
).map(lambda value: json.dumps(value).encode())


def _statuses(*records: tuple[bytes, bytes | None]) -> tuple[MemoryLog, StatusStore]:
    log = MemoryLog(records)
    store = StatusStore(log, 1)  # type: ignore[arg-type]  # a log without a topic
    store.start()
    return log, store


def _status(state: JobState, worker: str = "w1", generation: int = 1) -> JobStatus:
    return JobStatus(state, worker, generation)


def test_statuses_have_the_bytes_of_kafka_connect() -> None:
    log, store = _statuses()
    store.put("a", JobStatus(JobState.FAILED, "w1:8083", 3, "why"))
    store.put(TASK, _status(JobState.DESTROYED))
    assert log.records == [
        (b"status-connector-a", b'{"state":"FAILED","trace":"why","worker_id":"w1:8083","generation":3}'),
        (b"status-task-a-0", None),
    ]
    assert store.get("a") == JobStatus(JobState.FAILED, "w1:8083", 3, "why")
    assert store.jobs() == {"a"}


def test_an_old_owner_does_not_overwrite_the_status_of_the_new_one() -> None:
    _, store = _statuses()
    store.put(TASK, _status(JobState.RUNNING, "w2", 5))
    store.put(TASK, _status(JobState.FAILED, "w1", 4))
    assert store.get(TASK) == _status(JobState.RUNNING, "w2", 5)
    store.put(TASK, _status(JobState.FAILED, "w1", 5))
    assert store.get(TASK) == _status(JobState.FAILED, "w1", 5)


def test_a_late_unassigned_of_another_worker_is_not_believed() -> None:
    log, store = _statuses()
    store.put(TASK, _status(JobState.RUNNING, "w2", 5))
    log.append(b"status-task-a-0", b'{"state":"UNASSIGNED","trace":null,"worker_id":"w1","generation":5}')
    assert store.get(TASK) == _status(JobState.RUNNING, "w2", 5)
    store.put(TASK, _status(JobState.UNASSIGNED, "w2", 5))
    assert store.get(TASK) == _status(JobState.UNASSIGNED, "w2", 5)


def test_a_status_that_was_lost_is_written_again() -> None:
    log, store = _statuses()
    log.failures.append(BrokerUnavailableError("gone for a moment"))
    store.put(TASK, _status(JobState.RUNNING))
    until(lambda: store.get(TASK) == _status(JobState.RUNNING), "the status is written")


def test_records_that_cannot_be_used_are_skipped() -> None:
    _, store = _statuses(
        (b"status-topic-x", b"{}"),
        (b"status-task-a-0", b'{"state":"DANCING"}'),
        (b"status-task-a-x", b"{}"),
        (b"status-connector-a", b"no json"),
    )
    assert store.jobs() == set()


@given(st.binary(), st.none() | st.binary() | JSON_BYTES)
def test_no_record_of_the_status_topic_ends_its_reader(key: bytes, value: bytes | None) -> None:
    for start in (b"", b"status-task-", b"status-connector-"):
        log = MemoryLog([(start + key, value), (b"status-task-a-" + key, value), (start, value)])
        StatusStore(log, 1).start()  # type: ignore[arg-type]  # a log without a topic


def test_a_status_of_a_task_whose_number_has_thousands_of_digits_is_ignored() -> None:
    _, store = _statuses((b"status-task-a-" + b"1" * 5000, b'{"state":"RUNNING","worker_id":"w","generation":1}'))
    assert store.jobs() == set()
