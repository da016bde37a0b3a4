"""Writes the results of a *look*, without a Spark job: bronze, rows of tables, and the state of the fold.

A look is a micro-batch that is small enough for the driver process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Final

from streams_py.spark.files import Folder
from streams_py.telemetry.bronze import BAD, BRONZE, OK, UNKNOWN
from streams_py.telemetry.fold import Output, day_of
from streams_py.telemetry.live import Live, look
from streams_py.telemetry.order import Record
from streams_py.telemetry.parquet import parquet_of, table_parquet

Row = dict[str, Any]

REFUSED: Final = {"events_bad": BAD, "events_unknown": UNKNOWN}
_REFUSED_COLUMNS: Final = (
    ("topic", "string"), ("partition", "int"), ("offset", "bigint"), ("append_ms", "bigint"), ("reason", "string"),
    ("value", "binary"),
)  # fmt: skip
_LIVE: Final = "_live"
_OPEN: Final = "open.parquet"
_EPOCH: Final = date(1970, 1, 1)
_BRONZE_COLUMNS: Final = [
    (name, kind) for name, kind in (column.split() for column in BRONZE.split(", ")) if name != "day"
]  # the name of the folder contains the day


def day_text(day: int) -> str:
    """Return the text of a day (counted from 1970-01-01) for the names of folders."""
    return (_EPOCH + timedelta(days=day)).isoformat()


def with_places(rows: Iterable[Mapping[str, Any]], before: Mapping[str, int]) -> tuple[list[Row], dict[str, int]]:
    """Add ``place_ms`` and ``day`` to rows of one group and to refused rows.

    Args:
        rows: rows in any order.
        before: ``topic/partition`` -> place of the last event before these rows.

    Returns:
        The rows by partition and offset, and the new last places. Refused rows do not change a place.
    """
    places = dict(before)
    placed = []
    for row in sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"])):
        key = f"{row['topic']}/{row['partition']}"
        place_ms = max(row["append_ms"], places.get(key, row["append_ms"]))
        if row["status"] == OK:
            places[key] = place_ms
        placed.append({**row, "place_ms": place_ms, "day": day_of(place_ms)})
    return placed, places


class LiveTables:
    """The tables of one group, written by the driver. ``partition`` is the group's folder below each table."""

    def __init__(self, files: Folder, group: str, partition: str) -> None:
        self._files = files
        self._group = group
        self._partition = partition
        self._live: Live | None = None

    # -- state of the fold ---------------------------------------------------------------------------------------------

    def load(self) -> Live:
        """Return the state after the last look, or a new state before the first look."""
        if self._live is None:
            names = [name for name in self._files.children(_LIVE) if name.endswith(".json")]
            self._live = Live.from_text(self._files.read_text(_LIVE, names[-1])) if names else Live()
        return self._live

    def save(self, live: Live) -> None:
        """Save the state. This is the last step of a look: if it is interrupted before, the look is repeated."""
        name = f"{live.batch_id:012d}.json"
        self._files.write_bytes(live.to_text().encode(), _LIVE, name)
        for old in self._files.children(_LIVE):
            if old != name:
                self._files.remove(_LIVE, old)
        self._live = live

    # -- a look --------------------------------------------------------------------------------------------------------

    def append(self, rows: Sequence[Row], batch_id: int) -> list[int]:
        """Write placed rows to bronze, and refused rows also to their tables. Returns the days of the rows."""
        by_day = _by_day(rows)
        for day, of_day in by_day.items():
            self._replace(parquet_of(_BRONZE_COLUMNS, of_day), "bronze", f"day={day}", f"batch_id={batch_id}")
        for table, status in REFUSED.items():
            for day, of_day in _by_day(row for row in rows if row["status"] == status).items():
                where = table, f"day={day_text(day)}", f"batch_id={batch_id}"
                self._replace(parquet_of(_REFUSED_COLUMNS, of_day), *where)
        return sorted(by_day)

    def _replace(self, content: bytes, *folder: str) -> None:
        self._files.remove(*folder)
        self._files.write_bytes(content, *folder, "part.parquet")

    def take(self, rows: Sequence[Row], places: Mapping[str, int], batch_id: int) -> bool:
        """Fold placed rows and add the resulting rows to the tables.

        Returns:
            Whether that was possible. It is not if an event belongs before events that are folded already. Then
            nothing is written.
        """
        live = self.load()
        made = look(live, [_record(row) for row in rows if row["status"] == OK])
        if made is None:
            return False
        for (table, day), of_day in _by_place(made.closed).items():
            name = f"look-{batch_id:012d}.parquet"
            self._files.write_bytes(table_parquet(table, of_day), *self._where(table, day), name)
        now_open = self.write_open(made.open_rows)
        for table, day in live.open_rows:
            if (table, day) not in now_open:
                self._files.remove(*self._where(table, day), _OPEN)
        self.save(Live(batch_id, dict(places), made.fold, made.last, made.tail, now_open, live.looks + 1))
        return True

    def write_open(self, rows: Iterable[Output]) -> list[tuple[str, int]]:
        """Write rows that are valid until the next look, one file per table and day; returns the tables and days."""
        by_place = _by_place(rows)
        for (table, day), of_day in by_place.items():
            self._files.write_bytes(table_parquet(table, of_day), *self._where(table, day), _OPEN)
        return sorted(by_place)

    def _where(self, table: str, day: int) -> tuple[str, str, str]:
        return table, self._partition, f"day={day_text(day)}"


def _record(row: Mapping[str, Any]) -> Record:
    return Record(
        row["place_ms"], row["partition"], row["offset"], row["append_ms"], bytes(row["value"]), row["rebalance_id"],
        row["part"], row["parts"],
    )  # fmt: skip


def _by_day(rows: Iterable[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["day"]].append(row)
    return found


def _by_place(outputs: Iterable[Output]) -> dict[tuple[str, int], list[Row]]:
    found: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for made in outputs:
        found[made.table, made.day].append(made.row)
    return found
