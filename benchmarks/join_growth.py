"""Time per record and memory of a windowed join of two streams, for increasing numbers of records.

    python -m benchmarks.join_growth RECORDS    (one process: processor us per record, and peak MB)

It runs one real task with stores on disk, without a broker. Output records are counted and dropped, so all memory
belongs to the join. Event time advances with each record, so every window contains the same number of records.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.own_process import numbers_of
from benchmarks.table import Goal, Row
from streams_protocol.types import TaskId, TopicPartition

_RECORDS = 100_000
_TIMES = 4
_RECORDS_PER_MS = 5
_WINDOW_MS = 1_000
_KEYS = 5_000
_BATCH = 1_000
_COMMIT_EVERY = 20
"""Number of batches between two commits."""


def growth_rows(runs: int, tick: Callable[[str], None]) -> Iterator[Row]:
    """Compare a join of ``_RECORDS`` records with one of four times as many."""
    times: dict[int, list[float]] = {_RECORDS: [], _TIMES * _RECORDS: []}
    peaks: dict[int, list[float]] = {_RECORDS: [], _TIMES * _RECORDS: []}
    for run in range(runs):
        for records in times:
            tick(f"join of {records:,} records, run {run + 1}")
            us, peak_mb = numbers_of("join_growth", str(records), count=2)
            times[records].append(us)
            peaks[records].append(peak_mb)
    few, many = times
    work = f"windowed join of two streams, {many:,} records"
    compared_with = f"{few:,} records"
    yield Row(
        f"{work}: each", compared_with, "us", tuple(times[many]), tuple(times[few]), Goal("<= 1.2", ratio_max=1.2)
    )
    yield Row(
        f"{work}: peak", compared_with, "MB", tuple(peaks[many]), tuple(peaks[few]), Goal("<= 1.2", ratio_max=1.2)
    )


def run(records: int, state_dir: str) -> tuple[float, float]:
    """Join the records; return (processor time per record in us, peak memory of this process in MB)."""
    from streams_py import JoinWindows, StreamsBuilder, serdes
    from streams_py.runtime.offline.executor import TaskEnvironment, TaskExecutor
    from streams_py.runtime.tasks.settings.task_settings import TaskSettings
    from streams_py.state.directory.state_directory import StateDirectory
    from streams_py.testing.memory_clients import ManualClock, MemoryProducer, MemoryRecord

    class Counting(MemoryProducer):
        """A producer that counts records and drops them."""

        def __init__(self) -> None:
            super().__init__()
            self.counts: dict[str, int] = {}
            self.produce = self._count

        def _count(self, topic: str, *_: Any) -> None:
            self.counts[topic] = self.counts.get(topic, 0) + 1

    builder = StreamsBuilder()
    left, right = (builder.stream(name, key=serdes.STRING, value=serdes.BYTES) for name in ("left", "right"))
    joined = left.join(right, lambda this, other: other, JoinWindows.of(_WINDOW_MS))
    joined.to("joined", key=serdes.STRING, value=serdes.BYTES)
    [nodes] = builder.build().subtopologies()
    producer, directory = Counting(), StateDirectory(state_dir, "bench")
    directory.open()
    inputs = [TopicPartition("left", 0), TopicPartition("right", 0)]
    around = TaskEnvironment(
        settings=TaskSettings(application_id="bench"), producer=producer, clock=ManualClock(), directory=directory
    )
    executor = TaskExecutor(TaskId(0, 0), nodes, inputs, around)
    executor.start()
    used_s = 0.0
    for batch, first in enumerate(range(0, records, _BATCH)):
        made: tuple[list[MemoryRecord], list[MemoryRecord]] = ([], [])
        for number in range(first, first + _BATCH):
            side, timestamp_ms = number % 2, 1 + number // _RECORDS_PER_MS
            key = b"key-%d" % (number // 2 % _KEYS)
            made[side].append(
                MemoryRecord(inputs[side].topic, 0, number // 2, key, b"v" * 100, timestamp_ms=timestamp_ms)
            )
        began = time.thread_time()
        for side in (0, 1):
            executor.add(inputs[side], made[side])
        while executor.step(_BATCH):
            pass
        if batch % _COMMIT_EVERY == _COMMIT_EVERY - 1:
            executor.commit()
        used_s += time.thread_time() - began
    executor.close()
    directory.close()
    if producer.counts.get("joined", 0) < records // 2:
        raise SystemExit(f"only {producer.counts} of {records} records were joined")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used_s / records * 1e6, peak / (2**20 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="streams-py-bench-") as folder:
        print(*run(int(sys.argv[1]), folder))
