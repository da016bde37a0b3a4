"""Calls of the record clients while the broker dies: the result is correct, or an error that asks for a retry.

The table has one row per call and kind of request that it makes. Each row runs with a broker that stops answering after
the request, and with one that is cut off after some bytes of its answer. Afterwards the same client must work. A row
takes seconds, because timeouts elapse. So only rows in which a wrong answer would lose state run always; the others
run in the weekly tier.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import ConfluentClients
from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.adapters.confluent.settings import admin_settings
from streams_py.adapters.connection.librdkafka_gaps import KafkaPythonEpochSender, kafka_python_connection
from streams_py.adapters.security.settings import SecuritySettings
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import StreamsError
from streams_py.ports import BEGINNING, AdminError, AdminErrorKind, TopicSpec
from streams_py.testing.broker import Broker
from tests.support.dying_broker import DyingBroker, Place, places
from tests.support.waiting import until

pytestmark = pytest.mark.broker

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 9, 10
CREATE_TOPICS, DELETE_RECORDS, DESCRIBE_CONFIGS = 19, 21, 32
RECORDS = 5
PASSING = (AdminErrorKind.TIMED_OUT, AdminErrorKind.LEADER_NOT_AVAILABLE)
_numbers = itertools.count()


class World:
    """A topic with records, and clients that reach the broker through the proxy."""

    def __init__(self, broker: Broker, proxy: DyingBroker) -> None:
        self.topic = f"dying-{os.getpid()}-{next(_numbers)}"
        broker.create_topic(self.topic, 2)
        self.here, self.empty = TopicPartition(self.topic, 0), TopicPartition(self.topic, 1)
        self.ends = {self.here: RECORDS, self.empty: 0}
        keys = {"application.id": "dying", "admin.default.api.timeout.ms": 2_000, "reconnect.backoff.max.ms": 100}
        direct = ConfluentClients(StreamsConfig.of({**keys, "bootstrap.servers": broker.bootstrap}))
        writer, admin = direct.producer("w"), direct.admin()
        for number in range(RECORDS):
            writer.produce(self.topic, b"%d" % number, b"k", 0, None, number + 1, None)
        assert writer.flush(20_000) == 0
        writer.close()
        until(lambda: admin.list_offsets([self.here, self.empty]) == {self.here: RECORDS, self.empty: 0}, "leaders")
        admin.close()
        keys |= {"producer.max.block.ms": 2_000, "producer.linger.ms": 1, "bootstrap.servers": proxy.bootstrap}
        self.config = StreamsConfig.of(keys)
        self.clients = ConfluentClients(self.config)
        self.admin = self.clients.admin()
        self.log = LogAdmin(admin_settings(self.config, bootstrap=proxy.bootstrap, client_id="log"), timeout_ms=2_000)
        self.consumer, self.producer = self.clients.main_consumer("c"), self.clients.producer("p")
        self.sender: KafkaPythonEpochSender | None = None
        self.connection = kafka_python_connection(proxy.bootstrap, "epoch", SecuritySettings(), embedded=False)

    def described(self) -> object:
        found = self.admin.describe_topics([self.topic])[self.topic]
        return found if isinstance(found, AdminError) else [info.partition for info in found]

    def read(self) -> object:
        """Return the result of a first read. A dying broker may only cause an empty result."""
        self.consumer.assign({self.here: BEGINNING})
        found: list[bytes | None] = []
        for _ in range(10):
            found += [record.value() for record in self.consumer.poll(10, 100)]
            if len(found) == RECORDS:
                return found
        assert found == [b"%d" % number for number in range(len(found))]
        raise StillWaitingError("not all read yet")

    def position(self) -> object:
        self.read()
        return self.consumer.position(self.here)

    def write(self) -> object:
        """Write a record. It may be written more than once; if acknowledged, it is in the log."""
        self.producer.produce(self.topic, b"more", b"k", 1, None, 9, None)
        for _ in range(10):
            if self.producer.flush(100) == 0:
                self.producer.check()
                return "written"
        raise StillWaitingError("not acknowledged yet")

    def write_at_epoch(self) -> object:
        self.sender = self.sender or KafkaPythonEpochSender(self.connection, timeout_ms=4_000)
        self.sender.send(self.topic, b"epoch", b"k", 1, None)
        return "written"

    def create(self) -> object:
        answer = self.admin.create_topics([TopicSpec(f"{self.topic}-made", 1)])[f"{self.topic}-made"]
        exists = isinstance(answer, AdminError) and answer.kind is AdminErrorKind.ALREADY_EXISTS
        return None if exists else answer

    def limit(self) -> object:
        return self.clients._batch_bytes_max(self.topic) in (None, 1_048_588 - 512)  # what a producer is given

    def delete(self) -> object:
        self.admin.delete_records({self.here: 0})
        return None

    def close(self) -> None:
        for client in (self.consumer, self.producer, self.admin, self.log, self.sender):
            if client is not None:
                client.close()


class StillWaitingError(StreamsError):
    """Nothing came yet, and nothing wrong."""

    retriable = True


class Row(NamedTuple):
    """A call, a kind of request that it makes, and its true answer."""

    name: str
    api_key: int
    call: Callable[[World], Any]
    truth: Callable[[World], Any]


VALUES = [b"%d" % number for number in range(RECORDS)]
TABLE = [
    Row("end offsets", LIST_OFFSETS, lambda w: w.admin.list_offsets([w.here, w.empty]), lambda w: w.ends),
    Row("end offsets", METADATA, lambda w: w.admin.list_offsets([w.here]), lambda w: {w.here: 5}),
    Row("describe", METADATA, World.described, lambda w: [0, 1]),
    Row("all topics", METADATA, lambda w: w.topic in w.admin.describe_topics(), lambda w: True),
    Row("create", CREATE_TOPICS, World.create, lambda w: None),
    Row("delete", DELETE_RECORDS, World.delete, lambda w: None),
    Row("committed", OFFSET_FETCH, lambda w: w.admin.committed_offsets("g", [w.here]), lambda w: {w.here: None}),
    Row("committed", FIND_COORDINATOR, lambda w: w.admin.committed_offsets("g", [w.here]), lambda w: {w.here: None}),
    Row("log ends", LIST_OFFSETS, lambda w: w.log.log_ends([w.here], read_committed=True), lambda w: {w.here: 5}),
    Row("log starts", LIST_OFFSETS, lambda w: w.log.log_starts([w.here]), lambda w: {w.here: 0}),
    Row("by time", LIST_OFFSETS, lambda w: w.log.first_at([w.here], 3), lambda w: {w.here: 2}),
    Row("partition counts", METADATA, lambda w: w.log.partition_counts()[w.topic], lambda w: 2),
    Row("topic ids", METADATA, lambda w: w.topic in w.log.topic_ids([w.topic]), lambda w: True),
    Row("limits", DESCRIBE_CONFIGS, World.limit, lambda w: True),
    Row("read", FETCH, World.read, lambda w: VALUES),
    Row("read", LIST_OFFSETS, World.read, lambda w: VALUES),
    Row("read", METADATA, World.read, lambda w: VALUES),
    Row("position", FETCH, World.position, lambda w: RECORDS),
    Row("write", PRODUCE, World.write, lambda w: "written"),
    Row("write", METADATA, World.write, lambda w: "written"),
    Row("partitions for", METADATA, lambda w: w.producer.partitions_for(w.topic), lambda w: 2),
    Row("write at epoch", PRODUCE, World.write_at_epoch, lambda w: "written"),
]  # fmt: skip


@pytest.fixture
def proxy(kafka_broker: Broker) -> Iterator[DyingBroker]:
    made = DyingBroker(kafka_broker.bootstrap.partition(",")[0])
    yield made
    made.close()


@pytest.fixture
def world(kafka_broker: Broker, proxy: DyingBroker) -> Iterator[World]:
    made = World(kafka_broker, proxy)
    yield made
    proxy.heal()
    made.close()


ALWAYS = {("end offsets", LIST_OFFSETS), ("committed", OFFSET_FETCH), ("read", FETCH), ("write", PRODUCE)}


@pytest.mark.parametrize(("row", "place"), places(TABLE, ALWAYS))
def test_call_gives_the_truth_or_asks_to_be_repeated_when_the_broker_dies_under_it(
    world: World, proxy: DyingBroker, row: Row, place: Place
) -> None:
    proxy.die_at(row.api_key, place)
    truth = row.truth(world)
    for _ in range(2):  # while it dies, and when it is dead
        assert_true_or_passing(row.call, world, truth)
    until(lambda: proxy.deaths or is_asked_again(row.call, world, truth), f"a request of kind {row.api_key} is made")
    proxy.heal()
    until(lambda: is_true(row.call, world, truth), "the truth, once the broker is back")


def assert_true_or_passing(call: Callable[[World], Any], world: World, truth: object) -> None:
    try:
        answer = call(world)
    except StreamsError as error:
        if not error.retriable:
            raise
        return
    if answer == truth:
        return
    for part in answer.values() if isinstance(answer, dict) else [answer]:
        assert isinstance(part, AdminError), answer
        assert part.kind in PASSING, part


def is_asked_again(call: Callable[[World], Any], world: World, truth: object) -> bool:
    """Check a call that was given up before its request was sent. Return False, since the broker has not died."""
    assert_true_or_passing(call, world, truth)
    return False


def is_true(call: Callable[[World], Any], world: World, truth: object) -> bool:
    try:
        return bool(call(world) == truth)
    except StreamsError as error:
        if not error.retriable:
            raise
        return False
