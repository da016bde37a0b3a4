"""The jobs of the record benchmarks on streams_py, and two of them as bare client loops. Run as a separate process:

    python -m benchmarks.jobs ours|bare JOB BOOTSTRAP APPLICATION_ID INPUT OUTPUT CACHE_BYTES COMMIT_MS STATE_DIR

INPUT is one topic, or two topics separated by a comma. JOB is map, clean (a map with more work), one of these followed
by -processes, count, window, table-join, stream-join or async. The bare loops support map and count.

It runs until its standard input is closed. With PROFILE=FILE in the environment, `ours` writes a profile of its stream
thread to FILE.
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from benchmarks.cleaning import clean

WINDOW_MS = 10_000
JOIN_MS = 100
EXACTLY_ONCE = "count-exactly-once"
"""Name of the job ``count`` with exactly-once."""
IN_PROCESSES = "-processes"
"""Suffix of a map's name: it runs in several processes."""
_PROCESSES = 4
CALLS_PER_TASK = 16
"""Concurrent calls per task; 64 in the one thread, with four partitions."""


class Order(NamedTuple):
    """The command line of every peer, in this order."""

    job: str
    bootstrap: str
    application: str
    source: str
    sink: str
    cache_bytes: str
    commit_ms: str
    state_dir: str


def increment(value: dict[str, Any]) -> dict[str, Any]:
    """The function of the map job."""
    value["n"] += 1
    return value


_MAPS = {"map": increment, "clean": clean}


def ours(order: Order) -> None:
    """Run the job as an application of this library, with one thread."""
    from streams_py import KafkaStreams, StreamsBuilder, serdes

    builder = StreamsBuilder()
    change = _MAPS.get(order.job.removesuffix(IN_PROCESSES))
    if change is not None:
        builder.stream(order.source, key=serdes.STRING, value=serdes.JSON).map_values(change).to(
            order.sink, key=serdes.STRING, value=serdes.JSON
        )
    else:
        _describe(builder, order)
    config = {
        "application.id": order.application,
        "bootstrap.servers": order.bootstrap,
        "state.dir": order.state_dir,
        "statestore.cache.max.bytes": order.cache_bytes,
        "commit.interval.ms": order.commit_ms,
        "processing.guarantee": "exactly_once_v2" if order.job == EXACTLY_ONCE else "at_least_once",
    }
    profile = os.environ.get("PROFILE")
    written = _profile_stream_thread(profile) if profile else None
    streams = KafkaStreams(builder.build(), config)
    if order.job.endswith(IN_PROCESSES):
        _run_processes(streams)
        return
    with streams:
        sys.stdin.read()
    if written is not None:
        written.wait()


def _run_processes(streams: Any) -> None:
    """Run several processes until standard input is closed."""

    def wait_for_parent() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)

    from streams_py.runtime.processes.child import this_process

    if this_process() is None:
        threading.Thread(target=wait_for_parent, daemon=True).start()
    streams.run(processes=_PROCESSES)


def one_process(order: Order) -> None:
    """Run a map in one process, for comparison with several."""
    ours(order._replace(job=order.job.removesuffix(IN_PROCESSES)))


def at_least_once(order: Order) -> None:
    """Run the job ``count`` with at-least-once, for comparison with exactly-once."""
    ours(order._replace(job="count"))


def _describe(builder: Any, order: Order) -> None:
    """Build the topology of a job on text keys and bytes values."""
    from streams_py import JoinWindows, TimeWindows, serdes

    first, *others = order.source.split(",")
    stream = builder.stream(first, key=serdes.STRING, value=serdes.BYTES)
    match order.job:
        case "count" | "count-exactly-once":
            counts = stream.group_by_key().count(store="counts")
            counts.to_stream().to(order.sink, key=serdes.STRING, value=serdes.INT64)
        case "window":
            counts = stream.group_by_key().windowed_by(TimeWindows.of(WINDOW_MS)).count(store="counts")
            counts.to_stream().to(order.sink, value=serdes.INT64)
        case "table-join":
            table = builder.table(others[0], key=serdes.STRING, value=serdes.BYTES, store="rows")
            stream.join(table, lambda value, row: row).to(order.sink, key=serdes.STRING, value=serdes.BYTES)
        case "stream-join":
            other = builder.stream(others[0], key=serdes.STRING, value=serdes.BYTES)
            joined = stream.join(other, lambda left, right: right, JoinWindows.of(JOIN_MS))
            joined.to(order.sink, key=serdes.STRING, value=serdes.BYTES)
        case "async":

            async def look_up(value: bytes) -> bytes:
                await asyncio.sleep(0.01)
                return value

            answers = stream.map_values_async(look_up, concurrency=CALLS_PER_TASK)
            answers.to(order.sink, key=serdes.STRING, value=serdes.BYTES)


def _profile_stream_thread(path: str) -> threading.Event:
    """Write a profile of the stream thread to ``path`` at its end; return an event that is set afterwards."""
    import cProfile

    from streams_py.runtime.thread.stream_thread import StreamThread

    run, written = StreamThread._run, threading.Event()

    def profiled(self: StreamThread) -> None:
        profiler = cProfile.Profile()
        profiler.runcall(run, self)
        profiler.dump_stats(path)
        written.set()

    StreamThread._run = profiled  # type: ignore[method-assign]  # only for measurements
    return written


def bare(order: Order) -> None:
    """Run the job as a loop over the same client library, without group, rebalance, commit and restore."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": order.bootstrap,
            "group.id": order.application,
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    partitions = consumer.list_topics(order.source, 10).topics[order.source].partitions
    consumer.assign([TopicPartition(order.source, number, OFFSET_BEGINNING) for number in partitions])
    producer = Producer(
        {
            "bootstrap.servers": order.bootstrap,
            "linger.ms": 100,
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )

    def produce(*record: Any) -> None:
        while True:
            try:
                producer.produce(*record)
                return
            except BufferError:
                producer.poll(0.01)

    handle, flush = _bare_map(produce, order) if order.job == "map" else _bare_count(produce, order)
    ended = threading.Event()

    def wait_for_parent() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_parent, daemon=True).start()
    interval_s = int(order.commit_ms) / 1000
    flushed = time.monotonic()
    while not ended.is_set():
        for message in consumer.consume(1000, 0.1):
            handle(message)
        producer.poll(0)
        if time.monotonic() - flushed >= interval_s:
            flush()
            flushed = time.monotonic()


_Handle = Callable[[Any], None]
_Flush = Callable[[], None]


def _bare_map(produce: Callable[..., None], order: Order) -> tuple[_Handle, _Flush]:
    sink = order.sink

    def handle(message: Any) -> None:
        key = message.key().decode()
        value = increment(orjson.loads(message.value()))
        produce(sink, orjson.dumps(value), key.encode(), -1, None, message.timestamp()[1])

    return handle, lambda: None


def _bare_count(produce: Callable[..., None], order: Order) -> tuple[_Handle, _Flush]:
    """Write store, changelog and output. With a cache, a dict collects changes until ``flush`` writes them."""
    from rocksdict import Options, Rdict, WriteOptions

    options: Any = Options(raw_mode=True)
    options.create_if_missing(True)
    store = Rdict(f"{order.state_dir}/bare", options)
    write: Any = WriteOptions()
    write.disable_wal = True
    store.set_write_options(write)
    sink, changelog = order.sink, f"{order.application}-counts-changelog"
    get, pair, count8 = store.get, struct.Struct(">qq"), struct.Struct(">q")

    def put(key: bytes, count: int, partition: int, timestamp: int) -> None:
        packed = count8.pack(count)
        store[key] = pair.pack(timestamp, count)
        produce(changelog, packed, key, partition, None, timestamp)
        produce(sink, packed, key, -1, None, timestamp)

    def old_count(key: bytes) -> int:
        old = get(key)
        return pair.unpack(old)[1] if old is not None else 0

    def handle(message: Any) -> None:
        key = message.key().decode().encode()
        put(key, old_count(key) + 1, message.partition(), message.timestamp()[1])

    dirty: dict[str, tuple[int, int, int]] = {}
    clean: dict[str, int] = {}

    def handle_cached(message: Any) -> None:
        key = message.key().decode()
        count = clean.get(key)
        if count is None:
            count = old_count(key.encode())
        clean[key] = count = count + 1
        dirty[key] = (count, message.partition(), message.timestamp()[1])

    def flush() -> None:
        for key, entry in dirty.items():
            put(key.encode(), *entry)
        dirty.clear()

    return (handle, lambda: None) if order.cache_bytes == "0" else (handle_cached, flush)


if __name__ == "__main__":
    kinds = {"ours": ours, "one-process": one_process, "at-least-once": at_least_once, "bare": bare}
    kinds[sys.argv[1]](Order(*sys.argv[2:]))
