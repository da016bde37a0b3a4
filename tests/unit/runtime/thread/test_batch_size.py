"""The number of records that a task may process per iteration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.runtime.thread.batch_size import BatchSize


def turns(batch: BatchSize, script: str) -> list[tuple[bool, int]]:
    """Each letter is a turn: (q)uick, (f)air, (s)low, (l)ate; (n)othing more to do."""
    seen = []
    for letter in script:
        took_ms = {"f": 8, "s": 40}.get(letter, 1)
        goes_on = batch.should_continue(more=letter != "n", took_ms=took_ms, since_poll_ms=51 if letter == "l" else 50)
        seen.append((goes_on, batch.n))
    return seen


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("qqq", [(True, 2), (True, 4), (True, 8)]),
        ("qqf", [(True, 2), (True, 4), (True, 4)]),
        ("qqqs", [(True, 2), (True, 4), (True, 8), (True, 2)]),
        ("qqn", [(True, 2), (True, 4), (False, 4)]),
        ("qql", [(True, 2), (True, 4), (False, 8)]),
        ("ss", [(True, 1), (True, 1)]),
    ],
)
def test_number_of_records_follows_the_time_that_turns_take(script: str, expected: list[tuple[bool, int]]) -> None:
    assert turns(BatchSize(max_poll_interval_ms=100), script) == expected


@given(st.text("qfsln", max_size=200))
def test_number_of_records_is_never_below_one_and_polling_comes_in_time(script: str) -> None:
    for letter, (goes_on, n) in zip(script, turns(BatchSize(max_poll_interval_ms=100), script), strict=True):
        assert n >= 1
        assert goes_on == (letter not in "nl")
