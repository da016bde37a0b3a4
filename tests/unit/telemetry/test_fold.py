"""The tables of a group, in one pass over its events, without Spark."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams_py.events.codec import encode_value
from streams_py.events.model import RebalanceHeader
from streams_py.telemetry.fold import GroupFold, Output, day_of
from streams_py.telemetry.schemas import STATE_TABLE, TABLES
from tests.support.events.kit import Recorder
from tests.support.leader.kit import STATELESS, FakeCluster, member
from tests.support.telemetry.history import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    START_MS,
    History,
    cluster,
    fold,
    moved,
    rows,
    shuffled,
)
from tests.support.telemetry.long_history import ALL, P1, P2, grown, long_history, running, split_ddl


def test_every_row_has_the_columns_of_its_table() -> None:
    history = grown()
    history.task(2, "0_1", "restore_started", records_total=10, stores=("counts",))
    history.task(2, "0_1", "restored", records=10, took_us=5_000)
    history.last_record(1, "0_1")
    history.task(2, "0_1", "first_record")
    outputs = fold(history.records)
    assert {output.table for output in outputs} - {STATE_TABLE} <= TABLES.keys()
    for table, row in ((output.table, output.row) for output in outputs if output.table != STATE_TABLE):
        names = [column.split()[0] for column in split_ddl(TABLES[table].columns)]
        assert list(row) == names, table
        assert set(TABLES[table].key) <= set(names)
        json.dumps(row)


def test_keys_are_unique() -> None:
    for table, definition in TABLES.items():
        found = [tuple(str(row[key]) for key in definition.key) for row in rows(fold(grown().records), table)]
        assert len(found) == len(set(found)), table


def test_rebalances_are_in_order_with_their_triggers() -> None:
    found = rows(fold(grown().records), "rebalance")
    assert [row["generation"] for row in found] == [1, 2, 3]
    assert [row["trigger"] for row in found] == [["first"], ["member_joined"], ["revocation_done"]]
    assert [row["at"] for row in found] == [START_MS, START_MS + MINUTE_MS, START_MS + MINUTE_MS + 1_000]
    assert [row["stable"] for row in found] == [True, False, True]
    assert [row["withheld"] for row in found] == [0, 2, 0]


def test_every_task_is_active_once_in_every_rebalance() -> None:
    outputs = fold(grown().records)
    for rebalance in rows(outputs, "rebalance"):
        active = rows(outputs, "placement", rebalance_id=rebalance["rebalance_id"], role="active")
        assert sorted(row["task"] for row in active) == ["0_0", "0_1", "0_2", "0_3"]


def test_withheld_task_is_with_both_and_moves_once_when_it_is_handed_over() -> None:
    outputs = fold(grown().records)
    first, second, third = (row["rebalance_id"] for row in rows(outputs, "rebalance"))
    withheld = rows(outputs, "placement", rebalance_id=second, role="target")
    assert {row["client"] for row in withheld} == {P2}
    assert all(row["withheld"] for row in withheld)
    for row in withheld:
        (old,) = rows(outputs, "placement", rebalance_id=second, role="active", task=row["task"])
        assert old["client"] == P1
        assert old["reason"] == "not_released"
    assert [row["kind"] for row in rows(outputs, "move", rebalance_id=first)] == ["start"] * 4
    assert rows(outputs, "move", rebalance_id=second) == []
    handed_over = rows(outputs, "move", rebalance_id=third)
    assert [row["kind"] for row in handed_over] == ["move_warm"] * 2
    assert {(row["from_client"], row["to_client"], row["restore_records"]) for row in handed_over} == {(P1, P2, 10)}


@pytest.mark.parametrize(
    ("reported", "kind", "records"),
    [
        (None, "move_cold", 1_000),
        (1_000, "move_free", 0),
        (10, "move_cold", 990),
        (999, "move_warm", 1),
        (1_500, "move_cold", 1_000),  # beyond the end: the copy is not of this changelog
        (-3, "move_cold", None),
    ],
)
def test_kind_of_a_move_follows_from_the_new_owners_lag(reported: int | None, kind: str, records: int | None) -> None:
    history = History(Recorder(acceptable_recovery_lag=500))
    one = cluster(1)
    history.rebalance({"a": member(1, owned="in-0", sums=running(0))}, on=one)
    history.rebalance({"a": member(1, owned="in-0", sums=running(0)), "b": member(2)}, on=one)
    history.rebalance({"b": member(2, sums={} if reported is None else {"0_0": reported})}, on=one)
    (row,) = rows(fold(history.records), "move", task="0_0", from_client=P1)
    assert (row["kind"], row["restore_records"]) == (kind, records)


def test_stateless_task_moves_for_free() -> None:
    history = History()
    history.rebalance({"a": member(1)}, STATELESS)
    history.rebalance({"b": member(2)}, STATELESS)
    found = rows(fold(history.records), "move", from_client=P1)
    assert {row["kind"] for row in found} == {"move_free"}
    assert {row["restore_records"] for row in found} == {None}


def test_copies_that_come_and_go_are_rows() -> None:
    history = History(Recorder(num_standby_replicas=1))
    history.rebalance({"a": member(1)})
    history.rebalance({"a": member(1, owned=ALL, sums=running(0, 1, 2, 3)), "b": member(2)})
    outputs = fold(history.records)
    kinds = {row["kind"] for row in rows(outputs, "move") if row["to_client"] == P2}
    assert kinds <= {"standby_add", "warmup_add"}
    assert len(kinds) >= 1


def test_nothing_is_invented_over_a_hole_in_the_generations() -> None:
    history = grown()
    history.recorder.generation += 2  # two rounds were led by somebody who does not record
    history.rebalance({"b": member(2, owned=ALL, sums=running(0, 1, 2, 3))})
    outputs = fold(history.records)
    last = rows(outputs, "rebalance")[-1]
    assert last["trigger"] == ["unknown"]
    (row,) = rows(outputs, "move", rebalance_id=last["rebalance_id"])
    assert row["kind"] == "unknown_base"


def test_first_recorded_rebalance_of_an_old_group_has_no_base() -> None:
    history = History()
    history.rebalance({"a": member(1, owned=ALL)})
    (row,) = rows(fold(history.records), "move")
    assert row["kind"] == "unknown_base"


def test_failed_rebalance_leaves_no_hole() -> None:
    history = History()
    history.rebalance({"a": member(1)})
    history.rebalance({"a": member(1)}, on=FakeCluster({}))
    history.rebalance({"b": member(2)})
    outputs = fold(history.records)
    assert [row["outcome"] for row in rows(outputs, "rebalance")] == ["ok", "error_assignment", "ok"]
    assert rows(outputs, "rebalance")[1]["error_type"] == "MissingSourceTopicError"
    assert not rows(outputs, "move", kind="unknown_base")
    assert len(rows(outputs, "rebalance_input")) == 2


def test_group_that_was_deleted_begins_a_new_epoch() -> None:
    history = grown()
    history.later(HOUR_MS)
    history.recorder = Recorder(member="another")
    history.rebalance({"a": member(1)})
    found = rows(fold(history.records), "rebalance")
    assert [row["epoch"] for row in found] == [0, 0, 0, 1]
    assert [row["kind"] for row in rows(fold(history.records), "move", rebalance_id=found[-1]["rebalance_id"])] == [
        "unknown_base"
    ]


# -- late, repeated, shuffled ------------------------------------------------------------------------------------------


def days(outputs: list[Output], low: int, high: int) -> list[Output]:
    return [output for output in outputs if low <= output.day < high]


def state_before(outputs: list[Output], day: int) -> str | None:
    states = [output for output in outputs if output.table == STATE_TABLE and output.day < day]
    return states[-1].row["state"] if states else None


def test_long_history_fills_every_table() -> None:
    assert {output.table for output in fold(long_history().records)} == {*TABLES, STATE_TABLE}


def test_order_of_arrival_in_a_batch_does_not_matter() -> None:
    records = long_history().records
    assert fold(shuffled(records, 3)) == fold(records)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 6))
def test_days_done_again_from_a_state_are_the_same(offset: int) -> None:
    records = long_history().records
    whole = fold(records)
    day = day_of(START_MS) + offset
    again = fold(records, state_before(whole, day), from_day=day)
    assert again == days(whole, day, 10**9)


def test_repeated_records_change_nothing() -> None:
    records = long_history().records
    repeated = [moved(record, record.append_ms, 10_000 + n) for n, record in enumerate(records)]
    tables = [output for output in fold(records + repeated) if output.table != STATE_TABLE]
    assert tables == [output for output in fold(records) if output.table != STATE_TABLE]


def test_last_part_that_comes_a_day_later_repairs_the_tables() -> None:
    history = History()
    history.rebalance({"a": member(1)})
    history.later(20 * DAY_MS)  # the one before is weeks old
    late = history.rebalance({"b": member(2), "c": member(3)})
    history.later(2 * DAY_MS)
    history.rebalance({"c": member(3)})
    whole = fold(history.records)
    last = next(r for r in history.records if r.value == encode_value(late[-1]))
    rest = [record for record in history.records if record is not last]
    arrived = moved(last, last.append_ms + DAY_MS, 10_000)
    incomplete = fold(rest)
    assert len(rows(incomplete, "rebalance")) == 2
    assert rows(incomplete, "move", kind="unknown_base")
    day = day_of(last.append_ms)  # the header's
    repaired = days(incomplete, 0, day) + fold([*rest, arrived], state_before(incomplete, day), from_day=day)
    assert repaired == whole
    assert not rows(whole, "move", kind="unknown_base")


def test_rebalance_without_its_last_part_is_not_there() -> None:
    history = grown()
    del history.records[-1]
    assert [row["generation"] for row in rows(fold(history.records), "rebalance")] == [1, 2]


def test_record_of_a_newer_version_is_passed_over() -> None:
    history = grown()
    value = history.records[0].value.replace(b'"v":1', b'"v":2', 1)
    made = GroupFold()
    assert list(made.feed(value, START_MS, START_MS)) == []


# -- what is in progress -----------------------------------------------------------------------------------------------


def test_restoration_is_done_interrupted_or_running() -> None:
    history = grown()
    history.task(2, "0_2", "restore_started", records_total=10, stores=("counts",))
    history.task(2, "0_2", "restore_started", records_total=10, stores=("other",))
    history.task(2, "0_2", "restored", records=20, took_us=2_000_000)
    history.task(2, "0_3", "restore_started", records_total=10, stores=("counts",))
    history.later(3_000)
    history.task(2, "0_3", "lost")
    history.task(1, "0_0", "restore_started", records_total=10, stores=("counts",))
    found = rows(fold(history.records), "restore")
    assert [(row["task"], row["outcome"], row["records"], row["took_ms"]) for row in found] == [
        ("0_2", "done", 20, 2_000), ("0_3", "interrupted", None, 3_000), ("0_0", "running", None, None),
    ]  # fmt: skip
    assert found[0]["records_per_s"] == 10


def test_restoration_of_a_process_that_was_killed_is_interrupted() -> None:
    history = grown()
    history.task(2, "0_2", "restore_started", records_total=10, stores=("counts",))
    history.task(1, "0_0", "restore_started", records_total=10, stores=("counts",))
    history.task(1, "0_0", "restore_progress", records_done=4, records_total=10)
    history.later(60_000)
    history.starts[2] = 1  # with the same state directory, so the same process id
    history.task(2, "0_2", "restore_started", records_total=9, stores=("counts",))
    history.later(1_000)
    history.task(2, "0_2", "restored", records=9, took_us=1_000_000)
    for _ in range(3):
        history.later(24 * 3_600_000)
        history.sample(2, busy_us=[1])
    days: dict[tuple[str, str], list[str]] = {}
    for output in fold(history.records):
        if output.table == "restore":
            days.setdefault((output.row["task"], output.row["process"]), []).append(output.row["outcome"])
    assert days == {("0_2", P2): ["interrupted", "done"], ("0_0", P1): ["running", "interrupted"]}


def test_warm_up_is_timed_from_first_copy_to_promotion() -> None:
    history = History(Recorder(acceptable_recovery_lag=50))
    two = cluster(2)
    alone = member(1, owned="in-0 in-1", sums=running(0, 1))
    history.rebalance({"a": alone, "b": member(2)}, on=two)
    (warm,) = rows(fold(history.records), "placement", role="warmup")
    history.later(10 * MINUTE_MS)
    history.rebalance({"a": alone, "b": member(2, sums={warm["task"]: 900})}, on=two)
    history.later(10 * MINUTE_MS)
    history.rebalance({"a": alone, "b": member(2, sums={warm["task"]: 960})}, on=two)
    (row,) = rows(fold(history.records), "warmup")
    assert (row["task"], row["client"], row["created"]) == (warm["task"], P2, START_MS)
    assert row["warm_at"] == row["promoted_at"] == START_MS + 20 * MINUTE_MS
    assert (row["created_to_warm_ms"], row["warm_to_promoted_ms"], row["rebalances_between"]) == (1_200_000, 0, 2)


def test_hot_task_is_named_with_the_reason() -> None:
    history = grown()
    for _ in range(3):
        history.task(1, "0_3", "restore_started", records_total=1, stores=("s",))
        history.task(1, "0_3", "restored", records=1, took_us=1)
    for store in ("a", "b", "c"):  # of a writer that names each
        history.task(1, "0_2", "restore_started", records_total=1, stores=(store,))
    history.later(2 * MINUTE_MS)
    for window in range(5):
        for number in range(3):
            lag = window * 1_000 + number * 10
            history.sample(1, busy_us=[800, 100, 50, 50], input_lag=[0, lag, 5, None])
            history.later(200_000)
    found = rows(fold(history.records), "offender")
    assert {row["task"]: row["why"] for row in found if row["window"] == START_MS} == {"0_0": "busy", "0_3": "restores"}
    busy = next(row for row in found if row["task"] == "0_0")
    assert busy["score"] == pytest.approx(3.2)
    assert busy["busy_share"] == pytest.approx(0.8)
    lagging = [row for row in found if row["task"] == "0_1"]
    assert [row["why"] for row in lagging] == ["lag"] * 2  # from the third window on
    assert all(row["lag_trend_per_s"] > 0 for row in lagging)


def test_current_placement_says_since_when_and_in_which_state() -> None:
    history = grown()
    history.task(1, "0_0", "running")
    history.task(2, "0_1", "created")
    found = {(row["task"], row["client"]): row for row in rows(fold(history.records), "placement_current")}
    assert found["0_0", P1]["state"] == "running"
    assert found["0_0", P1]["since"] == START_MS
    assert found["0_1", P2]["state"] == "created"
    assert found["0_1", P2]["since"] == START_MS + MINUTE_MS + 1_000


# -- balance, spread, input --------------------------------------------------------------------------------------------


def test_balance_is_that_of_the_decision() -> None:
    outputs = fold(grown().records)
    second = rows(outputs, "rebalance")[1]["rebalance_id"]
    clients = rows(outputs, "balance", rebalance_id=second)
    assert [(row["client"], row["capacity"], row["active"], row["stateful"]) for row in clients] == [
        (P1, 1, 2, 2),
        (P2, 1, 2, 2),
    ]
    (summary,) = rows(outputs, "balance_summary", rebalance_id=second)
    assert (summary["max_min_active"], summary["cv_active"], summary["max_over_mean"]) == (0, 0.0, 1.0)
    assert summary["max_sub_skew"] == 0
    assert summary["weighted_max_over_mean"] is None


def test_weight_is_the_share_of_work_that_samples_have_told_of() -> None:
    history = grown()
    both = {
        "a": member(1, owned="in-0 in-2", sums=running(0, 2)),
        "b": member(2, owned="in-1 in-3", sums=running(1, 3)),
    }

    def weights() -> tuple[dict[str, float | None], float | None]:
        history.rebalance(both)
        outputs = fold(history.records)
        last = rows(outputs, "rebalance")[-1]["rebalance_id"]
        (summary,) = rows(outputs, "balance_summary", rebalance_id=last)
        found = {row["client"]: row["weight"] for row in rows(outputs, "balance", rebalance_id=last)}
        return found, summary["weighted_max_over_mean"]

    history.sample(1, busy_us=[300, 100])  # of 0_0 and 0_1; nothing of the others
    assert weights() == ({P1: None, P2: None}, None)
    history.sample(2, busy_us=[100, 100, 200, 200])
    assert weights() == ({P1: pytest.approx(0.6), P2: pytest.approx(0.4)}, pytest.approx(1.2))
    history.later(11 * MINUTE_MS)  # the window before still counts
    assert weights()[0][P1] == pytest.approx(0.6)
    history.later(25 * MINUTE_MS)
    assert weights() == ({P1: None, P2: None}, None)


def test_header_alone_that_says_too_large_is_a_rebalance_without_contents() -> None:
    history = grown()
    (event,) = [e for e in history.rebalance({"a": member(1)}) if isinstance(e.body, RebalanceHeader)]
    assert event.body.parts > 1
    assert len(rows(fold(history.records), "rebalance")) == 4
