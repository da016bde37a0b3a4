"""The two jobs of the record benchmarks, on streams_py and as bare client loops. Run as a process of its own:

    python -m benchmarks.jobs ours|bare map|count BOOTSTRAP APPLICATION_ID INPUT OUTPUT CACHE_BYTES STATE_DIR

It works until its standard input ends.
"""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

import orjson

COMMIT_INTERVAL_MS = 100
"""Every peer commits this often, so that the cache's output appears throughout the run and can be timed."""


def increment(value: dict[str, Any]) -> dict[str, Any]:
    """What the map job does to each record."""
    value["n"] += 1
    return value


def ours(job: str, bootstrap: str, application: str, source: str, sink: str, cache: str, state_dir: str) -> None:
    """The job as an application of this library, one thread."""
    from streams_py import KafkaStreams, StreamsBuilder, serdes

    builder = StreamsBuilder()
    if job == "map":
        builder.stream(source, key=serdes.STRING, value=serdes.JSON).map_values(increment).to(
            sink, key=serdes.STRING, value=serdes.JSON
        )
    else:
        builder.stream(source, key=serdes.STRING, value=serdes.BYTES).group_by_key().count(
            store="counts"
        ).to_stream().to(sink, key=serdes.STRING, value=serdes.INT64)
    config = {
        "application.id": application,
        "bootstrap.servers": bootstrap,
        "state.dir": state_dir,
        "statestore.cache.max.bytes": cache,
        "commit.interval.ms": COMMIT_INTERVAL_MS,
    }
    with KafkaStreams(builder.build(), config):
        sys.stdin.read()


def bare(job: str, bootstrap: str, application: str, source: str, sink: str, cache: str, state_dir: str) -> None:
    """The job as a loop over the same client library: no group, no rebalance, no commit, no restore."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": application,
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    partitions = consumer.list_topics(source, 10).topics[source].partitions
    consumer.assign([TopicPartition(source, number, OFFSET_BEGINNING) for number in partitions])
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 100,
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    handle = (
        _bare_map(producer.produce, sink)
        if job == "map"
        else _bare_count(producer.produce, sink, application, state_dir)
    )
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.is_set():
        for message in consumer.consume(1000, 0.1):
            while True:
                try:
                    handle(message)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)


def _bare_map(produce: Callable[..., None], sink: str) -> Callable[[Any], None]:
    def handle(message: Any) -> None:
        key = message.key().decode()
        value = increment(orjson.loads(message.value()))
        produce(sink, orjson.dumps(value), key.encode(), -1, None, message.timestamp()[1])

    return handle


def _bare_count(produce: Callable[..., None], sink: str, application: str, state_dir: str) -> Callable[[Any], None]:
    from rocksdict import Options, Rdict, WriteOptions

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    store = Rdict(f"{state_dir}/bare", options)
    write = WriteOptions()
    write.disable_wal = True
    store.set_write_options(write)
    changelog = f"{application}-counts-changelog"
    get, pair, count8 = store.get, struct.Struct(">qq"), struct.Struct(">q")

    def handle(message: Any) -> None:
        key = message.key().decode().encode()
        timestamp = message.timestamp()[1]
        old = get(key)
        count = pair.unpack(old)[1] + 1 if old is not None else 1
        packed = count8.pack(count)
        store[key] = pair.pack(timestamp, count)
        produce(changelog, packed, key, message.partition(), None, timestamp)
        produce(sink, packed, key, -1, None, timestamp)

    return handle


if __name__ == "__main__":
    {"ours": ours, "bare": bare}[sys.argv[1]](*sys.argv[2:])
