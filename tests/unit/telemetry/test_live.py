"""A fold that continues from its saved state gives the same rows as a fold over all events, for any looks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams_py.telemetry.fold import GroupFold
from streams_py.telemetry.live import Live, look
from streams_py.telemetry.order import in_order
from streams_py.telemetry.schemas import STATE_TABLE
from tests.support.events.kit import Recorder
from tests.support.leader.kit import member, pid
from tests.support.telemetry.history import HOUR_MS, MINUTE_MS, START_MS, History, fold, rows
from tests.support.telemetry.live import Tables, records_of
from tests.support.telemetry.long_history import grown, long_history

LONG = long_history().records
PARTS = records_of(LONG)
EXPECTED = sorted(map(repr, fold(LONG)))


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, len(PARTS)), max_size=12))
def test_looks_anywhere_give_the_rows_of_one_fold(cuts: list[int]) -> None:
    tables = Tables()
    ends = sorted({*cuts, len(PARTS)})
    for start, end in zip([0, *ends], ends, strict=False):
        assert tables.look(PARTS[start:end])
    assert tables.rows() == EXPECTED


def test_look_at_every_event_gives_the_rows_of_one_fold_after_each() -> None:
    stored = grown().records
    tables = Tables()
    for number, record in enumerate(records_of(stored), 1):
        assert tables.look([record])
        assert tables.rows() == sorted(map(repr, fold(stored[:number])))


def test_rebalance_that_is_cut_is_waited_for_with_what_is_behind_it() -> None:
    history = grown()
    begin = len(history.records)
    history.rebalance({"b": member(2)})
    history.task(2, "0_1", "running")
    records = records_of(history.records)
    parts = [record for record in records[begin:] if record.rebalance_id is not None]
    tables = Tables()
    assert tables.look([record for record in records if record is not parts[-1]])
    assert tables.live.tail[0].offset == parts[0].offset
    assert {row["task"]: row["state"] for row in rows(tables.open_rows, "placement_current")}["0_1"] == "running"
    assert len(rows(tables.closed, "rebalance")) == 3
    assert tables.look([parts[-1]])
    assert len(rows(tables.closed, "rebalance")) == 4
    assert tables.live.tail == []


def test_part_that_comes_after_hope_was_given_up_asks_for_the_day() -> None:
    history = grown()
    begin = len(history.records)
    history.rebalance({"b": member(2)})
    history.later(2 * MINUTE_MS)
    history.task(2, "0_1", "running")
    records = records_of(history.records)
    late = [record for record in records[begin:] if record.rebalance_id is not None][-1]
    tables = Tables()
    assert tables.look([record for record in records if record is not late])
    assert tables.live.tail == []
    assert not tables.look([late])


def test_event_that_belongs_before_what_is_folded_asks_for_the_day() -> None:
    history = grown()
    records = records_of(history.records)
    tables = Tables()
    assert tables.look(records)
    assert not tables.look([records[0]._replace(partition=1, offset=0, rebalance_id=None)])
    assert tables.look([])  # no new event, so nothing is folded again


def test_repeated_parts_are_no_reason_to_fold_anything_again() -> None:
    records = records_of(grown().records)
    tables = Tables()
    assert tables.look(records)
    before = tables.rows()
    again = [record._replace(offset=record.offset + 1_000) for record in records]
    assert tables.look(again)
    assert tables.live.tail == []
    assert tables.rows() == before


def test_repeated_part_of_another_clock_says_as_little_in_a_look_as_in_one_fold() -> None:
    stored = grown().records
    last = stored[-1]
    again = last._replace(append_ms=last.append_ms - 10_000, offset=last.offset + 1)
    tables = Tables()
    records = records_of([*stored, again])
    assert tables.look(records[:-1])
    assert tables.look(records[-1:])
    assert tables.rows() == sorted(map(repr, fold([*stored, again])))


def test_header_that_comes_again_after_its_first_was_folded_in_vain_asks_for_the_day() -> None:
    """A day that was built as a whole ended in the middle of a rebalance; its producer sends it once more."""
    history = grown()
    begin = len(history.records)
    history.rebalance({"b": member(2)})
    records = records_of(history.records)
    built = GroupFold()
    for record in records[: begin + 1]:
        list(built.feed(record.value, record.place_ms, record.append_ms))
    ((last, _),), _ = in_order([records[begin]])
    again = [record._replace(offset=record.offset + 100) for record in records[begin:]]
    assert look(Live(0, {}, built.snapshot(), last), again) is None


# -- clocks that go back -----------------------------------------------------------------------------------------------


def played(history: History) -> None:
    """One instance; a second one joins and takes a task over."""
    history.rebalance({"a": member(1)})
    history.later(MINUTE_MS)
    both = {"a": member(1, owned="in-0 in-1 in-2 in-3"), "b": member(2)}
    history.rebalance(both)
    history.last_record(1, "0_1", ago_ms=100)
    history.later(1_000)
    history.rebalance({"a": member(1, owned="in-0 in-2"), "b": member(2)})
    history.later(2_000)
    history.task(2, "0_1", "first_record", since_assigned_us=1)
    history.later(HOUR_MS)


@pytest.mark.parametrize("second", [0, 3, 6, 9])
def test_broker_whose_clock_goes_back_changes_no_order(second: int) -> None:
    history = History(Recorder(num_standby_replicas=0))
    played(history)
    back = [
        record._replace(append_ms=record.append_ms - 10_000 * (record.offset >= second)) for record in history.records
    ]
    outputs = fold(back)
    assert [row["generation"] for row in rows(outputs, "rebalance")] == [1, 2, 3]
    assert {row["epoch"] for row in rows(outputs, "rebalance")} == {0}
    assert not rows(outputs, "move", kind="unknown_base")
    (gap,) = rows(outputs, "gap")
    true_ms = 100 + 1_000 + 2_000
    assert abs(gap["gap_ms"] - true_ms) <= gap["skew_bound_ms"]


def test_events_of_a_topic_with_create_time_are_in_the_order_of_the_topic() -> None:
    """A process that is gone had a clock an hour ahead: its rebalance must not count as the last one."""
    history = History(Recorder(num_standby_replicas=0))
    history.now_ms += HOUR_MS
    three = {"a": member(1), "b": member(2), "c": member(3)}
    history.rebalance(three)
    history.now_ms = START_MS + MINUTE_MS
    history.rebalance({"a": member(1)})
    outputs = fold(history.records)
    assert {row["client"] for row in rows(outputs, "placement_current")} == {str(pid(1))}
    assert STATE_TABLE in {output.table for output in outputs}
