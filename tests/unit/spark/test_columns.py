"""Records as Arrow columns, and the rows that can be written."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streams_py.adapters.confluent.bulk.range_reader import Columns
from streams_py.errors import ConfigError
from streams_py.spark.columns import ARROW_SCHEMA, SCHEMA, record_batch
from streams_py.spark.kafka.options import writer_options
from streams_py.spark.kafka.writer import check_columns

TEXT, BYTES, NUMBER = StringType(), BinaryType(), IntegerType()


def rows(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_arrow_schema_is_the_declared_one() -> None:
    declared = SCHEMA.replace(", ", ",").replace(": ", ":")
    found = from_arrow_schema(ARROW_SCHEMA)
    assert ",".join(f"{field.name} {field.dataType.simpleString()}" for field in found.fields) == declared
    assert all(field.nullable for field in found.fields)


def test_null_and_empty_stay_apart() -> None:
    columns = Columns(
        offsets=[3, 5, 9],
        timestamps=[(1, 0), (0, 0), (2, 77)],
        keys=[b"", None, b"k"],
        values=[None, b"", b"v"],
        headers=[None, [], [("a", None), ("a", b""), ("b", b"x")]],
    )
    assert record_batch("t", 2, columns).to_pylist() == [
        {"topic": "t", "partition": 2, "offset": 3, "timestamp_ms": 0, "timestamp_type": 0, "key": b"", "value": None,
         "headers": None},
        {"topic": "t", "partition": 2, "offset": 5, "timestamp_ms": -1, "timestamp_type": -1, "key": None, "value": b"",
         "headers": None},
        {"topic": "t", "partition": 2, "offset": 9, "timestamp_ms": 77, "timestamp_type": 1, "key": b"k", "value": b"v",
         "headers": [{"key": "a", "value": None}, {"key": "a", "value": b""}, {"key": "b", "value": b"x"}]},
    ]  # fmt: skip


@pytest.mark.parametrize("offsets", [[], [2**40], [7, 8, 9], [7, 9, 10], [0, 2]])
def test_offsets_are_those_of_the_records(offsets: list[int]) -> None:
    of_each = [None] * len(offsets)
    columns = Columns(offsets, [(1, 5)] * len(offsets), list(of_each), list(of_each), list(of_each))
    batch = record_batch("t", 0, columns)
    assert batch.schema == ARROW_SCHEMA
    assert batch.column("offset").to_pylist() == offsets


BASE = {"kafka.bootstrap.servers": "h:1"}
OPTIONS = writer_options(BASE)


def test_rows_that_were_read_can_be_written() -> None:
    check_columns(from_arrow_schema(ARROW_SCHEMA), OPTIONS)
    check_columns(rows(topic=TEXT, partition=NUMBER, value=TEXT), OPTIONS)
    check_columns(rows(topic=TEXT, partition=LongType(), value=BYTES, timestamp_ms=NUMBER), OPTIONS)
    check_columns(rows(topic=TEXT, value=BYTES), OPTIONS)
    check_columns(rows(value=BYTES), writer_options(BASE | {"topic": "t"}))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (rows(partition=NUMBER, value=BYTES), "column topic is missing; add it, or set the option topic"),
        (rows(topic=TEXT, partition=NUMBER), "column value is missing"),
        (rows(topic=TEXT, partition=NUMBER, value=NUMBER), "column value is int, expected binary or string"),
        (rows(topic=TEXT, partition=NUMBER, value=BYTES, timestamp_ms=TimestampType()), "expected bigint or int; cast"),
        (rows(topic=TEXT, partition=NUMBER, value=BYTES, timestamp=TimestampType()), "timestamp cannot be written"),
        (rows(topic=TEXT, partition=NUMBER, value=BYTES, headers=MapType(TEXT, BYTES)), "column headers is map"),
        (rows(topic=TEXT, partition=NUMBER, value=BYTES, headers=ArrayType(TEXT)), "column headers is array"),
    ],
)
def test_rows_that_cannot_be_written_are_refused_before_the_job(schema: StructType, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_columns(schema, OPTIONS)
