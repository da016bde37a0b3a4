"""Joins and windows on a broker: global table, foreign keys, two streams, windows; again after the state was lost."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streams_py import JoinWindows, KafkaStreams, State, StreamsBuilder, TimeWindows, Topology, Windowed, serdes
from streams_py.testing.broker import Broker
from tests.support.waiting import PATIENCE_S, until

TOPICS = ("words", "regions", "orders", "customers", "left", "right", "out")
S = serdes.STRING


class Topics:
    """The topics of one test; their names have a unique suffix."""

    def __init__(self, bootstrap: str) -> None:
        self.suffix = f"-{os.getpid()}-{time.time_ns()}"
        self.start_ms = time.time_ns() // 10**10 * 10_000  # brokers delete old records of a windowed store's changelog
        self._producer = Producer({"bootstrap.servers": bootstrap})
        group = {"group.id": f"read{self.suffix}", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **group})
        self.seen: list[tuple[str, str]] = []
        admin = AdminClient({"bootstrap.servers": bootstrap})
        made = admin.create_topics([NewTopic(self.name(topic), 2, 1) for topic in TOPICS])
        for future in made.values():
            future.result(PATIENCE_S)
        self._consumer.subscribe([self.name("out")])

    def name(self, topic: str) -> str:
        return topic + self.suffix

    def send(self, topic: str, key: str, value: str, at_ms: int) -> None:
        self._producer.produce(self.name(topic), value.encode(), key.encode(), timestamp=self.start_ms + at_ms)
        self._producer.flush(PATIENCE_S)

    def await_output(self, *wanted: tuple[str, str]) -> None:
        def all_seen() -> bool:
            for record in self._consumer.consume(100, 0.2):
                if record.error() is None:
                    self.seen.append((record.key().decode(), record.value().decode()))
            return set(wanted) <= set(self.seen)

        until(all_seen, f"{wanted} in the output topic")

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def topics(kafka_broker: Broker) -> Iterator[Topics]:
    made = Topics(kafka_broker.bootstrap)
    yield made
    made.close()


def program(topics: Topics) -> Topology:
    builder = StreamsBuilder(key=S, value=S)
    regions = builder.global_table(topics.name("regions"), store="regions")
    words = builder.stream(topics.name("words"))
    in_region = words.join(regions, lambda word, region: f"{word} in {region}", on=lambda user, word: user)
    orders, customers = (
        builder.table(topics.name("orders"), store="o"),
        builder.table(topics.name("customers"), store="c"),
    )
    with_customer = orders.join(customers, lambda o, c: f"order of {c}", on=lambda k, v: v, name="fk").to_stream()
    left, right = builder.stream(topics.name("left")), builder.stream(topics.name("right"))
    both = left.join(right, lambda x, y: f"{x}+{y}", JoinWindows.of(1_000), name="both", store="both")

    def as_text(window: Windowed[str], count: int) -> tuple[str, str]:
        return window.key, f"{count} from {window.start}"

    counts = words.group_by_key().windowed_by(TimeWindows.of(10_000, grace=10_000)).count(store="counts").to_stream()
    for stream in (in_region, with_customer, both, counts.map(as_text)):
        stream.to(topics.name("out"), key=S, value=S)
    return builder.build()


@contextmanager
def running(topics: Topics, bootstrap: str, folder: Path) -> Iterator[None]:
    config: dict[str, Any] = {
        "application.id": f"app{topics.suffix}",
        "bootstrap.servers": bootstrap,
        "state.dir": str(folder),
        "commit.interval.ms": 100,
        "statestore.cache.max.bytes": 0,
    }
    with KafkaStreams(program(topics), config) as streams:
        assert streams.wait_until(State.RUNNING, PATIENCE_S)
        yield
        streams.close(leave_group=True)  # who comes next would wait for the end of the session


@pytest.mark.smoke
@pytest.mark.parametrize(
    "keeps_files", [pytest.param(True, marks=pytest.mark.weekly, id="files kept"), pytest.param(False, id="files lost")]
)
def test_joins_and_windows_continue_after_a_restart(
    kafka_broker: Broker, topics: Topics, tmp_path: Path, keeps_files: bool
) -> None:
    topics.send("regions", "ann", "north", 0)
    with running(topics, kafka_broker.bootstrap, tmp_path):
        topics.send("customers", "c1", "Eve", 1)
        topics.send("orders", "o1", "c1", 2)
        topics.send("left", "k", "l", 3)
        topics.send("words", "ann", "hello", 4)
        topics.await_output(("ann", "hello in north"), ("o1", "order of Eve"), ("ann", f"1 from {topics.start_ms}"))
    if not keeps_files:
        shutil.rmtree(tmp_path)
    with running(topics, kafka_broker.bootstrap, tmp_path):
        topics.send("customers", "c1", "Eva", 5)
        topics.send("right", "k", "r", 6)
        topics.send("words", "ann", "again", 7)
        topics.await_output(
            ("ann", "again in north"), ("o1", "order of Eva"), ("k", "l+r"), ("ann", f"2 from {topics.start_ms}")
        )
