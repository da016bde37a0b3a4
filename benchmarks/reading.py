"""Local reads of a store while its task processes: time of a ``get`` from another thread, and its cost for the task.

    python -m benchmarks.reading RATE    (records per second; 0: as fast as possible)

One real task counts per key on one thread, with its store on disk and without a broker. A second thread reads at
constant intervals through a view of :meth:`KafkaStreams.store`. Both share Python's interpreter lock, as in an
application. Slices of 0.2 s with and without reads take turns, so that other load on the machine affects both equally.

Only the read itself is timed. The reading thread may have to wait for the interpreter lock before it (up to
``sys.getswitchinterval()``, 5 ms, if another thread is busy). That wait is not included, but all reads that became due
meanwhile follow immediately, so the number of reads is as stated.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from statistics import median
from types import SimpleNamespace
from typing import Any

from benchmarks.own_process import numbers_of
from benchmarks.table import Goal, Row

_RATE = 100_000
_READS = 1_000
_SECONDS = 8
_KEYS = 100_000
_BATCH = 1_000
_COMMIT_S = 0.1
_SLICE_S = 0.2


def reading_rows(runs: int, tick: Callable[[str], None]) -> Iterator[Row]:
    """Measure the 99th percentile of a read, and the records per second with and without reads."""
    slow, alone, compared_with = [], [], []
    for run in range(runs):
        tick(f"reads while {_RATE:,} records/s are counted, run {run + 1}")
        slow.append(numbers_of("reading", str(_RATE), count=3)[2])
        with_reads, without, _ = numbers_of("reading", "0", count=3)
        compared_with.append(with_reads)
        alone.append(without)
    yield Row(
        f"get from another thread, 99 of 100, while {_RATE:,} records/s are counted",
        "",
        "ms",
        tuple(slow),
        goal=Goal("< 1", ours_max=1.0),
    )
    yield Row(
        f"count, full speed, with {_READS:,} reads/s",
        "without reads",
        "records/s",
        tuple(compared_with),
        tuple(alone),
        Goal(">= 0.95", ratio_min=0.95),
    )


def run(rate: int, state_dir: str) -> tuple[float, float, float]:
    """Return (records per second with reads, without reads, 99th percentile of a read in ms)."""
    from streams_protocol.types import TaskId, TopicPartition
    from streams_py import State, StreamsBuilder, ThreadState, serdes
    from streams_py.runtime.offline.executor import TaskEnvironment, TaskExecutor
    from streams_py.runtime.queries.store_view import store_view
    from streams_py.runtime.tasks.settings.task_settings import TaskSettings
    from streams_py.state.directory.state_directory import StateDirectory
    from streams_py.state.reading.queryable import QueryableStoreType
    from streams_py.testing.memory_clients import ManualClock, MemoryProducer, MemoryRecord

    class Forgetting(MemoryProducer):
        """A producer that drops all records."""

        def __init__(self) -> None:
            super().__init__()
            self.produce = lambda *_: None

    builder = StreamsBuilder()
    builder.stream("in", key=serdes.STRING, value=serdes.BYTES).group_by_key().count(store="counts")
    [nodes] = builder.build().subtopologies()
    directory = StateDirectory(state_dir, "bench")
    directory.open()
    source = TopicPartition("in", 0)
    around = TaskEnvironment(
        settings=TaskSettings(application_id="bench"), producer=Forgetting(), clock=ManualClock(), directory=directory
    )
    executor = TaskExecutor(TaskId(0, 0), nodes, [source], around)
    executor.start()
    thread: Any = SimpleNamespace(state=ThreadState.RUNNING, shown_tasks=(executor.task,))
    view: Any = store_view(
        "counts",
        lambda: State.RUNNING,
        lambda: [thread],
        ["counts"],
        dict,
        kind=QueryableStoreType.KEY_VALUE,
        partition=None,
        stale=False,
    )
    keys = [b"user-%06d" % (number * 7919 % _KEYS) for number in range(_KEYS)]
    batches = [
        [MemoryRecord("in", 0, first + n, keys[first + n], b"v", timestamp_ms=1) for n in range(_BATCH)]
        for first in range(0, _KEYS, _BATCH)
    ]
    took: list[float] = []
    done, reading = threading.Event(), threading.Event()

    def read() -> None:
        number, due_s = 0, time.perf_counter()
        while not done.wait(1 / _READS):
            if not reading.is_set():
                reading.wait(_SLICE_S)
                due_s = time.perf_counter()
                continue
            while due_s <= time.perf_counter():
                due_s += 1 / _READS
                key = keys[number * 104_729 % _KEYS].decode()
                began = time.perf_counter()
                view.get(key)
                took.append(time.perf_counter() - began)
                number += 1

    reader = threading.Thread(target=read)
    reader.start()
    worked_off: dict[bool, list[float]] = {True: [], False: []}
    began_s = time.perf_counter()
    next_commit_s, worked, number = began_s + _COMMIT_S, 0, 0
    slice_s, slice_worked = began_s, 0
    while (now_s := time.perf_counter()) - began_s < _SECONDS:
        if rate and worked > rate * (now_s - began_s):
            time.sleep(0.001)  # like a poll that waits for records
            continue
        if number % len(batches) == 0:
            executor.task.positions.start_again_at(source)  # otherwise they are skipped as records delivered twice
        executor.add(source, batches[number % len(batches)])
        while taken := executor.step(_BATCH):
            worked += taken
        number += 1
        if now_s - slice_s > _SLICE_S:
            worked_off[reading.is_set()].append((worked - slice_worked) / (now_s - slice_s))
            (reading.clear if reading.is_set() else reading.set)()
            slice_s, slice_worked = now_s, worked
        if now_s > next_commit_s:
            executor.commit()
            next_commit_s = now_s + _COMMIT_S
    done.set()
    reader.join()
    executor.close()
    directory.close()
    took.sort()
    return median(worked_off[True]), median(worked_off[False]), took[len(took) * 99 // 100] * 1000


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="streams-py-bench-") as folder:
        print(*run(int(sys.argv[1]), folder))
