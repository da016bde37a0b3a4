from __future__ import annotations

import pytest

from streams_protocol import EncodeError, NotAllowedDecodeError
from streams_protocol.connect import (
    Assignment,
    SchemaError,
    TaskId,
    WorkerState,
    decode_assignment,
    decode_worker_state,
    encode_assignment,
    encode_worker_state,
)

URL = "leaderUrl:8083"
HELD = Assignment("leader", URL, 1, 0, ("c1", "c3"), (TaskId("c2", 0), TaskId("c2", 10)))
STATIC = WorkerState(URL, 1, HELD, frozenset({"b", "a"}), frozenset({TaskId("c", 1), TaskId("a", 0)}))


def test_task_prints_as_connector_and_number() -> None:
    assert str(TaskId("c1", 0)) == "c1-0"
    assert TaskId("c1", 2) < TaskId("c1", 10) < TaskId("c2", 0)


@pytest.mark.parametrize("written", range(4))
@pytest.mark.parametrize("reader", range(4))
def test_any_reader_reads_any_worker_state(written: int, reader: int) -> None:  # C-1 .. C-6, C-12, C-13
    state = decode_worker_state(encode_worker_state(STATIC, written), reader_version=reader)
    assert (state.url, state.config_offset) == (URL, 1)
    assert (state.allocation is not None) == (min(written, reader) >= 1)
    assert state.static_connectors == (STATIC.static_connectors if min(written, reader) == 3 else None)
    assert state.static_tasks == (STATIC.static_tasks if min(written, reader) == 3 else None)


@pytest.mark.parametrize("written", range(4))
@pytest.mark.parametrize("reader", range(4))
def test_any_reader_reads_any_assignment(written: int, reader: int) -> None:  # C-7 .. C-10
    given = Assignment("member", URL, 1, 0, ("c2",), (TaskId("c1", 0),), ("c3",), (TaskId("c3", 0),), 5)
    read = decode_assignment(encode_assignment(given, written), reader_version=reader)
    assert (read.leader, read.leader_url, read.config_offset, read.failed) == ("member", URL, 1, False)
    assert (read.connectors, read.tasks, read.version) == (("c2",), (TaskId("c1", 0),), written)
    incremental = min(written, reader) >= 1
    assert (read.revoked_connectors, read.revoked_tasks) == ((("c3",), (TaskId("c3", 0),)) if incremental else ((), ()))
    assert read.delay_ms == (5 if incremental else 0)


def test_empty_allocation_differs_from_none() -> None:  # C-2
    empty = Assignment("leader", URL, 1, version=1)
    state = decode_worker_state(encode_worker_state(WorkerState(URL, 1, empty), 1))
    assert state.allocation == empty
    assert decode_worker_state(encode_worker_state(WorkerState(URL, 1), 1)).allocation is None


def test_missing_tail_of_a_static_worker_reads_as_absent() -> None:  # C-14
    whole = encode_worker_state(WorkerState(URL, 1, None, frozenset({"a"}), frozenset()))
    assert decode_worker_state(whole[:-4]) == WorkerState(URL, 1, None, frozenset({"a"}))
    assert decode_worker_state(whole[:-11]) == WorkerState(URL, 1)
    assert decode_worker_state(whole[:-15]) == WorkerState(URL, 1)


HEAD = "0003 0001 75 0000000000000007 ffffffff"


@pytest.mark.parametrize(
    "data",
    [
        f"{HEAD} 00000002 0001 61",
        f"{HEAD} 00000001 ffff",
        "0003 ffff 0000000000000007",
        "ffff 0001 75 0000000000000007",
        f"{HEAD} 00000000 00000001 0001 61 00000001 ffffffff",
        f"{HEAD} 00000000 00000001 0001 61 00000001 fffffffe",
        f"{HEAD} 0000",
        f"{HEAD} 7fffffff",
    ],
    ids=["cut list", "null name", "null url", "version -1", "task -1", "task -2", "cut length", "huge length"],
)
def test_faulty_worker_state_is_a_schema_error(data: str) -> None:  # C-15
    with pytest.raises(SchemaError):
        decode_worker_state(bytes.fromhex(data))


@pytest.mark.parametrize("field", ["assigned", "revoked"])
def test_job_number_below_minus_1_is_a_schema_error(field: str) -> None:  # C-15
    faulty = "00000001 0001 63 00000001 fffffffe"
    maps = f"{faulty} 00000000" if field == "assigned" else f"00000000 {faulty}"
    with pytest.raises(SchemaError, match=f"task number -2 of {field}") as refusal:
        decode_assignment(bytes.fromhex(f"0001 0000 0001 6c 0001 75 0000000000000007 {maps} 00000000"))
    assert isinstance(refusal.value.__cause__, NotAllowedDecodeError)


def test_faulty_allocation_keeps_its_schema_error() -> None:
    with pytest.raises(SchemaError, match="Connect assignment"):
        decode_worker_state(bytes.fromhex("0001 0001 75 0000000000000007 00000001 00"))


def test_absent_lists_differ_from_empty_ones() -> None:  # C-16
    for connectors in (None, frozenset[str]()):
        for tasks in (None, frozenset[TaskId]()):
            state = WorkerState(URL, 1, None, connectors, tasks)
            assert decode_worker_state(encode_worker_state(state)) == state


def test_unknown_version_is_read_as_version_3() -> None:  # C-17
    data = encode_worker_state(STATIC)
    assert decode_worker_state(b"\0\x09" + data[2:] + b"extra") == STATIC


def test_equal_states_are_equal_bytes_whatever_their_order() -> None:  # C-18
    shuffled = Assignment(
        "leader", URL, 1, 0, ("c3", "c1", "c3"), (TaskId("c2", 10), TaskId("c2", 0), TaskId("c2", 10))
    )
    assert encode_assignment(shuffled) == encode_assignment(HELD)


@pytest.mark.parametrize("version", [-1, 4])
def test_unknown_version_cannot_be_written(version: int) -> None:
    with pytest.raises(EncodeError, match="use a version from 0 to 3"):
        encode_worker_state(STATIC, version)
    with pytest.raises(EncodeError, match="use a version from 0 to 3"):
        encode_assignment(HELD, version)
