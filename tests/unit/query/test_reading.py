"""Reads of the query service end in time, whatever a store has."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from streams_py import State, Windowed
from streams_py.query.errors import BadQueryError, OwnerTimeoutError
from streams_py.query.keys import json_text
from streams_py.query.reading import Query, answer_here
from streams_py.state.reading.queryable import QueryableStoreType


class Sessions:
    """Has no end, and nothing from the time that is asked for before that."""

    def __init__(self, unwanted: int | None = None) -> None:
        self._unwanted = unwanted

    def all(self, *, reverse: bool) -> Iterator[tuple[Windowed[str], int]]:
        number = 0
        while True:
            wanted = self._unwanted is not None and number >= self._unwanted
            number += 1
            yield Windowed("k", 50, 60) if wanted else Windowed("k", 1, 2), number


def read(view: Sessions, within_s: float, **options: str) -> dict[str, Any]:
    streams: Any = SimpleNamespace(store=lambda *_, **__: view, state=State.RUNNING)
    query = Query("visits", QueryableStoreType.SESSION, None, {"from": "40", **options})
    return answer_here(streams, query, 0, time.monotonic() + within_s).body


def test_sessions_of_another_time_take_time_too() -> None:
    with pytest.raises(OwnerTimeoutError, match="'visits' took too long"):
        read(Sessions(), 0.01)


def test_as_many_as_are_asked_for_are_read() -> None:
    found = read(Sessions(unwanted=500), 60, limit="2")
    assert [entry["value"] for entry in found["entries"]] == [501, 502]
    assert not found["complete"]


def test_entries_are_no_larger_together_than_an_answer_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand entries of a megabyte each would be the end of the process."""
    monkeypatch.setattr("streams_py.query.reading.ANSWER_BYTES_MAX", 10_000)
    with pytest.raises(BadQueryError, match="more than 10000 bytes; set a lower limit="):
        read(Sessions(unwanted=0), 60, limit="1000")
    assert len(read(Sessions(unwanted=0), 60, limit="100")["entries"]) == 100


def test_answers_are_json_whatever_is_stored() -> None:
    stored = {"nan": math.nan, "more": [math.inf, -math.inf, 1.5], "big": 2**200, "half": "\ud800", "set": {"b", "a"}}

    def refuse(name: str) -> None:
        raise AssertionError(name)

    body = json.loads(json_text({"value": stored}), parse_constant=refuse)
    assert body == {
        "value": {
            "nan": "NaN",
            "more": ["Infinity", "-Infinity", 1.5],
            "big": 2**200,
            "half": "\ud800",
            "set": ["a", "b"],
        }
    }
