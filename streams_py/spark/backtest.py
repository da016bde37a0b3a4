"""The engine on Spark: the same kernel, spread over cores or machines.

Situations are dealt to Spark partitions by their size, largest first, there and back again (0 1 2 2 1 0 ...), so that
no partition gets all the giants. Repetitions of a situation land in one partition, where the second one is dropped. The
driver sees counts and aggregates only: what it collects is bounded by candidates, scenarios and scores.

Histories go the same way: each task puts the segments of one of them together in the order of the situations
(:mod:`~streams_py.backtest.loop.segments`), and then a segment with some of the candidates is one piece of work.

A large run is made in waves, each of a range of hashes and with a folder of its own; a finished wave is marked, so that
an interrupted run can go on behind it.
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
from streams_py.backtest.local import SCHEMA, Tick
from streams_py.backtest.loop.outside import SEGMENT_HEAD
from streams_py.backtest.loop.segments import SITUATIONS, Segments
from streams_py.backtest.run import check_found, fingerprint_of
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

__all__ = ["evaluate_on_spark", "folder_of", "kernel_for", "score_rows"]

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
_SEGMENT_COST: Final = 32  # of a byte, beside one of a situation: each event is a way of several decisions
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
    """Evaluate the situations in ``source`` (a folder of tables on any file system, or a JSONL file of this machine).

    ConfigError when the folder ``out`` is not empty, a candidate is not to be found here or on the workers, there is
    nothing to evaluate, or the session is one of Spark Connect.
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
    """The folder of a run: of this machine, or on a file system that Spark knows (``hdfs://``, ``s3a://``)."""
    return RunFolder(out, Folder(spark, out) if SCHEME in out else None)


# -- code to the workers -----------------------------------------------------------------------------------------------


def _ship(spark: SparkSession, orders: Orders, py_files: Sequence[str]) -> Orders:
    """Files go along; a class that can be imported goes by name, any other (of a notebook, of a test) by value."""
    for path in dict.fromkeys([*py_files, *(str(c.file) for c in orders.candidates if c.file is not None)]):
        spark.sparkContext.addPyFile(path)
    return replace(orders, candidates=[_by_name(candidate) for candidate in orders.candidates])


def _by_name(candidate: Candidate) -> Candidate:
    made = candidate.assignor
    if isinstance(made, str) or made.__module__ == "__main__" or "<locals>" in made.__qualname__:
        return candidate
    return replace(candidate, assignor=assignor_name(made))


def _check_workers(spark: SparkSession, orders: Orders) -> None:
    """One tiny job: can a worker find the code of the candidates?"""

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
                f"the class of candidate {by_value} cannot be sent to the workers ({type(error).__name__}); put it "
                "into a module and name it as module:Class"
            ) from error
        raise
    if row.problem:
        raise ConfigError(f"{row.problem}; it is here, but not on the workers: pass --py-files or install it there")


# -- the work ----------------------------------------------------------------------------------------------------------


def _situations(spark: SparkSession, source: str, folder: RunFolder) -> DataFrame:
    """``input, history`` (which group), ``number`` (its place there)."""
    if SCHEME in source or Path(source).is_dir():
        from pyspark.errors import AnalysisException

        try:
            return _in_order(spark, source)
        except AnalysisException as error:
            raise no_inputs(source) from error
    if not Path(source).is_file():
        raise no_inputs(source)
    if SCHEME in folder.root:
        raise ConfigError(f"{source} is a file of this machine, {folder.root} is not; take --tables, or another --out")
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
    """The situations of tables, each with its place in the history of its group."""
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
    except AnalysisException:  # only the situations were kept
        placed = [f.lit(-1).alias(name) for name in ORDER_COLUMNS[:-1]]
        inputs = inputs.select("*", *placed)
    else:
        inputs = inputs.join(order, "rebalance_id", "left")
    columns = [f.coalesce(f.col(name), f.lit(-1)) for name in ORDER_COLUMNS[:-1]]
    within = Window.partitionBy(_HISTORY).orderBy("_day", *columns, ORDER_COLUMNS[-1])
    return inputs.select("input", _HISTORY, (f.row_number().over(within) - 1).cast("long").alias(_NUMBER))


def with_histories(situations: DataFrame) -> DataFrame:
    """``input``: the situations, and the segments of the histories that they are."""
    from pyspark.sql import functions as f

    piece = f.floor(f.col(_NUMBER) / SITUATIONS)
    dealt = situations.withColumn(_PIECE, piece).repartition(_HISTORY, _PIECE)
    ordered = dealt.sortWithinPartitions(_HISTORY, _NUMBER)
    return situations.select("input").unionByName(ordered.mapInArrow(_segments, "input string"))


def _segments(batches: Iterator[Any]) -> Iterator[Any]:
    """Arrow batches in the order of histories in, a segment for each piece of one out."""
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
    """Score rows of the situations in a column ``input``, as a plan: nothing is written, nothing can be resumed."""
    hashed = _hashed(inputs)
    narrow = _narrow(hashed, orders).persist()
    each = len(orders.candidates) * len(orders.scenarios)
    return _dealt(spark, hashed, narrow, narrow.count() * each).mapInArrow(kernel_for(orders), DDL)


def _hashed(inputs: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return inputs.select("input", f.sha2("input", 256).alias("input_hash"))


def _narrow(hashed: DataFrame, orders: Orders) -> DataFrame:
    """What the dealing needs to know of each piece of work, without its text. A segment is as many pieces as its
    candidates are dealt to; ``chunk`` is null for a situation."""
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
    """The situations in a folder for each wave: otherwise every wave would read all of them."""
    from pyspark.sql import functions as f

    prefix = f.substring("input_hash", 1, 2)
    wave = f.coalesce(*(f.when(prefix.between(*of), number) for number, of in enumerate(ranges)))
    place = folder.for_spark(_CUT)
    numbered = hashed.withColumn(_WAVE, wave).where(f.col(_WAVE).isNotNull())
    numbered.write.mode("overwrite").partitionBy(_WAVE).parquet(place)
    return spark.read.parquet(place)


def _ranges(rows: int, done: frozenset[str]) -> list[tuple[str, str]]:
    """Ranges of prefixes that are not done, as many as the work is worth, each without a done one inside."""
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
    """``input, input_hash, seen, chunk`` in Spark partitions of about equal work."""
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
    """What a Spark task does: Arrow batches of ``input, input_hash, seen, chunk`` in, score rows out."""
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
