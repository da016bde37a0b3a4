"""Records as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.history.runs import Given

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "topic string, partition int, offset bigint, timestamp_ms bigint, key binary, value binary"


def frame(spark: SparkSession, records: list[Given]) -> DataFrame:
    return spark.createDataFrame([record[:6] for record in records], COLUMNS)
