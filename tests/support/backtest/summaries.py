"""Rows of scores, and their summary."""

from __future__ import annotations

from typing import Any

from streams_py.backtest.kernel import COLUMNS, Row
from streams_py.backtest.summary import Summary, summarise


def row(candidate: str, number: int, **scores: Any) -> Row:
    made: Row = dict.fromkeys(COLUMNS)
    return made | {
        "input_hash": f"{number:064x}", "scenario": "", "candidate": candidate, "seen": 1, "valid": "ok", **scores
    }  # fmt: skip


def many(candidate: str, values: list[float], metric: str = "unavailable_records", **scores: Any) -> list[Row]:
    return [row(candidate, number, **{metric: value}, **scores) for number, value in enumerate(values)]


def summary_of(*parts: list[Row], base: str | None = None) -> Summary:
    rows = [one for part in parts for one in part]
    return summarise(rows, list(dict.fromkeys(one["candidate"] for one in rows)), [""], base=base)
