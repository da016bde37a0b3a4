"""A chain of ten stateless operators, compared with ten plain function calls, in processor time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from benchmarks.cluster import BenchmarkError
from benchmarks.table import Goal, Row
from streams_py import StreamsBuilder, serdes
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.testing.in_process import InProcessTasks
from streams_py.testing.memory_clients import ManualClock

_RECORDS = 100_000


def _more(value: int) -> int:
    return value + 1


def _is_positive(key: str, value: int) -> bool:
    return value > 0


def chain_rows(runs: int, tick: Callable[[str], None]) -> Iterator[Row]:
    """Measure five ``map_values`` and five ``filter`` in turn, without reading and writing."""
    results: list[int] = []
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.STRING, value=serdes.INT64)
    for _ in range(5):
        stream = stream.map_values(_more).filter(_is_positive)
    stream.foreach(lambda key, value: results.append(value))
    tasks = InProcessTasks(builder.build().subtopologies(), TaskSettings(application_id="bench"), clock=ManualClock())
    [task] = tasks.tasks.values()
    bound = task.bound
    if bound is None:
        raise BenchmarkError("the task has no nodes")
    [process] = bound.sources.values()

    def plain(key: str, value: int, timestamp_ms: int) -> None:
        value = _more(value)
        if not _is_positive(key, value):
            return
        value = _more(value)
        if not _is_positive(key, value):
            return
        value = _more(value)
        if not _is_positive(key, value):
            return
        value = _more(value)
        if not _is_positive(key, value):
            return
        value = _more(value)
        if not _is_positive(key, value):
            return
        results.append(value)

    ours: list[float] = []
    calls: list[float] = []
    for run in range(max(runs, 5)):
        tick(f"chain, run {run + 1}")
        for function, times in ((process, ours), (plain, calls)):
            results.clear()
            began = time.thread_time()
            for number in range(_RECORDS):
                function("key", number, 0)
            times.append((time.thread_time() - began) / _RECORDS * 1e6)
            if results != list(range(5, _RECORDS + 5)):
                raise BenchmarkError("the results are wrong")
    tasks.close()
    yield Row(
        "a record through ten map_values and filter operators",
        "ten plain calls",
        "us",
        tuple(ours),
        tuple(calls),
        Goal("<= 1.5 times", ratio_max=1.5),
    )
