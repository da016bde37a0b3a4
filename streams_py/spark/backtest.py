"""The backtest engine on Spark: the same kernel as on one machine, distributed over cores or machines.

Situations are distributed to Spark partitions by size, largest first, in alternating order (0 1 2 2 1 0 ...), so that
large situations are spread evenly. Repetitions of a situation are in one partition, which skips all but the first. The
driver collects only counts and aggregates. Their number depends on candidates, scenarios and scores.

Histories are distributed in the same way. A task first creates the segments of a history from its situations, in order
(:mod:`~streams_py.backtest.loop.outside`). A segment with some of the candidates is then one piece of work.

A large run consists of waves. Each wave covers a range of hashes and has its own folder. Finished waves are marked, so
that an interrupted run continues with the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from streams_py.assignment.assignors.registry import assignor_name
from streams_py.backtest.candidates import Candidate, choose
from streams_py.backtest.folder import PREFIXES, SCHEME, SCORES, RunFolder, for_spark
from streams_py.backtest.kernel import DDL, Bench, Orders, chunks_of
from streams_py.backtest.loop.outside import SEGMENT_HEAD, SITUATIONS, Segments
from streams_py.backtest.run import SCHEMA, Tick, check_found, fingerprint_of
from streams_py.backtest.sources import INPUT_TABLE, ORDER_COLUMNS, ORDER_TABLE, Skipped, inputs_in_file, no_inputs
from streams_py.backtest.summary import Summary
from streams_py.errors import ConfigError
from streams_py.spark.backtest_summary import summarise_on_spark
from streams_py.spark.files import Folder, check_shared
from streams_py.spark.session import check_classic
from streams_py.spark.version import check_same_version, library_version
from streams_py.telemetry.delta import delta_files, is_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS_PER_PARTITION: Final = 500
_ROWS_PER_WAVE: Final = 4_000
_WAVES_MAX: Final = 16
_SITUATIONS_PER_BATCH: Final = 32
_SPOOL_ROWS: Final = 256
_CUT: Final = "_waves"
_WAVE: Final = "wave"
_HISTORY: Final = "history"
_NUMBER: Final = "number"
_PIECE: Final = "piece"
_SEGMENT_COST: Final = 32  # cost of a byte relative to a byte of a situation: each event needs several decisions
_BATCH_KEY: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


def evaluate_on_spark(
    spark: SparkSession,
    orders: Orders,
    source: str,
    out: str,
    *,
    resume: bool = False,
    base: str | None = None,
    py_files: Sequence[str] = (),
    tick: Tick = lambda _done, _all: None,
) -> Summary:
    """Evaluate the situations in ``source``: a folder of tables on any file system, or a JSONL file of this machine.

    Raises:
        ConfigError: the folder ``out`` is not empty, the driver or a worker does not find a candidate, ``source`` has
            no situations, or the session is a session of Spark Connect.
    """
    check_classic(spark)
    for candidate in orders.candidates:
        choose(candidate)
    shipped = _ship(spark, orders, py_files)
    _check_workers(spark, shipped)
    check_shared(spark, for_spark(out), "--out")
    folder = folder_of(spark, out)
    with folder.claimed(fingerprint_of(orders, source), resume=resume):
        batch_before = spark.conf.get(_BATCH_KEY)
        spark.conf.set(_BATCH_KEY, str(_SITUATIONS_PER_BATCH))  # a situation can have megabytes
        try:
            situations = _situations(spark, source, folder)
            _waves(spark, shipped, with_histories(situations) if orders.replays_events else situations, folder, tick)
        finally:
            spark.conf.set(_BATCH_KEY, str(batch_before))
            folder.files.remove("_inputs")
        names = [candidate.name for candidate in orders.candidates]
        summary = summarise_on_spark(spark, folder, names, orders.all_scenarios, base=base)
        check_found(summary, source)
    return summary


def folder_of(spark: SparkSession, out: str) -> RunFolder:
    """Return the folder of a run, on this machine or on a file system that Spark supports (``hdfs://``, ``s3a://``)."""
    return RunFolder(out, Folder(spark, out) if SCHEME in out else None)


# -- code to the workers -----------------------------------------------------------------------------------------------


def _ship(spark: SparkSession, orders: Orders, py_files: Sequence[str]) -> Orders:
    """Send the code of candidates to the workers.

    Files are sent as files. A class that can be imported is sent by name; another class (of a notebook or a test) is
    sent by value.
    """
    for path in dict.fromkeys([*py_files, *(str(c.file) for c in orders.candidates if c.file is not None)]):
        spark.sparkContext.addPyFile(path)
    return replace(orders, candidates=[_by_name(candidate) for candidate in orders.candidates])


def _by_name(candidate: Candidate) -> Candidate:
    made = candidate.assignor
    if isinstance(made, str) or made.__module__ == "__main__" or "<locals>" in made.__qualname__:
        return candidate
    return replace(candidate, assignor=assignor_name(made))


def _check_workers(spark: SparkSession, orders: Orders) -> None:
    """Run a tiny job to check that a worker finds the code of the candidates."""

    def probe(batches: Iterator[Any]) -> Iterator[Any]:
        for _ in batches:
            pass
        problem = ""
        try:
            Bench(orders)
        except ConfigError as error:
            problem = str(error)
        yield pa.RecordBatch.from_pydict({"problem": [problem]})

    try:
        row: Any = spark.range(1).mapInArrow(probe, "problem string").first()
    except Exception as error:
        by_value = ", ".join(c.name for c in orders.candidates if not isinstance(c.assignor, str))
        if by_value and "pickle" in str(error).lower():
            raise ConfigError(
                f"the class of candidate {by_value} cannot be sent to the workers ({type(error).__name__}); move it to "
                "a module and name it as module:Class"
            ) from error
        raise
    if row.problem:
        raise ConfigError(f"{row.problem}; the driver has it, but not the workers: pass --py-files or install it there")


# -- the work ----------------------------------------------------------------------------------------------------------


def _situations(spark: SparkSession, source: str, folder: RunFolder) -> DataFrame:
    """Return columns ``input``, ``history`` (its group), and ``number`` (its position in this history)."""
    if SCHEME in source or Path(source).is_dir():
        from pyspark.errors import AnalysisException

        try:
            return _in_order(spark, source)
        except AnalysisException as error:
            raise no_inputs(source) from error
    if not Path(source).is_file():
        raise no_inputs(source)
    if SCHEME in folder.root:
        raise ConfigError(
            f"{source} is a file of this machine, but {folder.root} is not; use --tables, or another --out"
        )
    spool = Path(folder.path("_inputs"))
    folder.files.remove("_inputs")
    spool.mkdir(parents=True)
    schema: Any = pa.schema([("input", pa.string()), (_HISTORY, pa.string()), (_NUMBER, pa.int64())])
    counts: Counter[str] = Counter()
    with pq.ParquetWriter(spool / "inputs.parquet", schema) as writer:
        rows: list[dict[str, Any]] = []
        for text in inputs_in_file(Path(source), Skipped()):
            rows.append({"input": str(text), _HISTORY: text.group, _NUMBER: counts[text.group]})
            counts[text.group] += 1
            if len(rows) >= _SPOOL_ROWS:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                rows.clear()
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return spark.read.parquet(for_spark(str(spool)))


def _in_order(spark: SparkSession, source: str) -> DataFrame:
    """Return the situations of tables, each with its position in the history of its group."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    inputs = _table(spark, source, INPUT_TABLE)
    for name in ("group", "day"):
        known = f.col(name).cast("string") if name in inputs.columns else f.lit("")
        inputs = inputs.withColumn(f"_{name}", known)
    inputs = inputs.select("input", f.col("_group").alias(_HISTORY), "_day", "rebalance_id")
    try:
        order = _table(spark, source, ORDER_TABLE).select(*ORDER_COLUMNS).dropDuplicates(["rebalance_id"])
    except AnalysisException:  # the user has kept only the table of situations
        placed = [f.lit(-1).alias(name) for name in ORDER_COLUMNS[:-1]]
        inputs = inputs.select("*", *placed)
    else:
        inputs = inputs.join(order, "rebalance_id", "left")
    columns = [f.coalesce(f.col(name), f.lit(-1)) for name in ORDER_COLUMNS[:-1]]
    within = Window.partitionBy(_HISTORY).orderBy("_day", *columns, ORDER_COLUMNS[-1])
    return inputs.select("input", _HISTORY, (f.row_number().over(within) - 1).cast("long").alias(_NUMBER))


def with_histories(situations: DataFrame) -> DataFrame:
    """Return the column ``input`` with the situations, and with the segments of the histories that they form."""
    from pyspark.sql import functions as f

    piece = f.floor(f.col(_NUMBER) / SITUATIONS)
    dealt = situations.withColumn(_PIECE, piece).repartition(_HISTORY, _PIECE)
    ordered = dealt.sortWithinPartitions(_HISTORY, _NUMBER)
    return situations.select("input").unionByName(ordered.mapInArrow(_segments, "input string"))


def _segments(batches: Iterator[Any]) -> Iterator[Any]:
    """Create segments in a worker: Arrow batches in the order of histories in, segments out."""
    current: tuple[str, int] | None = None
    segments = Segments()

    def made(texts: Iterator[str]) -> Iterator[Any]:
        for text in texts:
            yield pa.RecordBatch.from_pydict({"input": [text]})

    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("input", _HISTORY, _PIECE))
        for text, history, piece in zip(*columns, strict=True):
            if current != (history, piece):
                yield from made(segments.finish())
                current, segments = (history, piece), Segments()
            yield from made(segments.add(text))
    yield from made(segments.finish())


def score_rows(spark: SparkSession, orders: Orders, inputs: DataFrame) -> DataFrame:
    """Return score rows of the situations in a column ``input``. Nothing is written, so it cannot be resumed."""
    hashed = _hashed(inputs)
    narrow = _narrow(hashed, orders).persist()
    each = len(orders.candidates) * len(orders.scenarios)
    return _dealt(spark, hashed, narrow, narrow.count() * each).mapInArrow(kernel_for(orders), DDL)


def _hashed(inputs: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return inputs.select("input", f.sha2("input", 256).alias("input_hash"))


def _narrow(hashed: DataFrame, orders: Orders) -> DataFrame:
    """Return the size of each piece of work, without its text.

    A segment is divided into one piece for each chunk of candidates. ``chunk`` is null for a situation.
    """
    from pyspark.sql import functions as f

    is_segment = f.startswith("input", f.lit(SEGMENT_HEAD))
    aggregates = (
        f.count("*").cast("int").alias("seen"),
        f.max(f.length("input") * f.when(is_segment, _SEGMENT_COST).otherwise(1)).alias("cost"),
        f.bool_or(is_segment).alias("is_segment"),
    )
    one = f.array(f.lit(None).cast("int"))
    chunks = f.when(f.col("is_segment"), f.sequence(f.lit(0), f.lit(chunks_of(orders) - 1))).otherwise(one)
    return hashed.groupBy("input_hash").agg(*aggregates).withColumn("chunk", f.explode(chunks))


def _table(spark: SparkSession, source: str, table: str) -> DataFrame:
    if SCHEME in source:
        tables = Folder(spark, source)
        kind = "delta" if tables.exists(table, "_delta_log") else "parquet"
        return spark.read.format(kind).load(tables.path(table))
    folder = Path(source, table)
    files = delta_files(folder) if is_delta(folder) else [str(folder)]
    return spark.read.option("basePath", for_spark(str(folder))).parquet(*map(for_spark, files))


def _waves(spark: SparkSession, orders: Orders, inputs: DataFrame, folder: RunFolder, tick: Tick) -> None:
    from pyspark.sql import functions as f

    hashed = _hashed(inputs)
    each = len(orders.candidates) * len(orders.scenarios)
    done = folder.done()
    prefix = f.substring("input_hash", 1, 2)
    narrow = _narrow(hashed, orders).where(~prefix.isin([*done])).persist()
    try:
        pieces = narrow.count()
        total = narrow.where(~f.col("is_segment")).count()
        finished = 0
        ranges = _ranges(pieces * each, done)
        if len(ranges) > 1:
            hashed = _cut(spark, hashed, ranges, folder)
        for number, (first, last) in enumerate(ranges):
            mine = narrow.where(prefix.between(first, last))
            count = mine.count()
            if count:
                texts = hashed if len(ranges) == 1 else hashed.where(f.col(_WAVE) == number)
                target = folder.for_spark(SCORES, f"prefix={first}-{last}")
                dealt = _dealt(spark, texts, mine, count * each)
                dealt.mapInArrow(kernel_for(orders), DDL).write.mode("overwrite").parquet(target)
            folder.mark_done(first, last)
            finished += mine.where(~f.col("is_segment")).count()
            tick(finished, total)
    finally:
        narrow.unpersist()
        folder.files.remove(_CUT)


def _cut(spark: SparkSession, hashed: DataFrame, ranges: Sequence[tuple[str, str]], folder: RunFolder) -> DataFrame:
    """Write the situations of each wave to a separate folder. Otherwise every wave would read all situations."""
    from pyspark.sql import functions as f

    prefix = f.substring("input_hash", 1, 2)
    wave = f.coalesce(*(f.when(prefix.between(*of), number) for number, of in enumerate(ranges)))
    place = folder.for_spark(_CUT)
    numbered = hashed.withColumn(_WAVE, wave).where(f.col(_WAVE).isNotNull())
    numbered.write.mode("overwrite").partitionBy(_WAVE).parquet(place)
    return spark.read.parquet(place)


def _ranges(rows: int, done: frozenset[str]) -> list[tuple[str, str]]:
    """Return ranges of prefixes that are not done.

    The number of ranges depends on the amount of work. No range contains a prefix that is done.
    """
    count = min(_WAVES_MAX, max(1, rows // _ROWS_PER_WAVE))
    size = -(-len(PREFIXES) // count)
    ranges: list[tuple[str, str]] = []
    for start in range(0, len(PREFIXES), size):
        run: list[str] = []
        for prefix in [*PREFIXES[start : start + size], ""]:
            if prefix and prefix not in done:
                run.append(prefix)
            elif run:
                ranges.append((run[0], run[-1]))
                run = []
    return ranges


def _dealt(spark: SparkSession, hashed: DataFrame, narrow: DataFrame, rows: int) -> DataFrame:
    """Return ``input, input_hash, seen, chunk`` in Spark partitions of about equal work."""
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    partitions = max(2 * spark.sparkContext.defaultParallelism, rows // _ROWS_PER_PARTITION)
    rank = f.row_number().over(Window.orderBy(f.desc("cost"), "input_hash", "chunk")) - 1
    place = f.pmod(rank, f.lit(2 * partitions))
    slot = f.when(place < partitions, place).otherwise(2 * partitions - 1 - place)
    slots = narrow.select("input_hash", "seen", "chunk", slot.cast("int").alias("slot"))
    joined = hashed.join(slots, "input_hash")
    return joined.repartitionById(partitions, "slot").select("input", "input_hash", "seen", "chunk")


def kernel_for(orders: Orders) -> Any:
    """Return the function of a Spark task: Arrow batches of ``input, input_hash, seen, chunk`` in, score rows out."""
    on_driver = library_version()

    def kernel(batches: Iterator[Any]) -> Iterator[Any]:
        check_same_version(on_driver)
        bench = Bench(orders)
        met: set[tuple[str, int | None]] = set()
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("input", "input_hash", "seen", "chunk"))
            for text, input_hash, seen, chunk in zip(*columns, strict=True):
                if (input_hash, chunk) in met:
                    continue
                met.add((input_hash, chunk))
                rows = list(bench.rows(text, input_hash=input_hash, seen=seen, chunk=chunk))
                yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    return kernel
