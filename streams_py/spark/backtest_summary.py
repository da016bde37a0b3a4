"""The aggregates of a run, made by Spark: what :mod:`~streams_py.backtest.summary` makes of rows in memory.

What is collected is bounded by candidates, scenarios and scores, whatever the number of situations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streams_py.backtest.deciding import OK
from streams_py.backtest.folder import SCORES, RunFolder
from streams_py.backtest.kernel import COLUMNS, DDL, METRICS
from streams_py.backtest.summary import (
    CONVERGING,
    FLAPS,
    NEVER_STABLE,
    OSCILLATING,
    SAME,
    Comparison,
    Distribution,
    Key,
    Noted,
    Summary,
    base_of,
    findings_of,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["summarise_on_spark"]


def summarise_on_spark(
    spark: SparkSession,
    folder: RunFolder,
    candidates: Sequence[str],
    scenarios: Sequence[str],
    *,
    base: str | None = None,
) -> Summary:
    """The same as :func:`~streams_py.backtest.summary.summarise` makes of rows in memory."""
    from pyspark.sql import functions as f

    base = base_of(candidates, scenarios, base)
    if not folder.files.children(SCORES):
        return Summary(candidates, scenarios, base, 0, 0, {}, {}, {}, ())
    scores = spark.read.schema(DDL).parquet(folder.for_spark(SCORES)).select(*COLUMNS)
    first = (f.col("candidate") == candidates[0]) & (f.col("scenario") == scenarios[0])
    counted: Any = scores.where(first).agg(f.count("*").alias("n"), f.sum("seen").alias("seen")).first()
    figures, rows = _figures(scores)
    noted = [
        Noted(Key(row.scenario, row.candidate), row.kind, row.times, row.example, row.error, row.cycle)
        for row in _noted(scores).collect()
    ]
    return Summary(
        candidates,
        scenarios,
        base,
        counted.n,
        counted.seen or 0,
        rows,
        figures,
        _against(scores, base),
        findings_of(noted, rows, candidates, scenarios),
    )


def _figures(scores: DataFrame) -> tuple[dict[Key, dict[str, Distribution]], dict[Key, int]]:
    from pyspark.sql import functions as f

    aggregates: list[Column] = [f.count("*").alias("rows")]
    for metric in METRICS:
        value = f"CASE WHEN valid = '{OK}' THEN {metric} END"
        aggregates += [
            f.expr(f"count({value})").alias(f"{metric}__number"),
            f.expr(f"percentile_disc(0.5) WITHIN GROUP (ORDER BY {value})").alias(f"{metric}__median"),
            f.expr(f"percentile_disc(0.9) WITHIN GROUP (ORDER BY {value})").alias(f"{metric}__p90"),
            f.expr(f"max({value})").alias(f"{metric}__worst"),
            f.expr(f"avg({value})").alias(f"{metric}__mean"),
        ]
    figures: dict[Key, dict[str, Distribution]] = {}
    rows: dict[Key, int] = {}
    for row in scores.groupBy("scenario", "candidate").agg(*aggregates).collect():
        key = Key(row["scenario"], row["candidate"])
        rows[key] = row["rows"]
        figures[key] = {
            metric: Distribution(*(row[f"{metric}__{part}"] for part in Distribution._fields))
            for metric in METRICS
            if row[f"{metric}__number"]
        }
    return figures, rows


def _against(scores: DataFrame, base: str) -> dict[Key, dict[str, Comparison]]:
    from pyspark.sql import functions as f

    good = scores.where(f.col("valid") == OK)
    theirs = good.where(f.col("candidate") == base).select(
        "input_hash", "scenario", *(f.col(metric).alias(f"base__{metric}") for metric in METRICS)
    )
    pairs = good.where(f.col("candidate") != base).join(theirs, ["input_hash", "scenario"])
    aggregates: list[Column] = []
    for metric in METRICS:
        difference = f.col(metric) - f.col(f"base__{metric}")
        for name, which in (
            ("wins", difference < -SAME),
            ("ties", f.abs(difference) <= SAME),
            ("losses", difference > SAME),
        ):
            aggregates.append(f.count(f.when(which, 1)).alias(f"{metric}__{name}"))
    found: dict[Key, dict[str, Comparison]] = {}
    for row in pairs.groupBy("scenario", "candidate").agg(*aggregates).collect():
        compared = {
            metric: Comparison(*(row[f"{metric}__{name}"] for name in Comparison._fields)) for metric in METRICS
        }
        found[Key(row["scenario"], row["candidate"])] = {m: of for m, of in compared.items() if any(of)}
    return found


def _noted(scores: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    valid, cycle = f.col("valid"), f.col("cycle")
    kind = (
        f.when(valid != OK, valid)
        .when(f.col("stable") == f.lit(False), f.when(cycle.isNull(), CONVERGING)
              .when(cycle == 1, NEVER_STABLE)
              .when(f.col("endless"), FLAPS)
              .otherwise(OSCILLATING))
    )  # fmt: skip
    return (
        scores.withColumn("kind", kind)
        .where(f.col("kind").isNotNull())
        .groupBy("scenario", "candidate", "kind")
        .agg(
            f.count("*").alias("times"),
            f.min("input_hash").alias("example"),
            f.min_by("error", "input_hash").alias("error"),
            f.min_by("cycle", "input_hash").alias("cycle"),
        )
    )
