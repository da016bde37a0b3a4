"""The summary of a backtest, computed by Spark. :mod:`~streams_py.backtest.summary` does the same for rows in memory.

The number of collected rows depends on candidates, scenarios and scores, and not on the number of situations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streams_py.backtest.deciding import OK
from streams_py.backtest.folder import SCORES, RunFolder
from streams_py.backtest.kernel import COLUMNS, DDL, METRICS
from streams_py.backtest.pairs import SAME, Paired
from streams_py.backtest.summary import (
    CONVERGING,
    FLAPS,
    MISSING,
    NEVER_STABLE,
    OSCILLATING,
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


def summarise_on_spark(
    spark: SparkSession,
    folder: RunFolder,
    candidates: Sequence[str],
    scenarios: Sequence[str],
    *,
    base: str | None = None,
) -> Summary:
    """Summarise a run. For rows in memory, :func:`~streams_py.backtest.summary.summarise` gives the same."""
    from pyspark.sql import functions as f

    base = base_of(candidates, scenarios, base)
    if not folder.files.children(SCORES):
        return Summary(candidates, scenarios, base, 0, 0, {}, {}, {}, ())
    scores = spark.read.schema(DDL).parquet(folder.for_spark(SCORES)).select(*COLUMNS)
    first = (f.col("candidate") == candidates[0]) & (f.col("scenario") == scenarios[0])
    counted: Any = scores.where(first).agg(f.count("*").alias("n"), f.sum("seen").alias("seen")).first()
    distributions, rows = _distributions(scores)
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
        distributions,
        _against(scores, base),
        findings_of(noted, rows, candidates, scenarios),
        _reproduced(scores),
        SparkPairs(scores),
    )


def _reproduced(scores: DataFrame) -> tuple[int, int] | None:
    from pyspark.sql import functions as f

    asked = scores.where((f.col("scenario") == "") & f.col("reproduced").isNotNull())
    row: Any = asked.agg(f.count_if("reproduced").alias("did"), f.count("*").alias("asked")).first()
    return (row.did, row.asked) if row.asked else None


class SparkPairs:
    """:class:`~streams_py.backtest.pairs.Pairs` by Spark: one job for each leader. Needs the open session."""

    def __init__(self, scores: DataFrame) -> None:
        self._scores = scores
        self._known: dict[tuple[str, tuple[str, ...]], Mapping[str, Mapping[str, Paired]]] = {}

    def against(self, leader: str, scenarios: Sequence[str], metric: str) -> Mapping[str, Paired]:
        """Compare every other candidate with the leader. One job computes all scores."""
        from pyspark.sql import functions as f

        asked = leader, tuple(scenarios)
        if asked not in self._known:
            rows = _paired(self._scores.where(f.col("scenario").isin([*scenarios])), leader, ["candidate"])
            self._known[asked] = {
                score: {
                    row["candidate"]: Paired(*(row[f"{score}__{name}"] for name in Paired._fields))
                    for row in rows
                    if row[f"{score}__mean"] is not None
                }
                for score in METRICS
            }
        return self._known[asked][metric]


def _paired(scores: DataFrame, leader: str, keys: Sequence[str]) -> list[Any]:
    """Return wins, ties, losses and both means of every other candidate against the leader.

    Only cases that both candidates have are counted.
    """
    from pyspark.sql import functions as f

    good = scores.where(f.col("valid") == OK)
    theirs = good.where(f.col("candidate") == leader).select(
        "input_hash", "scenario", *(f.col(metric).alias(f"base__{metric}") for metric in METRICS)
    )
    pairs = good.where(f.col("candidate") != leader).join(theirs, ["input_hash", "scenario"])
    aggregates: list[Column] = []
    for metric in METRICS:
        mine, base = f.col(metric), f.col(f"base__{metric}")
        both = mine.isNotNull() & base.isNotNull()
        for name, which in (
            ("wins", mine - base < -SAME),
            ("ties", f.abs(mine - base) <= SAME),
            ("losses", mine - base > SAME),
        ):
            aggregates.append(f.count(f.when(which, 1)).alias(f"{metric}__{name}"))
        aggregates.append(f.avg(f.when(both, mine)).alias(f"{metric}__mean"))
        aggregates.append(f.avg(f.when(both, base)).alias(f"{metric}__leaders_mean"))
    return pairs.groupBy(*keys).agg(*aggregates).collect()


def _distributions(scores: DataFrame) -> tuple[dict[Key, dict[str, Distribution]], dict[Key, int]]:
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
    distributions: dict[Key, dict[str, Distribution]] = {}
    rows: dict[Key, int] = {}
    for row in scores.groupBy("scenario", "candidate").agg(*aggregates).collect():
        key = Key(row["scenario"], row["candidate"])
        rows[key] = row["rows"]
        distributions[key] = {
            metric: Distribution(*(row[f"{metric}__{part}"] for part in Distribution._fields))
            for metric in METRICS
            if row[f"{metric}__number"]
        }
    return distributions, rows


def _against(scores: DataFrame, base: str) -> dict[Key, dict[str, Comparison]]:
    found: dict[Key, dict[str, Comparison]] = {}
    for row in _paired(scores, base, ["scenario", "candidate"]):
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
    missing = f.when((valid == OK) & (f.col("missing_copies") > 0), MISSING)
    return (
        scores.withColumn("kind", f.explode(f.array(kind, missing)))
        .where(f.col("kind").isNotNull())
        .groupBy("scenario", "candidate", "kind")
        .agg(
            f.count("*").alias("times"),
            f.min("input_hash").alias("example"),
            f.min_by("error", "input_hash").alias("error"),
            f.min_by("cycle", "input_hash").alias("cycle"),
        )
    )
