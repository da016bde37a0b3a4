"""Reads the tables of a telemetry folder as plain rows, only with pyarrow, so a report does not need a JVM."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from streams_py.errors import ConfigError
from streams_py.telemetry.delta import delta_files, is_delta
from streams_py.telemetry.schemas import TABLES

__all__ = ["REBALANCES_MAX", "Row", "Tables", "read_tables"]

Row = Mapping[str, Any]

REBALANCES_MAX: Final = 400
"""Number of the last rebalances that are read. Other events are read from the first day of these on."""

_MARKER: Final = "telemetry.json"
_ATTEMPTS: Final = 2
_UNREAD: Final = ("rebalance_input",)
"""Tables that are not read: large, and only for the backtest."""
_OF_REBALANCES: Final = ("rebalance", "balance_summary", "move")
_OF_DAYS: Final = ("restore", "gap", "warmup", "offender")
_ONE_REBALANCE: Final = ("placement", "balance", "spread")
"""Tables of which only the last rebalance is read."""
_ORDER: Final = ["at", "epoch", "generation", "rebalance_id", "day", "outcome", "trigger"]


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a group.

    Attributes:
        group: the group.
        rows: table -> rows. Every table exists, but may be empty. Times are datetimes in UTC.
        rebalances: number of all rebalances, including unread ones.
        timeline: columns ``at``, ``trigger`` and ``outcome`` of all rebalances, for a chart over time.
    """

    group: str
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    rebalances: int = 0
    timeline: Sequence[Row] = ()

    def __getitem__(self, table: str) -> Sequence[Row]:
        return self.rows.get(table, ())


def read_tables(folder: str | Path) -> Tables:
    """Read the tables in a folder of telemetry. Raises ConfigError when the folder has no tables of telemetry.

    A running telemetry job replaces folders. If a file disappears while it is read, the tables are read again.
    """
    root = Path(folder)
    try:
        group = json.loads((root / _MARKER).read_text(encoding="utf-8"))["group"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{root} has no telemetry tables; create them first: `streams-py telemetry run --group GROUP --tables "
            f"{root}`"
        ) from None
    for attempt in range(_ATTEMPTS):
        try:
            return _read(root, str(group))
        except FileNotFoundError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def _read(root: Path, group: str) -> Tables:
    of_group = ds.field("group") == group
    order = _dataset(root / "rebalance")
    known = [] if order is None else order.to_table(columns=_ORDER, filter=of_group).to_pylist()
    known.sort(key=lambda row: tuple(row[name] for name in _ORDER if name != "trigger"))
    shown = known[-REBALANCES_MAX:]
    since = of_group & (ds.field("day") >= min((row["day"] for row in shown), default=date.min))
    of_shown = since & ds.field("rebalance_id").isin([row["rebalance_id"] for row in shown])
    rows = {table: _rows(root / table, of_shown) for table in _OF_REBALANCES}
    rows |= {table: _rows(root / table, since) for table in _OF_DAYS}
    last = next((row["rebalance_id"] for row in reversed(shown) if row["outcome"] == "ok"), None)
    of_last = since & (ds.field("rebalance_id") == last)
    for table in _ONE_REBALANCE:
        rows[table] = [] if last is None else _rows(root / table, of_last)
    rows["placement_current"] = _latest_day(root / "placement_current", of_group)
    return Tables(group, rows, len(known), known)


def _dataset(folder: Path) -> Any:
    if not folder.is_dir():
        return None
    if not is_delta(folder):
        return ds.dataset(str(folder), format="parquet", partitioning=_partitioning())
    files = delta_files(folder)
    return ds.dataset(
        files, format="parquet", partitioning=_partitioning(), partition_base_dir=str(folder), schema=_schema(files)
    )


def _schema(files: list[str]) -> Any:
    """Return the schema of the files, with the columns that only the names of folders contain."""
    of_folders = pa.schema([("group", pa.string()), ("day", pa.date32())])
    return pa.unify_schemas([of_folders, pq.read_schema(files[0])]) if files else of_folders


def _rows(folder: Path, where: Any) -> list[Row]:
    dataset = _dataset(folder)
    if dataset is None:
        return []
    found: list[Row] = dataset.to_table(filter=where).to_pylist(maps_as_pydicts="lossy")
    return found


def _latest_day(folder: Path, of_group: Any) -> list[Row]:
    dataset = _dataset(folder)
    if dataset is None:
        return []
    days = dataset.to_table(columns=["day"], filter=of_group).column("day").unique().to_pylist()
    return _rows(folder, of_group & (ds.field("day") == max(days))) if days else []


def _partitioning() -> Any:
    return ds.HivePartitioning(pa.schema([("group", pa.string()), ("day", pa.date32())]))


assert {*_OF_REBALANCES, *_OF_DAYS, *_ONE_REBALANCE, *_UNREAD, "placement_current"} == TABLES.keys()
