"""Benchmarks that need no common broker: wire format, start-up, imports, memory, assignors, recovery and others."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.assignors.rows import assignor_rows
from benchmarks.chain import chain_rows
from benchmarks.cluster import BenchmarkError
from benchmarks.connect import connect_rows
from benchmarks.gaps import gap_rows
from benchmarks.inspecting import inspect_rows
from benchmarks.join_growth import growth_rows
from benchmarks.reading import reading_rows
from benchmarks.recovery import recovery_rows
from benchmarks.restoring import restore_rows
from benchmarks.simulated import simulator_rows
from benchmarks.snapshots import snapshot_rows
from benchmarks.spark_backtest import backtest_rows
from benchmarks.spark_events import event_rows
from benchmarks.spark_history import history_rows
from benchmarks.spark_read import read_rows
from benchmarks.spark_telemetry import telemetry_rows
from benchmarks.table import Goal, Row, reason_of
from benchmarks.takeover import takeover_rows
from streams_protocol import ProcessId, SubscriptionInfo, TaskId, decode_subscription_info, encode_subscription_info

Tick = Callable[[str], None]
"""Function that is called with a description before each measurement."""

_ROOT = Path(__file__).resolve().parent.parent
_TASKS = 10_000
_SUBTOPOLOGIES = 10
_IDLE_TASKS = 100


def protocol(runs: int, tick: Tick) -> Iterator[Row]:
    """Compare SubscriptionInfo v11 of 10,000 tasks with the standard library's json of the same rows.

    The peer converts from and to a list of rows. This library converts from and to a mapping of tasks, and checks every
    field.
    """
    sums = {
        TaskId(number // (_TASKS // _SUBTOPOLOGIES), number % (_TASKS // _SUBTOPOLOGIES)): 1_000_000 + 977 * number
        for number in range(_TASKS)
    }
    info = SubscriptionInfo(ProcessId(uuid.UUID(int=7)), endpoint="localhost:8080", task_offset_sums=sums)
    content = {
        "version": info.version,
        "latestSupportedVersion": info.latest_supported_version,
        "processId": str(info.process_id),
        "userEndPoint": info.endpoint,
        "taskOffsetSums": [[task.subtopology, task.partition, total, None] for task, total in sums.items()],
        "uniqueField": info.unique_field,
        "errorCode": info.error_code,
        "clientTags": [],
    }
    if decode_subscription_info(encode_subscription_info(info)) != info:
        raise BenchmarkError("decode(encode(x)) is not x")
    ours: list[float] = []
    peer: list[float] = []
    for run in range(max(runs, 5)):
        tick(f"SubscriptionInfo, run {run + 1}")
        ours.append(_milliseconds(lambda: decode_subscription_info(encode_subscription_info(info))))
        peer.append(_milliseconds(lambda: json.loads(json.dumps(content))))
    yield Row(
        f"SubscriptionInfo v11, {_TASKS:,} tasks, encode + decode",
        "json, same rows",
        "ms",
        tuple(ours),
        tuple(peer),
        Goal("faster", ratio_max=1.0),
    )


def _milliseconds(action: Callable[[], object], *, repeat: int = 10) -> float:
    best = float("inf")
    for _ in range(repeat):
        began = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - began)
    return best * 1000


def start(runs: int, tick: Tick) -> Iterator[Row]:
    """Measure the time from a new process to RUNNING, including the start of the embedded cluster."""
    seconds: list[float] = []
    for run in range(runs):
        tick(f"start to RUNNING, run {run + 1}")
        seconds.append(_probe("start"))
    yield Row(
        "imports + start to RUNNING, one member, embedded", "", "s", tuple(seconds), (), Goal("< 3 s", ours_max=3)
    )


def imports(runs: int, tick: Tick) -> Iterator[Row]:
    """Measure imports in new processes, in turn."""
    modules = ("streams_py", "streams_py.runtime.client.kafka_streams", "confluent_kafka")
    seconds: dict[str, list[float]] = {module: [] for module in modules}
    for run in range(max(runs, 7)):
        tick(f"imports, run {run + 1}")
        for module in modules:
            seconds[module].append(1000 * _probe("import", module))
    peer = tuple(seconds["confluent_kafka"])
    goal = Goal("< 2 times", ratio_max=2.0)
    yield Row("import streams_py", "import confluent_kafka", "ms", tuple(seconds["streams_py"]), peer, goal)
    yield Row(
        "the same with KafkaStreams looked up",
        "import confluent_kafka",
        "ms",
        tuple(seconds["streams_py.runtime.client.kafka_streams"]),
        peer,
    )


def memory(runs: int, tick: Tick) -> Iterator[Row]:
    """Measure the resident memory of an idle application process that counts per key."""
    megabytes: list[float] = []
    for run in range(runs):
        tick(f"memory of {_IDLE_TASKS} idle tasks, run {run + 1}")
        with tempfile.TemporaryDirectory(prefix="streams-py-bench-") as folder:
            megabytes.append(_probe("memory", str(_IDLE_TASKS), folder))
    goal = Goal("< 250 MB", ours_max=250)
    yield Row(f"memory, idle, {_IDLE_TASKS} tasks with RocksDB", "", "MB", tuple(megabytes), goal=goal)


def local_rows(name: str, runs: int, tick: Tick, *, with_jvm: bool = True) -> Iterator[Row]:
    """Yield the rows of one of LOCAL during the measurement; an error becomes a failed row."""
    measure: Callable[[int, Tick], Iterator[Row]] = LOCAL[name]
    if measure in (assignor_rows, gap_rows, restore_rows, takeover_rows) and not with_jvm:
        measure = partial(measure, with_jvm=False)
    try:
        yield from measure(runs, tick)
    except Exception as error:  # an error of one benchmark must not prevent the rest of the table
        yield Row(name, "", "", (), note=reason_of(error), failed=True)


def _probe(*arguments: str) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.probes", *arguments],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        check=False,
        timeout=300,
    )
    if done.returncode:
        raise BenchmarkError(f"probe {arguments[0]} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


LOCAL: dict[str, Callable[[int, Tick], Iterator[Row]]] = {
    "protocol": protocol,
    "start": start,
    "imports": imports,
    "memory": memory,
    "chain": chain_rows,
    "join-growth": growth_rows,
    "reading": reading_rows,
    "inspect": inspect_rows,
    "snapshots": snapshot_rows,
    "recovery": recovery_rows,
    "gaps": gap_rows,
    "takeover": takeover_rows,
    "restore": restore_rows,
    "assignors": assignor_rows,
    "simulator": simulator_rows,
    "connect": connect_rows,
    "events": event_rows,
    "spark-read": read_rows,
    "spark-history": history_rows,
    "telemetry": telemetry_rows,
    "backtest": backtest_rows,
}
