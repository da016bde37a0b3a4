"""The backtest on two cores of Spark compared with a loop in one process, and its growth with the number of situations.

Speed: situations of 1,000 tasks on 50 clients. The high-availability assignor decides each one, and the result is
scored. The loop has the texts in memory; Spark reads them from Parquet and distributes them.

Growth: whole runs on small situations, from the inputs to the summary. The smallest run is repeated and its best time
counts, which makes the comparison harder for the large ones. The driver's memory is the peak memory of its Python
process plus the heap of its JVM after a garbage collection.

Spark runs in separate processes:

    python -m benchmarks.spark_backtest speed SITUATIONS RUNS
    python -m benchmarks.spark_backtest growth SITUATIONS...
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.spark_process import lines_of
from benchmarks.table import Goal, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streams_py.backtest.kernel import Orders

Tick = Callable[[str], None]

_LARGE: Final = (1_000, 50)
_SITUATIONS: Final = 800
_RUNS_MAX: Final = 2
_SMALL: Final = (8, 2)
_DIFFERENT: Final = 200
_SIZES: Final = (1_000, 10_000, 100_000)
_LARGEST_VARIABLE: Final = "STREAMS_PY_BENCH_SITUATIONS"
_REPEATED: Final = 2
_ROWS_PER_BATCH: Final = 500
_MODULE: Final = "benchmarks.spark_backtest"


def backtest_rows(runs: int, tick: Tick) -> Iterator[Row]:
    """Yield the rows of both. ``$STREAMS_PY_BENCH_SITUATIONS``: the largest number of situations for the growth."""
    ours, loop = [], []
    tick("backtest: writing situations, starting Spark")
    for line in lines_of(_MODULE, "speed", str(_SITUATIONS), str(min(runs, _RUNS_MAX))):
        loop_s, spark_s = map(float, line.split())
        loop.append(_SITUATIONS / loop_s)
        ours.append(_SITUATIONS / spark_s)
        tick(f"backtest: run {len(ours)}, {spark_s:.0f} s on Spark, {loop_s:.0f} s in the loop")
    tasks, clients = _LARGE
    work = f"backtest, {tasks:,} tasks x {clients} clients, high availability, local[2]"
    yield Row(
        work, "the same loop, one process", "situations/s", tuple(ours), tuple(loop), Goal(">= 1.6", ratio_min=1.6)
    )
    largest = int(os.environ.get(_LARGEST_VARIABLE, _SIZES[-1]))
    sizes = [size for size in _SIZES if size < largest] + [largest]
    microseconds: dict[int, float] = {}
    megabytes: dict[int, float] = {}
    for line in lines_of(_MODULE, "growth", *map(str, sizes)):
        words = line.split()
        situations, seconds = int(words[0]), float(words[1])
        microseconds[situations] = 1e6 * seconds / situations
        megabytes[situations] = float(words[2])
        tick(f"backtest: {situations:,} situations took {seconds:.1f} s")
    work = f"backtest, {largest:,} situations, local[2]"
    for size in sizes[:-1]:
        goal = Goal("within 1.3 per situation", ratio_max=1.3)
        yield Row(work, f"{size:,} situations", "us/situation", (microseconds[largest],), (microseconds[size],), goal)
    goal = Goal("flat: within 1.3", ratio_max=1.3)
    yield Row(
        f"{work}: driver's memory",
        f"{sizes[0]:,} situations",
        "MB",
        (megabytes[largest],),
        (megabytes[sizes[0]],),
        goal,
    )


# -- in the process with Spark -----------------------------------------------------------------------------------------


def _session() -> SparkSession:
    from streams_py.spark.session import spark_session

    spark = spark_session("benchmark", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _orders() -> Orders:
    from streams_py.backtest.candidates import parse_candidate
    from streams_py.backtest.kernel import Orders

    return Orders([parse_candidate("builtin:high_availability")], rounds=False)


def _history(size: tuple[int, int], count: int) -> list[str]:
    from streams_py.backtest.generate import History, generate

    tasks, clients = size
    return list(generate(History(tasks=tasks, clients=clients, threads=1), count))


def _write(folder: str, texts: Iterator[str]) -> None:
    """Write situations to Parquet, as telemetry does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema: Any = pa.schema([("input", pa.string())])
    Path(folder, "rebalance_input").mkdir(parents=True)
    with pq.ParquetWriter(f"{folder}/rebalance_input/inputs.parquet", schema) as file:
        batch: list[str] = []
        for text in texts:
            batch.append(text)
            if len(batch) == _ROWS_PER_BATCH:
                file.write_table(pa.table({"input": batch}, schema=schema))
                batch = []
        file.write_table(pa.table({"input": batch}, schema=schema))


def _speed(count: int, runs: int) -> None:
    """Print seconds of the loop and of Spark, one line per run."""
    from streams_py.backtest.kernel import Bench
    from streams_py.spark.backtest import score_rows

    texts = _history(_LARGE, count)
    spark, orders = _session(), _orders()
    with tempfile.TemporaryDirectory(prefix="streams-py-bench-") as folder:
        _write(f"{folder}/all", iter(texts))
        _write(f"{folder}/few", iter(texts[:20]))

        def on_spark(name: str) -> float:
            began = time.perf_counter()
            inputs = spark.read.parquet(f"{folder}/{name}/rebalance_input")
            score_rows(spark, orders, inputs).write.format("noop").mode("overwrite").save()
            return time.perf_counter() - began

        def loop() -> float:
            began = time.perf_counter()
            bench = Bench(orders)
            for number, text in enumerate(texts):
                assert len(list(bench.rows(text, input_hash=str(number)))) == 1
            return time.perf_counter() - began

        on_spark("few")  # includes the start of workers and compilation
        for _ in range(runs):
            loop_s = loop()
            print(loop_s, on_spark("all"), flush=True)
    spark.stop()


def _growth(sizes: Sequence[int]) -> None:
    """Print the number of situations, the seconds and the driver's memory in MB, one line per size."""
    from streams_py.spark.backtest import evaluate_on_spark

    texts = _history(_SMALL, _DIFFERENT)
    spark, orders = _session(), _orders()
    with tempfile.TemporaryDirectory(prefix="streams-py-bench-") as folder:
        for size in sizes:
            _write(f"{folder}/{size}", _varied(texts, size))

        def run(size: int, number: int) -> float:
            began = time.perf_counter()
            summary = evaluate_on_spark(spark, orders, f"{folder}/{size}", f"{folder}/out-{size}-{number}")
            assert summary.situations == size
            return time.perf_counter() - began

        run(sizes[0], 0)  # includes the start of workers and compilation
        for size in sizes:
            seconds = min(run(size, 1 + number) for number in range(_REPEATED if size == sizes[0] else 1))
            print(size, seconds, _driver_mb(spark), flush=True)
    spark.stop()


def _varied(texts: Sequence[str], count: int) -> Iterator[str]:
    """Yield this number of different situations, which differ in their first end offset."""
    mark = '"end":['
    for number in range(count):
        before, _, after = texts[number % len(texts)].partition(mark)
        _, comma, rest = after.partition(",")
        yield f"{before}{mark}{2_000_000 + number}{comma}{rest}"


def _driver_mb(spark: SparkSession) -> float:
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.gc()
    heap = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 + heap / (1 << 20))


if __name__ == "__main__":
    if sys.argv[1] == "speed":
        _speed(int(sys.argv[2]), int(sys.argv[3]))
    else:
        _growth([int(size) for size in sys.argv[2:]])
