"""Task sets as text: canonical, and nothing else is taken."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_protocol import DecodeError
from streams_protocol.types import TaskId
from streams_py.events.codec import decode_event, encode_value
from streams_py.events.taskset import RECORD_TASKS_MAX, TEXT_BYTES_MAX, format_task_set, parse_task_set
from tests.support.events import golden

names = st.one_of(st.none(), st.text("abcXYZ_-.", min_size=1, max_size=6))
tasks = st.builds(TaskId, st.integers(0, 5), st.integers(0, 40), names)


@given(st.sets(tasks))
def test_task_set_round_trips(of: set[TaskId]) -> None:
    assert parse_task_set(format_task_set(of)) == tuple(sorted(of))


@given(st.text("0123456789:;,-_a", max_size=24))
def test_text_is_refused_or_canonical(text: str) -> None:
    try:
        parsed = parse_task_set(text)
    except DecodeError:
        return
    assert format_task_set(parsed) == text


def test_task_set_joins_neighbours_and_sorts() -> None:
    of = [TaskId(1, 3), TaskId(0, 12), *(TaskId(0, p) for p in range(9, -1, -1)), TaskId(0, 12)]
    assert format_task_set(of) == "0:0-9,12;1:3"
    assert format_task_set([TaskId(0, 1, "billing"), TaskId(2, 0)]) == "2:0;billing__0:1"


@pytest.mark.parametrize("text", ["0:3-3", "0:1,0", "0:0,1", "1:0;0:0"])
def test_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        parse_task_set(text)


@pytest.mark.parametrize(
    "text",
    [
        " ", "0", "0:", ":0", "0:00", "00:0", "0:0;", ";", "0:0-1-2", "0:-1", "0:0;0:5", "0:5-4", "0:0-1,2",
        "0:99999999999", "0:0-2147483647", "0:\u0661", "a_0:1",
    ],
)  # fmt: skip
def test_text_that_is_no_task_set_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        parse_task_set(text)


def test_text_is_refused_unread_when_it_is_too_long() -> None:
    with pytest.raises(DecodeError, match="the maximum is"):
        parse_task_set("0:0," * TEXT_BYTES_MAX)


def test_name_with_a_separator_is_refused_when_writing() -> None:
    with pytest.raises(ValueError, match="a;b"):
        format_task_set([TaskId(0, 0, "a;b")])


@given(st.sets(tasks))
def test_ranges_are_a_sequence_of_tasks(of: set[TaskId]) -> None:
    ordered = sorted(of)
    ranges = parse_task_set(format_task_set(of))
    assert len(ranges) == len(ordered)
    assert [ranges[at] for at in range(len(ordered))] == ordered
    assert ranges[1:3] == tuple(ordered[1:3])
    assert all(task in ranges for task in of)
    assert TaskId(9, 9, "other") not in ranges
    assert ranges == parse_task_set(format_task_set(of))
    assert hash(ranges) == hash(tuple(ordered))


def test_ranges_stay_ranges() -> None:
    tracemalloc.start()
    try:
        sets = [parse_task_set("0:0-999999") for _ in range(100)]
        assert sum(map(len, sets)) == 100_000_000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_sum_over_all_sets_of_a_record_is_bounded() -> None:
    fields = json.loads(encode_value(golden.EVENTS["rebalance-client"]))
    half = f"0:0-{RECORD_TASKS_MAX // 2}"
    assert decode_event(json.dumps({**fields, "prev_active": half}).encode())
    with pytest.raises(DecodeError, match=f"more than {RECORD_TASKS_MAX} tasks"):
        decode_event(json.dumps({**fields, "prev_active": half, "prev_standby": half}).encode())
