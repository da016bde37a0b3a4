"""Reads the tables of a telemetry folder as plain rows, with pyarrow alone: a report needs no JVM."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from streams_py.errors import ConfigError
from streams_py.spark.tables.schemas import TABLES

__all__ = ["Row", "Tables", "read_tables"]

Row = Mapping[str, Any]

_MARKER: Final = "telemetry.json"
_ATTEMPTS: Final = 2
_UNREAD: Final = ("rebalance_input",)
"""Large, and for the laboratory."""
_ALL_DAYS: Final = ("rebalance", "balance_summary", "move", "restore", "gap", "warmup", "offender")
_ONE_REBALANCE: Final = ("placement", "balance", "spread")
"""Of these only the last rebalance is shown."""


@dataclass(frozen=True, slots=True)
class Tables:
    """``rows`` by table; every table is there, perhaps empty. Instants are datetimes in UTC."""

    group: str
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)

    def __getitem__(self, table: str) -> Sequence[Row]:
        return self.rows.get(table, ())


def read_tables(folder: str | Path) -> Tables:
    """The tables in a folder that telemetry has filled. ConfigError when it is none.

    A running telemetry replaces folders; a file that vanished in between is looked for once more.
    """
    root = Path(folder)
    try:
        group = json.loads((root / _MARKER).read_text(encoding="utf-8"))["group"]
    except (OSError, ValueError, KeyError):
        raise ConfigError(
            f"{root} holds no telemetry tables; make them with `telemetry run --tables {root}` first"
        ) from None
    for attempt in range(_ATTEMPTS):
        try:
            return Tables(str(group), _all_rows(root))
        except FileNotFoundError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def _all_rows(root: Path) -> dict[str, list[Row]]:
    rows = {table: _rows(root / table) for table in _ALL_DAYS}
    ok = [(row["at"], row["rebalance_id"]) for row in rows["rebalance"] if row["outcome"] == "ok"]
    last = max(ok, default=None)
    for table in _ONE_REBALANCE:
        rows[table] = [] if last is None else _rows(root / table, ds.field("rebalance_id") == last[1])
    rows["placement_current"] = _latest_day(root / "placement_current")
    return rows


def _rows(folder: Path, where: Any = None) -> list[Row]:
    if not folder.is_dir():
        return []
    dataset = ds.dataset(str(folder), format="parquet", partitioning=_partitioning())
    table = dataset.to_table(filter=where)
    found: list[Row] = table.to_pylist(maps_as_pydicts="lossy")
    return found


def _latest_day(folder: Path) -> list[Row]:
    if not folder.is_dir():
        return []
    dataset = ds.dataset(str(folder), format="parquet", partitioning=_partitioning())
    days = [day for day in dataset.to_table(columns=["day"]).column("day").to_pylist() if isinstance(day, date)]
    if not days:
        return []
    found: list[Row] = dataset.to_table(filter=ds.field("day") == max(days)).to_pylist()
    return found


def _partitioning() -> Any:
    return ds.HivePartitioning(pa.schema([("group", pa.string()), ("day", pa.date32())]))


assert set(_ALL_DAYS) | set(_ONE_REBALANCE) | set(_UNREAD) | {"placement_current"} == TABLES.keys()
