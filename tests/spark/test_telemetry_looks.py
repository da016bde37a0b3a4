"""Tables are the same whether looks fold new events from the saved state, or days are built completely."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streams_py.telemetry.schemas import TABLES
from tests.support.spark.telemetry import check_tables, expected, rows_of
from tests.support.telemetry.golden import stored
from tests.support.telemetry.history import Stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streams_py.spark.telemetry import TableFolder

pytestmark = pytest.mark.timeout(900)

GROUP = "app"
RECORDS = "topic string, partition int, offset bigint, timestamp_ms bigint, value binary"


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Callable[[], TableFolder]:
    """The same folder, opened again as after a restart."""
    from streams_py.spark.telemetry import TableFolder

    def opened() -> TableFolder:
        made = TableFolder(spark, str(tmp_path / "tables"), GROUP)
        made.claim()
        (tmp_path / "tables" / "_checkpoint").mkdir(exist_ok=True)  # as the streaming query does, without which we add
        return made

    return opened


def add(spark: SparkSession, tables: TableFolder, records: list[Stored], batch_id: int, *others: bytes) -> None:
    rows = [("events", 0, record.offset, record.append_ms, record.value) for record in records]
    rows += [("events", 0, 10_000 + number, records[-1].append_ms, value) for number, value in enumerate(others)]
    tables.add(spark.createDataFrame(rows, RECORDS), batch_id)


def fails(*arguments: Any) -> Any:
    raise AssertionError("a look needs no job that builds days")


def test_look_at_new_events_builds_no_day_and_a_killed_one_is_done_again(
    spark: SparkSession, folder: Callable[[], TableFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    from streams_py.spark.live_tables import LiveTables
    from streams_py.spark.telemetry import TableFolder

    monkeypatch.setattr(TableFolder, "_rebuild", fails)  # an error at this step
    records = stored()
    other = records[0].value.replace(b'"group":"app"', b'"group":"another"', 1)
    tables = folder()
    add(spark, tables, records[:12], 0, b"garbage", other)
    add(spark, tables, records[12:24], 1)
    with monkeypatch.context() as killed:
        killed.setattr(LiveTables, "save", fails)
        with pytest.raises(AssertionError):
            add(spark, tables, records[24:], 2)
    tables = folder()
    add(spark, tables, records[24:], 2)
    add(spark, tables, records[24:], 2)  # told again, and done already
    root = Path(tables.files.root)
    check_tables(spark, root, expected(records), *TABLES)
    assert {path.name for path in root.rglob("look-*.parquet")} == {f"look-{n:012d}.parquet" for n in range(3)}
    (bad,) = spark.read.parquet(str(root / "events_bad")).collect()
    assert bytes(bad["value"]) == b"garbage"
    assert spark.read.parquet(str(root / "bronze")).count() == len(records) + 1


@pytest.mark.parametrize("look_records_max", [5_000, 0], ids=["looks", "days"])
def test_clock_of_another_group_and_of_garbage_moves_nothing(
    look_records_max: int, spark: SparkSession, folder: Callable[[], TableFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups may write to one topic, which may have CreateTime."""
    from streams_py.spark.build import bronze_of, build

    monkeypatch.setattr("streams_py.spark.telemetry._LOOK_RECORDS_MAX", look_records_max)
    records = stored()
    hour_later = records[11].append_ms + 3_600_000
    other = records[0].value.replace(b'"group":"app"', b'"group":"another"', 1)
    between = [(1_000 * records[11].offset + n, hour_later, value) for n, value in enumerate((other, b"garbage"), 1)]
    mine = [(1_000 * record.offset, record.append_ms, record.value) for record in records]
    rows = [("events", 0, *row) for row in sorted([*mine, *between])]
    tables = folder()
    for batch_id, (start, end) in enumerate([(0, 5), (5, 13), (13, 20), (20, len(rows))]):  # also between these two
        tables.add(spark.createDataFrame(rows[start:end], RECORDS), batch_id)
    root = Path(tables.files.root)
    check_tables(spark, root, expected(records), *TABLES)
    together = build(bronze_of(spark.createDataFrame(rows, RECORDS)))["rebalance"].where(f"group = '{GROUP}'")
    assert rows_of(together) == expected(records)["rebalance"]


def test_looks_and_whole_days_in_turn_make_the_same_tables(
    spark: SparkSession, folder: Callable[[], TableFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams_py.spark.telemetry._LOOKS_MAX", 1)
    day_ms = 86_400_000
    records = [r._replace(append_ms=r.append_ms + (number // 20) * day_ms) for number, r in enumerate(stored())]
    tables = folder()
    for batch_id, start in enumerate(range(0, len(records), 14)):  # a look, a day, a look, ...
        add(spark, tables, records[start : start + 14], batch_id)
    check_tables(spark, Path(tables.files.root), expected(records), *TABLES)
