"""Telemetry in Spark: the tables of golden events, as a stream and as a batch, on a real broker."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from streams_py.cli.spark.telemetry import app
from streams_py.errors import ConfigError
from streams_py.telemetry.schemas import LIVE, TABLES
from tests.support.spark.cluster import Cluster
from tests.support.spark.source import produce
from tests.support.spark.telemetry import GROUP, append, check_tables, expected, rows_of
from tests.support.system.file_locks import held_elsewhere
from tests.support.telemetry.golden import stored
from tests.support.telemetry.history import Stored, fold, shuffled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]


@pytest.fixture
def run(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> Callable[..., Path]:
    """Reads a topic to its end into a folder of tables."""
    from streams_py.spark.telemetry import start_telemetry

    def once(topic: str, **options: Any) -> Path:
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "topics": topic}
        given |= {key.replace("_", "."): str(value) for key, value in options.items()}
        query = start_telemetry(spark, GROUP, str(tmp_path / "tables"), given, once=True)
        assert query.awaitTermination(600)
        return tmp_path / "tables"

    return once


def check_batch(frame: DataFrame, records: list[Stored]) -> None:
    """The tables of one `build()`, however the records are distributed."""
    from streams_py.spark.build import bronze_of, build, fold_events

    bronze = bronze_of(frame.orderBy("value").repartition(3)).persist()
    folded = [row for row in fold_events(bronze).collect() if row["table"] != LIVE]
    found = Counter((row["table"], row["day"], row["row"]) for row in folded)
    wanted = fold(records)
    assert found == Counter((made.table, made.day, json.dumps(made.row, ensure_ascii=False)) for made in wanted)
    tables = build(bronze)
    assert tables.keys() == {*TABLES, "state", "events_bad", "events_unknown"}
    assert rows_of(tables["move"]) == expected(records)["move"]
    bronze.unpersist()


@pytest.mark.parametrize("rows_per_trigger", [25, pytest.param(1, marks=pytest.mark.weekly)])
def test_stream_and_batch_make_the_same_tables(
    rows_per_trigger: int,
    spark: SparkSession,
    cluster: Cluster,
    run: Callable[..., Path],
    options: Callable[..., dict[str, str]],
) -> None:
    topic = cluster.topic(1)
    records = stored()
    others = records[0].value.replace(b'"group":"app"', b'"group":"another"', 1)
    append(cluster, topic, records, b"garbage", records[0].value.replace(b'"v":1', b'"v":2', 1), others)
    folder = run(topic, rows_per_trigger=rows_per_trigger)
    wanted = expected(records)
    check_tables(spark, folder, wanted, *TABLES)
    mine = json.dumps({topic: {"0": len(records)}})
    check_batch(spark.read.format("streams-kafka").options(**options(topics=topic, ending=mine)).load(), records)
    (day,) = {row["day"] for row in spark.read.parquet(str(folder / "rebalance")).collect()}
    assert day == date(2023, 11, 15)
    (bad,) = spark.read.parquet(str(folder / "events_bad")).collect()
    assert bytes(bad["value"]) == b"garbage"
    assert "not JSON" in bad["reason"]
    (unknown,) = spark.read.parquet(str(folder / "events_unknown")).collect()
    assert unknown["reason"].startswith("version 2")


def test_late_part_repairs_later_days_and_a_repeated_batch_changes_nothing(
    spark: SparkSession, cluster: Cluster, run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from streams_py.spark.telemetry import TableFolder

    monkeypatch.setattr("streams_py.spark.telemetry._FOLDERS_MAX", 1)
    topic = cluster.topic(1)
    day_ms = 86_400_000
    records = [
        record._replace(append_ms=record.append_ms + (number // 8) * day_ms) for number, record in enumerate(stored())
    ]
    late = next(r for r in reversed(records) if b'"kind":"rebalance.client"' in r.value and r.offset < 12)
    append(cluster, topic, [record for record in records if record is not late])
    run(topic)
    append(cluster, topic, [late._replace(append_ms=records[-1].append_ms)])
    with monkeypatch.context() as killed:
        killed.setattr(TableFolder, "_rebuild", killed_between)  # a kill at this step
        with pytest.raises(Exception, match="killed between bronze and tables"):
            run(topic)
    folder = run(topic)  # continues from its checkpoint, with the same micro-batch
    arrived = [r for r in records if r is not late] + [late._replace(append_ms=records[-1].append_ms, offset=10_000)]
    wanted = expected(shuffled(arrived, 5))
    check_tables(spark, folder, wanted, "rebalance", "move", "placement_current", "warmup", "restore", "gap")
    assert spark.read.parquet(str(folder / "bronze")).count() == len(records)
    assert list(folder.glob("bronze/day=*/batch_id=before-1"))  # the last day's folders became one


def killed_between(*arguments: object) -> None:
    raise RuntimeError("killed between bronze and tables")


def test_folder_of_another_group_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    from streams_py.spark.telemetry import TableFolder

    mine = str(tmp_path / "mine")
    for _ in range(2):
        TableFolder(spark, mine, GROUP).claim()
    assert json.loads((tmp_path / "mine" / "telemetry.json").read_text()) == {
        "format": 4,
        "group": GROUP,
        "tables": "parquet",
    }
    with pytest.raises(ConfigError, match=r"has the tables of group 'app' .*, not of 'other'.*another folder"):
        TableFolder(spark, mine, "other").claim()
    (tmp_path / "mine" / "bronze").mkdir()
    with pytest.raises(ConfigError, match=r"has tables but no progress \(_checkpoint is missing\)"):
        TableFolder(spark, mine, GROUP).claim()
    (tmp_path / "mine" / "_checkpoint").mkdir()
    TableFolder(spark, mine, GROUP).claim()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="is not empty and has no telemetry tables; use an empty or new folder"):
        TableFolder(spark, str(tmp_path / "full"), GROUP).claim()
    (tmp_path / "mine" / ".telemetry.json.crc").unlink()
    for damaged in ("", "[]"):
        (tmp_path / "mine" / "telemetry.json").write_text(damaged)
        with pytest.raises(ConfigError, match="is damaged, so the group of these tables is unknown"):
            TableFolder(spark, mine, GROUP).claim()
    with pytest.raises(ConfigError, match="this Spark session has no Delta Lake: install the delta-spark"):
        TableFolder(spark, str(tmp_path / "lake"), GROUP, "delta").claim()


def test_group_that_has_written_no_events_is_told_how(cluster: Cluster, tmp_path: Path) -> None:
    given = ["run", "--group", "absent", "--tables", str(tmp_path / "t"), "--bootstrap", cluster.bootstrap, "--once"]
    done = CliRunner(env={"COLUMNS": "400"}).invoke(app, given)
    assert done.exit_code == 2
    assert "topic absent-assignment-events not found on" in done.stderr
    assert "assignment.events.level=rebalances or tasks" in done.stderr
    assert not (tmp_path / "t").exists()


def test_tables_are_kept_current_by_one_run_at_a_time(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    group, tables = f"alone-{os.getpid()}", tmp_path / "tables"
    produce(cluster, cluster.topic(1, name=f"{group}-assignment-events"), (0, None, b"garbage"))
    place = ("--tables", str(tables), "--bootstrap", cluster.bootstrap)
    command = ["run", "--group", group, *place, "--once"]
    tables.mkdir()
    with held_elsewhere(tables / ".lock") as holder:
        refused = CliRunner().invoke(app, command)
        assert refused.exit_code == 2, refused.output
        assert f"--tables: process {holder.pid} keeps the tables in {tables} current; stop it" in refused.output
        assert [path.name for path in tables.iterdir()] == [".lock"]
    for _ in range(2):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    assert not (tables / ".lock").exists()
