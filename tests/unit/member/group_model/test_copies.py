"""Progress of copies from one rebalance to the next."""

from __future__ import annotations

import pytest

from streams_protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from streams_protocol.types import TaskId
from streams_py.member.group_model.copies import Copies, restored

FIRST, SECOND, THIRD = (TaskId(0, number) for number in range(3))
ENDS = {FIRST: 100, SECOND: 100, THIRD: 100}


@pytest.mark.parametrize(
    ("position", "end", "records", "after"),
    [
        (10, 100, 50, 60),
        (60, 100, 50, 100),
        (60, 100, None, 100),
        (100, 100, 50, 100),
        (101, 100, 50, 50),  # the changelog was recreated
        (UNKNOWN_OFFSET_SUM, 100, 50, UNKNOWN_OFFSET_SUM),
        (10, UNKNOWN_OFFSET_SUM, 50, UNKNOWN_OFFSET_SUM),
        (10, UNKNOWN_OFFSET_SUM, None, UNKNOWN_OFFSET_SUM),
    ],
)
def test_copy_gets_as_far_as_its_changelog_and_no_further(
    position: int, end: int, records: int | None, after: int
) -> None:
    assert restored(position, end, records) == after


def test_task_is_at_its_end_when_its_client_reported_it_running() -> None:
    copies = Copies.reported({FIRST: LATEST_OFFSET, SECOND: 7, TaskId(9, 9): LATEST_OFFSET}, ENDS)
    assert (copies[FIRST], copies[SECOND], copies[TaskId(9, 9)]) == (100, 7, UNKNOWN_OFFSET_SUM)


def test_copy_is_empty_when_it_is_opened_and_stays_as_it_is_when_it_was_there() -> None:
    copies = Copies({FIRST: 5})
    copies.open([FIRST, SECOND])
    assert {task: copies[task] for task in copies} == {FIRST: 5, SECOND: 0}


def test_only_what_is_worked_on_gets_further_and_only_what_is_kept_stays() -> None:
    copies = Copies({FIRST: 5, SECOND: 5})
    copies.restore([SECOND, THIRD], ENDS, 20)
    assert {task: copies[task] for task in copies} == {FIRST: 5, SECOND: 25, THIRD: 20}
    copies.keep([SECOND])
    assert list(copies) == [SECOND]
    assert FIRST not in copies


def test_running_tasks_are_reported_as_running_wherever_they_are() -> None:
    copies = Copies({FIRST: 5, SECOND: 6})
    assert copies.report([FIRST, SECOND, THIRD], running=[SECOND]) == {FIRST: 5, SECOND: LATEST_OFFSET, THIRD: 0}
