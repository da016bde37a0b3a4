"""What a look at the topic writes without a job: bronze, rows of tables, and where the fold stands. Driver only."""

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

__all__ = ["REFUSED", "LiveTables", "day_text", "with_places"]

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
]  # the folder says the day


def day_text(day: int) -> str:
    """A day counted from 1970-01-01 as text, the way folders name it."""
    return (_EPOCH + timedelta(days=day)).isoformat()


def with_places(rows: Iterable[Mapping[str, Any]], before: Mapping[str, int]) -> tuple[list[Row], dict[str, int]]:
    """Rows of one group and refused ones, as they were read, by partition and offset with their ``place_ms`` and
    ``day``; and the last place of each ``topic/partition``, which refused ones do not move. ``before``: the places of
    the records before."""
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
    """``partition`` is the folder of the group below a table."""

    def __init__(self, files: Folder, group: str, partition: str) -> None:
        self._files = files
        self._group = group
        self._partition = partition
        self._live: Live | None = None

    # -- where the fold stands -----------------------------------------------------------------------------------------

    def load(self) -> Live:
        """As the last look has left it; a new one where there was none."""
        if self._live is None:
            names = [name for name in self._files.children(_LIVE) if name.endswith(".json")]
            self._live = Live.from_text(self._files.read_text(_LIVE, names[-1])) if names else Live()
        return self._live

    def save(self, live: Live) -> None:
        """The last step of a look: before it, the look is repeated."""
        name = f"{live.batch_id:012d}.json"
        self._files.write_bytes(live.to_text().encode(), _LIVE, name)
        for old in self._files.children(_LIVE):
            if old != name:
                self._files.remove(_LIVE, old)
        self._live = live

    # -- a look --------------------------------------------------------------------------------------------------------

    def append(self, rows: Sequence[Row], batch_id: int) -> list[int]:
        """Write placed rows to bronze, and the refused ones to their tables; the days of what was written."""
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
        """Fold placed rows, and add to the tables what comes out. False, with nothing written, when they do not simply
        go on from what is folded."""
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
        """Write rows that hold until the next look, each table and day to a file of its own; those tables and days."""
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
