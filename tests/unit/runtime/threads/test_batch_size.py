"""How many records a task may process per turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.runtime.threads.batch_size import BatchSize


def turns(batch: BatchSize, script: str) -> list[tuple[bool, int]]:
    """Each letter is a turn: (p)rocessed, punc(t)uated, (c)ommitted, (l)ate, (n)othing, (r)efused commit."""
    seen = []
    for letter in script:
        goes_on = batch.goes_on(
            processed=int(letter != "n"),
            punctuated=int(letter == "t"),
            committed={"c": 1, "r": -1}.get(letter, 0),
            since_poll_ms=51 if letter == "l" else 50,
        )
        seen.append((goes_on, batch.n))
    return seen


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("ppp", [(True, 2), (True, 3), (True, 4)]),
        ("pppt", [(True, 2), (True, 3), (True, 4), (True, 2)]),
        ("pppc", [(True, 2), (True, 3), (True, 4), (True, 2)]),
        ("pppl", [(True, 2), (True, 3), (True, 4), (False, 2)]),
        ("pr", [(True, 2), (True, 3)]),
        ("pn", [(True, 2), (False, 2)]),
        ("ttl", [(True, 1), (True, 1), (False, 1)]),
    ],
)
def test_number_of_records_follows_the_script(script: str, expected: list[tuple[bool, int]]) -> None:
    assert turns(BatchSize(max_poll_interval_ms=100), script) == expected


@given(st.text("ptclnr", max_size=200))
def test_number_of_records_is_never_below_one_and_polling_comes_in_time(script: str) -> None:
    for letter, (goes_on, n) in zip(script, turns(BatchSize(max_poll_interval_ms=100), script), strict=True):
        assert n >= 1
        assert goes_on == (letter not in "nl")
