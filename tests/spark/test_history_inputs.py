"""The inputs of a topology over a history on Spark: rows and archives, valid and not valid."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streams_py.errors import ConfigError, StreamsError
from streams_py.spark.history.run import run
from tests.support.history.programs import some_lines, word_count
from tests.support.history.runs import Given
from tests.support.spark.frames import frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(900)]


def test_inputs_that_cannot_be_used_are_said_in_one_sentence(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    rows = frame(spark, some_lines(3, 1))
    with pytest.raises(ConfigError, match="topic lines has no input"):
        run(word_count, {}, spark=spark)
    with pytest.raises(ConfigError, match="does not read orders; it reads lines"):
        run(word_count, {"lines": rows, "orders": rows}, spark=spark)
    with pytest.raises(ConfigError, match="no column offset"):
        run(word_count, {"lines": rows.drop("offset")}, spark=spark)
    nowhere = (("partition", None), ("partition", -1), ("offset", None), ("offset", -1), ("timestamp_ms", None))
    for column, value in nowhere:
        wrong = rows.withColumn(column, f.lit(value).cast(dict(rows.dtypes)[column]))
        with pytest.raises(StreamsError, match=r"the input for topic lines has a row .* every row needs .* in Kafka$"):
            run(word_count, {"lines": wrong}, spark=spark)


@pytest.mark.parametrize(
    ("column", "made", "kind"),
    [
        ("partition", "2.7D", "double"),
        ("partition", "named_struct('of', 1)", "struct<of:int>"),
        ("offset", "'12'", "string"),
        ("offset", "1.5", r"decimal\(2,1\)"),
        ("timestamp_ms", "'yesterday'", "string"),
        ("timestamp_ms", "current_date()", "date"),
        ("timestamp_ms", "localtimestamp()", "timestamp_ntz"),
        ("timestamp", "localtimestamp()", "timestamp_ntz"),
        ("headers", "'none'", "string"),
    ],
)
def test_columns_that_spark_would_make_fit_are_refused_by_name(
    spark: SparkSession, column: str, made: str, kind: str
) -> None:
    from pyspark.sql import functions as f

    rows = frame(spark, some_lines(3, 1))
    if column == "timestamp":
        rows = rows.drop("timestamp_ms")
    wrong = (
        rf"^the input for topic lines: {column} is {kind}; partition, offset and timestamp_ms must be whole numbers, "
    )
    with pytest.raises(ConfigError, match=wrong):
        run(word_count, {"lines": rows.withColumn(column, f.expr(made))}, spark=spark)


@pytest.mark.parametrize("column", ["timestamp", "timestamp_ms"])
def test_timestamps_of_spark_are_milliseconds_whatever_their_column_is_called(spark: SparkSession, column: str) -> None:
    from pyspark.sql import functions as f

    rows = frame(spark, [Given("lines", 0, 0, 1_700_000_000_123, b"k", b"word")])
    rows = rows.withColumn("at", f.timestamp_millis("timestamp_ms")).drop("timestamp_ms")
    rows = rows.withColumnRenamed("at", column).withColumn("offset", f.expr("cast(offset as decimal(20, 0))"))
    with run(word_count, {"lines": rows}, spark=spark) as results:
        assert [row.timestamp_ms for row in results.stores["counts"].collect()] == [1_700_000_000_123]


def test_number_that_is_no_partition_is_said_before_a_task_is_made_for_each(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    rows = frame(spark, some_lines(3, 1)).withColumn("partition", f.lit(2**31 - 2))
    with pytest.raises(
        ConfigError, match="topic lines has records of partition 2147483646, which is more than the limit"
    ):
        run(word_count, {"lines": rows}, spark=spark)


def test_rows_of_other_topics_are_not_taken_for_none(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    archive = str(tmp_path / "archive")
    frame(spark, [one._replace(topic="old.lines") for one in some_lines(3, 1)]).write.parquet(archive)
    for given in (archive, spark.read.parquet(archive)):
        with pytest.raises(ConfigError, match=r"for topic lines has rows of old.lines, but no rows of .*drop the"):
            run(word_count, {"lines": given}, spark=spark)
    rows = spark.read.parquet(archive)
    for one in (rows.drop("topic"), rows.withColumn("topic", f.lit("lines")), rows.limit(0)):
        with run(word_count, {"lines": one}, spark=spark) as results:
            assert sum(done.records for done in results.summaries()[0]) == one.count()


def test_delta_table_is_never_read_as_a_mere_folder_of_files(spark: SparkSession, tmp_path: Path) -> None:
    """The folder also has files of rows that were changed or deleted since."""
    archive = tmp_path / "archive"
    frame(spark, some_lines(5, 1)).write.parquet(str(archive))
    (archive / "_delta_log").mkdir()
    with pytest.raises(ConfigError, match=r"lines: .*archive is a Delta table, .*jars.packages=io.delta"):
        run(word_count, {"lines": str(archive)}, spark=spark)


def test_archive_that_is_none_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"lines: .*/nowhere cannot be read as Parquet: Path does not exist: \S+where$"
    ):
        run(word_count, {"lines": str(tmp_path / "nowhere")}, spark=spark)
    archive = tmp_path / "archive"
    archive.mkdir()
    with pytest.raises(ConfigError, match=r"lines: .*/archive has no Parquet file; name the folder of its records$"):
        run(word_count, {"lines": str(archive)}, spark=spark)
    frame(spark, some_lines(3, 1)).write.mode("append").parquet(str(archive))
    (archive / "z.parquet").write_text("PAR1 something else PAR1")
    with pytest.raises(
        StreamsError, match=r"the file file:/\S+/archive/z.parquet cannot be read: corrupted .*; remove"
    ):
        run(word_count, {"lines": str(archive)}, spark=spark)
