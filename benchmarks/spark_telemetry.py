"""Growth of the time to build telemetry's tables with the number of events.

The events are from four groups of 16 tasks on 4 clients: rebalances, restores, first and last records, and samples.
They are stored in a Parquet file in the format of the topic. Measured is the time from there to all tables, without
writing them. Small builds are mostly overhead of Spark, so they are repeated and the best time counts, which makes the
comparison harder for the large build.

Also measured is an update: some new events after a day of many, from the micro-batch to the tables on disk.

Spark runs in a separate process:

    python -m benchmarks.spark_telemetry FOLDER EVENTS...
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from benchmarks.spark_process import lines_of
from benchmarks.table import Goal, Row
from streams_protocol.types import TaskId
from streams_py.events.codec import encode_value
from streams_py.events.model import (
    Assignor,
    Body,
    ClientPart,
    Consumer,
    Envelope,
    Event,
    OffsetSums,
    RebalanceHeader,
    Sample,
    SubtopologySlice,
    TaskEvent,
    ThreadTasks,
    Versions,
)
from streams_py.events.parts import cut_rebalance

Tick = Callable[[str], None]

_SIZES: Final = (10_000, 100_000, 1_000_000)
_LARGEST_VARIABLE: Final = "STREAMS_PY_BENCH_EVENTS"
_GROUPS: Final = 4
_TASKS: Final = tuple(TaskId(0, number) for number in range(16))
_CLIENTS: Final = tuple(f"00000000-0000-0000-0000-{number:012d}" for number in range(4))
_START_MS: Final = 1_700_006_400_000
_STEP_MS: Final = 5_000
_ROUND: Final = 200
"""Number of events between two rebalances of a group."""
_ROWS_PER_FILE_BATCH: Final = 50_000
_DAY: Final = 100_000
_NEW: Final = 100
_DAY_STEP_MS: Final = 700
"""Time between two events of a group, so that ``_DAY`` events take less than a day, in ms."""
_LOOK: Final = "look"


def telemetry_rows(runs: int, tick: Tick) -> Iterator[Row]:
    """Compare microseconds per event of histories by size. ``$STREAMS_PY_BENCH_EVENTS`` is the largest size."""
    largest = int(os.environ.get(_LARGEST_VARIABLE, _SIZES[-1]))
    sizes = [size for size in _SIZES if size < largest] + [largest]
    found: dict[int, float] = {}
    looks: tuple[float, ...] = ()
    with tempfile.TemporaryDirectory(prefix="streams-py-bench-") as folder:
        tick("telemetry: writing events, starting Spark")
        for line in lines_of("benchmarks.spark_telemetry", folder, *map(str, sizes)):
            first, *times = line.split()
            if first == _LOOK:
                looks = tuple(map(float, times))
                continue
            events, seconds = int(first), float(times[0])
            found[events] = 1e6 * seconds / events
            tick(f"telemetry: {events:,} events took {seconds:.1f} s")
    work = f"telemetry: {_NEW} new events after a day of {_DAY:,}, to tables on disk, warm"
    yield Row(work, "", "s", looks, goal=Goal("below 3 s", ours_max=3.0))
    for size in sizes[:-1]:
        goal = Goal("within 1.3 per event", ratio_max=1.3)
        work = f"telemetry build(), {largest:,} events, local[2]"
        yield Row(work, f"{size:,} events", "us/event", (found[largest],), (found[size],), goal)


# -- events ------------------------------------------------------------------------------------------------------------


def _write(path: str, events: int) -> None:
    """Write records as the data source reads them, in order of append time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp_ms", pa.int64()),
         ("value", pa.binary())]
    )  # fmt: skip
    with pq.ParquetWriter(path, schema) as file:
        batch: list[tuple[int, bytes]] = []
        written = 0
        for append_ms, value in _merged(events):
            batch.append((append_ms, value))
            if len(batch) == _ROWS_PER_FILE_BATCH or written + len(batch) == events:
                times, values = zip(*batch, strict=True)
                offsets = range(written, written + len(batch))
                columns: list[Any] = [["events"] * len(batch), [0] * len(batch), list(offsets), times, values]
                arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                file.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
                written += len(batch)
                batch = []
            if written == events:
                return


def _merged(events: int) -> Iterator[tuple[int, bytes]]:
    histories = [_history(f"group-{number}") for number in range(_GROUPS)]
    for _ in range(events // _GROUPS + 1):
        for history in histories:
            yield next(history)


def _history(group: str, step_ms: int = _STEP_MS) -> Iterator[tuple[int, bytes]]:
    """Yield the events of one group indefinitely, as append time and value."""
    seqs = dict.fromkeys(_CLIENTS, -1)
    at_ms, generation = _START_MS, 0
    while True:
        generation += 1
        owner = {task: _CLIENTS[(task.partition + generation // 3) % len(_CLIENTS)] for task in _TASKS}
        envelope = _envelope(group, _CLIENTS[0], seqs, at_ms)
        for event in cut_rebalance(envelope, *_rebalance(group, generation, owner)):
            yield at_ms, encode_value(event)
        for number in range(_ROUND):
            at_ms += step_ms
            task = _TASKS[number % len(_TASKS)]
            client = owner[task]
            envelope = _envelope(group, client, seqs, at_ms)
            yield at_ms, encode_value(Event(envelope, _body(number, task, generation, at_ms)))


def _body(number: int, task: TaskId, generation: int, at_ms: int) -> Body:
    if number >= 4 * len(_TASKS):
        known = [number % 97] * 4
        return Sample(tasks=_TASKS[:4], input_lag=known, records=known, busy_us=known, commit_age_ms=known)
    event = ("last_record", "restore_started", "restored", "first_record")[number // len(_TASKS)]
    details: dict[str, dict[str, Any]] = {
        "last_record": {"last_mono_us": (at_ms - _START_MS) * 1_000},
        "restore_started": {"records_total": 1_000, "stores": ("counts",)},
        "restored": {"records": 1_000, "took_us": 250_000},
        "first_record": {"since_assigned_us": 900_000},
    }
    return TaskEvent(task=task, role="active", member="member", generation=generation, event=event, **details[event])


def _envelope(group: str, process: str, seqs: dict[str, int], at_ms: int) -> Envelope:
    seqs[process] += 1
    mono_us = (at_ms - _START_MS + 60_000) * 1_000
    return Envelope(
        group=group, process=process, run="run", seq=seqs[process], at_ms=at_ms - 20, mono_us=mono_us, dropped=0
    )


def _rebalance(
    group: str, generation: int, owner: dict[TaskId, str]
) -> tuple[RebalanceHeader, list[SubtopologySlice], list[ClientPart]]:
    rebalance_id = f"0011223344556677-{generation:012d}-0"
    header = RebalanceHeader(
        rebalance_id=rebalance_id,
        parts=1,
        generation=generation,
        leader_member="leader",
        trigger=("member_joined",),
        assignor=Assignor("streams_py.assignment:HighAvailability", "1", custom=False),
        configs={"acceptable.recovery.lag": 10_000, "num.standby.replicas": 1},
        versions=Versions(11, 11, future=False),
        lag_ok=True,
        counts={"clients": 4, "consumers": 4, "tasks": 16, "stateful": 16, "active": 16, "standby": 16},
        duration_us={"assign": 1_234, "total": 5_678},
        followups=(),
        outcome="ok",
        error=None,
        library="streams-py",
    )
    piece = SubtopologySlice(
        sub="0", first=0, count=len(_TASKS), stateful=True, logged=True, stores=("counts",), sources=("in",),
        changelogs=(f"{group}-counts-changelog",), end=[1_000_000 + generation] * len(_TASKS),
    )  # fmt: skip
    parts = []
    for number, client in enumerate(_CLIENTS):
        active = [task for task in _TASKS if owner[task] == client]
        standby = [task for task in _TASKS if owner[task] == _CLIENTS[number - 1]]
        parts.append(
            ClientPart(
                rebalance_id=rebalance_id, part=0, parts=0, client=client, slice=0, slices=1, host=None, rack=None,
                tags={"zone": "abc"[number % 3]}, consumers=[Consumer(f"member-{number}", 11, 11, active)],
                prev_active=active, prev_standby=standby, sums=OffsetSums(standby, [999_000] * len(standby)),
                active=active, standby=standby, warmup=(), threads=[ThreadTasks(active, standby, ())],
                reasons={"kept": active, "standby_default": standby},
            )
        )  # fmt: skip
    return header, [piece], parts


# -- in the process with Spark -----------------------------------------------------------------------------------------


def _measure(folder: str, sizes: list[int]) -> None:
    """Print the number of events and the seconds of the best build, one line per size."""
    from streams_py.spark.build import bronze_of, fold_events, refused_of, tables_of
    from streams_py.spark.session import spark_session

    for size in sizes:
        _write(f"{folder}/{size}.parquet", size)
    spark = spark_session("benchmark", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")

    def build(size: int) -> float:
        began = time.perf_counter()
        bronze = bronze_of(spark.read.parquet(f"{folder}/{size}.parquet"))
        folded = fold_events(bronze).persist()
        for table in (tables_of(folded) | refused_of(bronze.limit(0))).values():
            table.write.format("noop").mode("overwrite").save()
        folded.unpersist()
        return time.perf_counter() - began

    build(sizes[0])  # includes the start of workers and compilation
    for size in sizes:
        times = [build(size) for _ in range(3 if size <= sizes[0] else 1)]
        print(size, min(times), flush=True)
    print(_LOOK, *_looks(spark, f"{folder}/tables"), flush=True)
    spark.stop()


def _looks(spark: Any, folder: str) -> list[float]:
    """Return the seconds of updates with ``_NEW`` events each, after a day of ``_DAY`` events."""
    from streams_py.spark.telemetry import TableFolder

    tables = TableFolder(spark, folder, "group-0")
    tables.claim()
    history = _history("group-0", _DAY_STEP_MS)
    schema = "topic string, partition int, offset bigint, timestamp_ms bigint, value binary"
    offset = 0

    def add(count: int, batch_id: int) -> float:
        nonlocal offset
        rows = [("events", 0, offset + number, *next(history)) for number in range(count)]
        offset += count
        records = spark.createDataFrame(rows, schema)
        began = time.perf_counter()
        tables.add(records, batch_id)
        return time.perf_counter() - began

    add(_DAY, 0)
    add(_NEW, 1)  # warm from here on
    return [add(_NEW, batch_id) for batch_id in range(2, 7)]


if __name__ == "__main__":
    _measure(sys.argv[1], [int(size) for size in sys.argv[2:]])
