"""Topologies over history on Spark, compared with the live application, by number of workers, and by size.

* *words*: counts lines of five words. Live: one stream thread, no cache, timed from its first output to its last.
  Spark: ``local[2]``, from the same topic, timed from the start of ``run`` to its end, in a session that has processed
  a tenth of the lines before.
* *workers*: the same over Parquet with 8 partitions, on Spark's ``local-cluster`` with one worker and with two, which
  take turns when both are warm.
* *archive*: counts per key from Parquet, and over ten times as many records: time per record, and the largest memory
  of a Python worker. Each size runs in a new session, because a worker never returns memory.

Spark runs in a separate process, which prints one line per run:

    python -m benchmarks.spark_history words BOOTSTRAP TOPIC LINES RUNS
    python -m benchmarks.spark_history workers WORKERS FOLDER RUNS   (one run per input line)
    python -m benchmarks.spark_history archive FOLDER RECORDS
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from benchmarks.cluster import BenchmarkError, make_topic, wait_for_output
from benchmarks.spark_process import lines_of
from benchmarks.table import Goal, Row
from streams_py import KafkaStreams, StreamsBuilder, Topology, serdes
from streams_py.testing.broker import JvmBroker, NoBrokerError

Tick = Callable[[str], None]

_LINES: Final = 1_000_000
_LINES_VARIABLE: Final = "STREAMS_PY_BENCH_SPARK_LINES"
_RECORDS: Final = 2_000_000
_RECORDS_VARIABLE: Final = "STREAMS_PY_BENCH_SPARK_ARCHIVE"
_TIMES: Final = 10
_WORDS_PER_LINE: Final = 5
_WORDS: Final = 20_000
_KEYS: Final = 100_000
_PARTITIONS: Final = 4
_CLUSTER_PARTITIONS: Final = 8
_FIRST_MS: Final = 1_700_000_000_000
_COMMIT_MS: Final = 1_000
_RUNS_MAX: Final = 3
_LOOK_S: Final = 0.05
_WARM_UPS: Final = 5
"""Number of warm-up runs, in which each worker's JVM compiles. More workers then need more of the two cores."""
_MODULE: Final = "benchmarks.spark_history"


def history_rows(runs: int, tick: Tick) -> Iterator[Row]:
    """Yield four rows.

    ``$STREAMS_PY_BENCH_SPARK_LINES`` and ``$STREAMS_PY_BENCH_SPARK_ARCHIVE`` change the sizes.
    """
    lines, records = int(os.environ.get(_LINES_VARIABLE, _LINES)), int(os.environ.get(_RECORDS_VARIABLE, _RECORDS))
    runs = min(runs, _RUNS_MAX)
    yield _compared_with_live(lines, runs, tick)
    with tempfile.TemporaryDirectory(prefix="streams-py-bench-") as folder:
        yield _compared_with_one_worker(lines, runs, folder, tick)
    yield from _of_archive(records, tick)


def word_count(topic: str = "lines", sink: str | None = None) -> Topology:
    """Count the words of lines, with a repartition."""
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    words = builder.stream(topic).flat_map_values(str.split)
    counts = words.group_by(lambda _, word: word).count(store="counts")
    if sink is not None:
        counts.to_stream().to(sink, value=serdes.INT64)
    return builder.build()


def by_key() -> Topology:
    """Count records per key, without a repartition."""
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.BYTES)
    builder.stream("records").group_by_key().count(store="counts")
    return builder.build()


def line_of_words(number: int) -> str:
    """Return five words, of which some are frequent and most are rare."""
    return " ".join(f"w{(number * step + step) % (_WORDS if step > 3 else 97)}" for step in (1, 3, 7, 11, 13))


# -- rows --------------------------------------------------------------------------------------------------------------


def _compared_with_live(lines: int, runs: int, tick: Tick) -> Row:
    try:
        broker = JvmBroker()
    except NoBrokerError as error:
        raise BenchmarkError(str(error)) from None
    live, spark = [], []
    try:
        tick(f"writing {lines:,} lines")
        topic = f"lines-{lines}"
        _fill(broker.bootstrap, topic, lines)
        tick("word count live and on Spark: warming up")
        for line in lines_of(_MODULE, "words", broker.bootstrap, topic, str(lines), str(runs)):
            live_s, spark_s = map(float, line.split())
            tick(f"word count live {live_s:.1f} s, on Spark {spark_s:.1f} s")
            live.append(live_s)
            spark.append(spark_s)
    finally:
        broker.close()
    work = f"history on Spark: word count, {lines:,} lines from Kafka, local[2]"
    return Row(
        work, "live, one thread, no cache", "s", tuple(spark), tuple(live), Goal("<= 1.0 of its time", ratio_max=1.0)
    )


def _compared_with_one_worker(lines: int, runs: int, folder: str, tick: Tick) -> Row:
    tick(f"writing {lines:,} lines to files")
    _archive(f"{folder}/lines", lines, _CLUSTER_PARTITIONS, lambda at: (None, line_of_words(at).encode()))
    seconds: dict[int, list[float]] = {1: [], 2: []}
    processes = {
        workers: lines_of(_MODULE, "workers", str(workers), folder, str(_WARM_UPS + runs), asked=True)
        for workers in seconds
    }
    for number in range(_WARM_UPS + runs):
        for workers, lines_said in processes.items():
            tick(f"word count on {workers} worker(s), {'warming up' if number < _WARM_UPS else 'timed'}")
            seconds[workers].append(float(next(lines_said)))
    for workers, lines_said in processes.items():
        seconds[workers] = seconds[workers][_WARM_UPS:]
        for _ in lines_said:  # until the process stops
            pass
    work = f"history on Spark: word count, {lines:,} lines from Parquet, {_CLUSTER_PARTITIONS} partitions, two workers"
    goal = Goal("<= 0.65 of its time", ratio_max=0.65)
    return Row(work, "one worker of one core", "s", tuple(seconds[2]), tuple(seconds[1]), goal)


def _of_archive(records: int, tick: Tick) -> Iterator[Row]:
    found: dict[int, tuple[float, float]] = {}
    for size in (records, _TIMES * records):
        with tempfile.TemporaryDirectory(prefix="streams-py-bench-") as folder:
            tick(f"count per key over {size:,} records in files")
            _archive(f"{folder}/records", size, _PARTITIONS, lambda at: (b"key-%d" % (at * 7919 % _KEYS), b"x" * 100))
            (line,) = lines_of(_MODULE, "archive", folder, str(size))
            seconds, megabytes = map(float, line.split())
            found[size] = 1e6 * seconds / size, megabytes
    yield from archive_row(records, found)


def archive_row(records: int, found: dict[int, tuple[float, float]]) -> Iterator[Row]:
    """Compare the larger archive with the smaller one. ``found``: (us per record, MB) by number of records."""
    large, small = found[_TIMES * records], found[records]
    work, compared_with = f"history on Spark: count per key over {_TIMES * records:,} records", f"{records:,} records"
    yield Row(work, compared_with, "us/record", (large[0],), (small[0],), Goal("within 1.2", ratio_max=1.2))
    yield Row(
        f"{work}, largest worker",
        compared_with,
        "MB",
        (large[1],),
        (small[1],),
        Goal("flat: within 1.2", ratio_max=1.2),
    )


# -- data --------------------------------------------------------------------------------------------------------------


def _fill(bootstrap: str, topic: str, lines: int) -> None:
    make_topic(bootstrap, topic, _PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for at in range(lines):
        while True:
            try:
                producer.produce(topic, line_of_words(at), partition=at % _PARTITIONS, timestamp=_FIRST_MS + at)
                break
            except BufferError:
                producer.poll(0.1)
        if at % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise BenchmarkError(f"cannot write the input to {topic} within 120 s")


def _archive(path: str, records: int, partitions: int, record: Callable[[int], tuple[bytes | None, bytes]]) -> None:
    """Write one file for each partition, like an archive of a topic."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [("partition", pa.int32()), ("offset", pa.int64()), ("timestamp_ms", pa.int64()), ("key", pa.binary()),
         ("value", pa.binary())]
    )  # fmt: skip
    Path(path).mkdir()
    for partition in range(partitions):
        with pq.ParquetWriter(f"{path}/{partition}.parquet", schema) as writer:
            numbers = range(partition, records, partitions)
            for first in range(0, len(numbers), 50_000):
                some = numbers[first : first + 50_000]
                keys, values = zip(*map(record, some), strict=True)
                offsets = range(first, first + len(some))
                columns = [[partition] * len(some), list(offsets), [_FIRST_MS + at for at in some], keys, values]
                writer.write_table(pa.table(columns, schema=schema))


# -- in the process with Spark ----------------------------------------


def _words(bootstrap: str, topic: str, lines: int, runs: int) -> None:
    """Print the seconds of the live application and of Spark, one line per run."""
    from streams_py.spark.history.run import run
    from streams_py.spark.session import MOSTLY_PYTHON, spark_session

    spark = spark_session("benchmark", master="local[2]", **MOSTLY_PYTHON)
    spark.sparkContext.setLogLevel("ERROR")
    options = {"kafka.bootstrap.servers": bootstrap}

    def on_spark(lines: int) -> float:
        ends = {topic: dict.fromkeys(range(_PARTITIONS), lines // _PARTITIONS)}
        began = time.perf_counter()
        with run(word_count(topic), options, until=ends, spark=spark) as results:
            taken = time.perf_counter() - began
            words = sum(done.records for done in results.summaries()[1])
        if words != _PARTITIONS * (lines // _PARTITIONS) * _WORDS_PER_LINE:
            raise BenchmarkError(f"{words:,} words were counted")
        return taken

    on_spark(max(_PARTITIONS, lines // 10))
    for _ in range(runs):
        live_s = _live(bootstrap, topic, lines)
        print(live_s, on_spark(lines), flush=True)
    spark.stop()


def _live(bootstrap: str, topic: str, lines: int) -> float:
    name = f"live-{uuid.uuid4().hex[:8]}"
    make_topic(bootstrap, f"{name}-out", _PARTITIONS, append_time=True)
    with tempfile.TemporaryDirectory(prefix="streams-py-bench-") as folder:
        config = {
            "application.id": name,
            "bootstrap.servers": bootstrap,
            "state.dir": folder,
            "statestore.cache.max.bytes": 0,
            "commit.interval.ms": _COMMIT_MS,
            "auto.offset.reset": "earliest",
        }
        words = lines * _WORDS_PER_LINE
        with KafkaStreams(word_count(topic, f"{name}-out"), config) as streams:
            output = wait_for_output(
                bootstrap,
                f"{name}-out",
                job="words",
                commit_ms=_COMMIT_MS,
                expected=words,
                check_alive=lambda: _check_alive(streams),
            )
    return output.seconds * words / max(1, output.worked_off)


def _check_alive(streams: KafkaStreams) -> None:
    if streams.state.name in ("ERROR", "NOT_RUNNING"):
        raise BenchmarkError("the live application has stopped")


def _workers(workers: int, folder: str, runs: int) -> None:
    """Print the seconds of each run on a cluster of processes. Each run starts with an input line."""
    from streams_py.spark.history.run import run
    from streams_py.spark.session import MOSTLY_PYTHON, spark_session

    partitions = {"spark.sql.shuffle.partitions": _CLUSTER_PARTITIONS, "spark.executor.memory": "1g"}
    environment = {"spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = MOSTLY_PYTHON | partitions | environment
    spark = spark_session("benchmark", master=f"local-cluster[{workers},1,1024]", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    work = f"{folder}/work-{workers}"
    for _ in range(runs):
        sys.stdin.readline()
        began = time.perf_counter()
        with run(f"{_MODULE}:word_count", {"lines": f"{folder}/lines"}, work=work, spark=spark):
            print(time.perf_counter() - began, flush=True)
    spark.stop()


def _of_files(folder: str, records: int) -> None:
    """Print the seconds, and the largest memory of a Python worker in MB."""
    from streams_py.spark.history.run import run
    from streams_py.spark.session import MOSTLY_PYTHON, spark_session

    spark = spark_session("benchmark", master="local[2]", **MOSTLY_PYTHON)
    spark.sparkContext.setLogLevel("ERROR")
    largest, ended = _Largest(), threading.Event()
    watching = threading.Thread(target=largest.watch, args=(ended,), daemon=True)
    watching.start()
    began = time.perf_counter()
    with run(by_key(), {"records": f"{folder}/records"}, spark=spark) as results:
        taken = time.perf_counter() - began
        counted = sum(done.records for done in results.summaries()[0])
    ended.set()
    watching.join()
    if counted != records:
        raise BenchmarkError(f"{counted:,} of {records:,} records were counted")
    print(taken, largest.kilobytes / 1024, flush=True)
    spark.stop()


class _Largest:
    """The largest resident memory of this process's Python descendants."""

    def __init__(self) -> None:
        self.kilobytes = 0

    def watch(self, ended: threading.Event) -> None:
        while not ended.wait(_LOOK_S):
            for process in _descendants(os.getpid()):
                found = _status(process)
                if found.get("Name", "").startswith("python"):
                    self.kilobytes = max(self.kilobytes, int(found.get("VmHWM", "0 kB").split()[0]))


def _descendants(of: int) -> Iterator[int]:
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (parent := _status(int(folder.name)).get("PPid")):
            parents[int(folder.name)] = int(parent)
    below = {of}
    while more := {process for process, parent in parents.items() if parent in below} - below:
        below |= more
    yield from below - {of}


def _status(process: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:  # the process has stopped
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


if __name__ == "__main__":
    arguments: list[Any] = sys.argv[2:]
    match sys.argv[1]:
        case "words":
            _words(arguments[0], arguments[1], int(arguments[2]), int(arguments[3]))
        case "workers":
            _workers(int(arguments[0]), arguments[1], int(arguments[2]))
        case "archive":
            _of_files(arguments[0], int(arguments[1]))
