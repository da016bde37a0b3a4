from __future__ import annotations

import copy
import uuid

import pytest

from streams_protocol import HostInfo, ProcessId, TaskId, TopicPartition


def test_tasks_order_by_name_then_numbers() -> None:
    ordered = [TaskId(0, 1), TaskId(2, 0), TaskId(10, 0), TaskId(0, 0, "A"), TaskId(0, 0, "B")]
    assert sorted(ordered) == ordered


@pytest.mark.parametrize("text", ["0_3", "12_0", "T1__0_3", "a__b__0_3"])
def test_task_text_round_trips(text: str) -> None:
    task = TaskId.parse(text)
    assert str(task) == text
    assert repr(task) == f"TaskId({text})"
    assert copy.copy(task) == task


@pytest.mark.parametrize("text", ["", "0", "_1", "0_", "-1_0", "x_0", "0_0 "])
def test_text_that_is_no_task_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a task id"):
        TaskId.parse(text)


def test_empty_topology_name_is_none() -> None:
    assert TaskId(0, 0, "").topology_name is None
    assert TaskId(0, 0, "T").topology_name == "T"


def test_process_ids_order_as_signed_halves() -> None:
    high_bit = ProcessId.parse("80000000-0000-0000-0000-000000000000")
    zero = ProcessId(uuid.UUID(int=0))
    low_high_bit = ProcessId.parse("00000000-0000-0000-8000-000000000000")
    assert sorted([zero, low_high_bit, high_bit]) == [high_bit, low_high_bit, zero]


def test_process_id_round_trips() -> None:
    text = "ffeeddcc-bbaa-9988-7766-554433221100"
    process = ProcessId.parse(text)
    assert str(process) == text
    assert repr(process) == f"ProcessId({text})"
    assert process.id == uuid.UUID(text)
    assert copy.copy(process) == process


def test_partition_and_host_print_as_kafka_does() -> None:
    assert str(TopicPartition("t", 3)) == "t-3"
    assert str(HostInfo("h", 80)) == "h:80"
