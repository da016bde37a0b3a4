"""Records that a broker refuses: the handler is asked about each of them once, and all others are written."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as Position

from streams_py import KafkaStreams, State, StreamsBuilder, serdes
from streams_py.adapters.connection.librdkafka_gaps import KafkaPythonEpochSender, kafka_python_connection
from streams_py.adapters.security.settings import parse_security
from streams_py.errors import ProductionError, StreamsError
from streams_py.runtime.tasks.settings.handlers import Answer, DeadLetterQueue, OutgoingRecord, Response
from streams_py.testing.broker import Broker
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.broker

GUARANTEES = ("at_least_once", "exactly_once_v2")
ANY_TIME = {
    "message.timestamp.after.max.ms": str(2**62),
    "message.timestamp.before.max.ms": str(2**62),
    "retention.ms": "-1",
}
"""An input topic takes what its output refuses, and keeps records with timestamp 0."""
_DAY_MS = 86_400_000
_numbers = itertools.count()


class In(NamedTuple):
    """A record of the input; ``age_ms`` is how long before now it was made."""

    key: bytes | None
    value: bytes
    age_ms: int = 0
    headers: Sequence[tuple[str, bytes]] = ()


class Refusal(NamedTuple):
    """A record, and the configuration of a topic that refuses it."""

    record: In
    config: Mapping[str, str]
    reason: str


REFUSALS = {
    "no key, compacted topic": Refusal(In(None, b"bad"), {"cleanup.policy": "compact"}, "INVALID_RECORD"),
    "too far ahead": Refusal(In(b"k", b"bad", -_DAY_MS), {}, "INVALID_TIMESTAMP"),
    "too old": Refusal(
        In(b"k", b"bad", 10 * _DAY_MS), {"message.timestamp.before.max.ms": str(_DAY_MS)}, "INVALID_TIMESTAMP"
    ),
    "too large": Refusal(In(b"k", os.urandom(4_000)), {"max.message.bytes": "2000"}, "MSG_SIZE_TOO_LARGE"),
    "headers too large": Refusal(
        In(b"k", b"bad", headers=[("h", os.urandom(4_000))]), {"max.message.bytes": "2000"}, "MSG_SIZE_TOO_LARGE"
    ),
}


class Asked:
    """A production handler that lets records pass, and remembers them."""

    def __init__(self, answer: Answer | Callable[..., Response] = Answer.CONTINUE) -> None:
        self._answer = answer
        self.records: list[OutgoingRecord] = []
        self.reasons: list[str] = []

    def handle(self, context: Any, record: OutgoingRecord, error: Exception) -> Answer | Response:
        assert isinstance(error, ProductionError)
        self.records.append(record)
        self.reasons.append(error.reason)
        return self._answer if isinstance(self._answer, Answer) else self._answer(context, record, error)


class Stage:
    """Topics, applications in this process, and clients that know nothing of them."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self._broker = broker
        self._folder = folder
        self.number = f"{os.getpid()}-{next(_numbers)}"
        self.input = self.topic("in", config=ANY_TIME)
        self._made: list[KafkaStreams] = []

    def topic(self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        full = f"refused-{name}-{self.number}"
        self._broker.create_topic(full, partitions, config=dict(config or {}))
        return full

    def write(self, records: Sequence[In], topic: str | None = None) -> int:
        """The time from which their ages count."""
        now_ms = int(time.time() * 1000)
        producer = Producer({"bootstrap.servers": self._broker.bootstrap, "linger.ms": 50})
        for record in records:
            headers: Any = list(record.headers) or None
            producer.produce(
                topic or self.input, record.value, record.key, timestamp=now_ms - record.age_ms, headers=headers
            )
        assert producer.flush(30) == 0
        return now_ms

    def start(self, build: Callable[[StreamsBuilder], object], guarantee: str, **config: Any) -> KafkaStreams:
        builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
        build(builder)
        settings = {
            "application.id": f"refused-{self.number}",
            "bootstrap.servers": self._broker.bootstrap,
            "state.dir": str(self._folder / self.number),
            "processing.guarantee": guarantee,
            "commit.interval.ms": 200,
        } | {key.replace("_", "."): value for key, value in config.items()}
        streams = KafkaStreams(builder.build(settings), settings)
        self._made.append(streams)
        streams.start()
        return streams

    def read(self, topic: str, *, partitions: int = 1) -> list[Message]:
        """Everything that is committed in a topic now."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": "judge",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([Position(topic, number, 0) for number in range(partitions)])
        found: list[Message] = []
        ended = 0
        while ended < partitions:
            for message in consumer.consume(1_000, 1):
                if message.error() is None:
                    found.append(message)
                else:
                    ended += 1
        consumer.close()
        return found

    def values(self, topic: str, *, partitions: int = 1) -> list[bytes | None]:
        return [message.value() for message in self.read(topic, partitions=partitions)]

    def count_of(self, key: bytes) -> int | None:
        """The last count of a key in the changelog of the store ``again``."""
        counts = [m.value() for m in self.read(f"refused-{self.number}-again-changelog") if m.key() == key]
        return int.from_bytes(counts[-1][-8:], "big") if counts and counts[-1] else None

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def until_written(self, topic: str, value: bytes, *, partitions: int = 1) -> list[bytes | None]:
        """All values of a topic, when this one is among them."""
        until(lambda: value in self.values(topic, partitions=partitions), f"{value!r} in {topic}")
        return self.values(topic, partitions=partitions)

    def close(self) -> None:
        for streams in self._made:
            assert streams.close(PATIENCE_S, leave_group=True)


@pytest.fixture
def stage(kafka_broker: Broker, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(kafka_broker, tmp_path)
    yield made
    made.close()


def good(*numbers: int) -> list[In]:
    return [In(b"k%d" % number, b"v%d" % number) for number in numbers]


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("kind", REFUSALS)
def test_only_the_refused_record_is_missing(stage: Stage, kind: str, guarantee: str) -> None:
    bad, config, reason = REFUSALS[kind]
    output = stage.topic("out", config=config)
    stage.write([*good(*range(50)), bad, *good(*range(50, 100))])
    handler = Asked()
    streams = stage.start(
        lambda builder: builder.stream(stage.input).to(output), guarantee, production_exception_handler=handler
    )
    stage.until_written(output, b"v99")
    stage.write(good(100))
    values = stage.until_written(output, b"v100")
    assert values == [b"v%d" % number for number in range(101)]
    assert handler.reasons == [reason]
    (record,) = handler.records
    assert (record.topic, record.key, record.value) == (output, bad.key, bad.value)
    assert list(record.headers) == list(bad.headers)
    assert streams.state is State.RUNNING


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("kind", REFUSALS)
def test_refused_record_becomes_a_dead_letter(stage: Stage, kind: str, guarantee: str) -> None:
    bad, config, _ = REFUSALS[kind]
    output, dead = stage.topic("out", config=config), stage.topic("dead")
    stage.write([*good(0, 1), bad, *good(2, 3)])
    stage.start(
        lambda builder: builder.stream(stage.input).to(output),
        guarantee,
        production_exception_handler=DeadLetterQueue(dead),
    )
    assert stage.until_written(output, b"v3") == [b"v0", b"v1", b"v2", b"v3"]
    until(lambda: stage.values(dead), "a dead letter")
    (letter,) = stage.read(dead)
    headers = dict(letter.headers() or ())
    assert (letter.key(), letter.value()) == (bad.key, bad.value)
    assert headers["__streams.errors.topic"] == output.encode()
    assert {name: headers[name] for name, _ in bad.headers} == dict(bad.headers)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_handler_that_fails_ends_the_application_and_the_next_one_loses_nothing(stage: Stage, guarantee: str) -> None:
    output = stage.topic("out", config={"cleanup.policy": "compact"})
    stage.write([*good(0, 1), In(None, b"bad"), *good(2, 3)])

    def build(builder: StreamsBuilder) -> None:
        builder.stream(stage.input).to(output)

    first = stage.start(build, guarantee)
    with pytest.raises(StreamsError, match="has no key") as raised:
        assert first.wait(PATIENCE_S), "it keeps running"
    assert "production.exception.handler" in str(raised.value)
    assert first.close(PATIENCE_S)
    stage.start(build, guarantee, production_exception_handler="log_and_continue")
    values = stage.until_written(output, b"v3")
    expected = [b"v%d" % number for number in range(4)]
    if guarantee == "exactly_once_v2":
        assert values == expected
    assert set(values) == set(expected)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_many_refused_records_among_thousands_in_several_partitions(stage: Stage, guarantee: str) -> None:
    source = stage.topic("many", partitions=3, config=ANY_TIME)
    output = stage.topic("out", partitions=3)
    records = [
        In(b"key-%d" % (number % 40), b"%d" % number, -_DAY_MS if number % 157 == 100 else 0) for number in range(4_000)
    ]
    bad = [record.value for record in records if record.age_ms]
    stage.write(records, source)
    handler = Asked()
    stage.start(lambda builder: builder.stream(source).to(output), guarantee, production_exception_handler=handler)
    stage.until_written(output, b"3999", partitions=3)
    stage.write([In(b"key-%d" % number, b"last") for number in range(40)], source)
    until(lambda: stage.values(output, partitions=3).count(b"last") >= 40, "the last ones")
    written = Counter(stage.values(output, partitions=3))
    expected = {record.value for record in records} - set(bad) | {b"last"}
    assert written.keys() == expected
    assert {record.value for record in handler.records} == set(bad)
    if guarantee == "exactly_once_v2":
        assert [value for value, times in written.items() if times > 1 and value != b"last"] == []
        assert len(handler.records) == len(bad)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_equal_records_are_asked_about_one_by_one(stage: Stage, guarantee: str) -> None:
    output = stage.topic("out", config={"cleanup.policy": "compact"})
    stage.write([*good(0), In(None, b"bad"), In(None, b"bad"), *good(1), In(None, b"bad"), *good(2)])
    handler = Asked()
    stage.start(lambda builder: builder.stream(stage.input).to(output), guarantee, production_exception_handler=handler)
    assert stage.until_written(output, b"v2") == [b"v0", b"v1", b"v2"]
    assert [record.value for record in handler.records] == [b"bad"] * 3


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_repartition_topic_and_changelog_that_refuse_a_record(stage: Stage, guarantee: str) -> None:
    """A record from the future is refused by both internal topics, and then by the sink."""
    output = stage.topic("out")
    stage.write([In(b"a", b"1"), In(b"b", b"1", -_DAY_MS), In(b"c", b"1"), In(b"d", b"1")])
    handler = Asked()

    def build(builder: StreamsBuilder) -> object:
        stream = builder.stream(stage.input)
        stream.group_by_key().count(store="direct").to_stream().map_values(str, value=serdes.STRING).to(output)
        return stream.group_by(lambda key, _: key, key=serdes.BYTES, value=serdes.BYTES).count(store="again")

    streams = stage.start(build, guarantee, production_exception_handler=handler)
    until(
        lambda: {record.topic.split("-")[-1] for record in handler.records} >= {"changelog", "repartition"},
        "the handler to be asked about both",
    )
    stage.write([In(b"e", b"1")])
    until(lambda: {m.key() for m in stage.read(output)} == {b"a", b"c", b"d", b"e"}, "the others in the output")
    again = f"refused-{stage.number}-again-changelog"
    until(lambda: {m.key() for m in stage.read(again)} == {b"a", b"c", b"d", b"e"}, "the others in the changelog")
    assert streams.state is State.RUNNING


def test_record_that_is_made_differently_each_time_ends_the_application_with_the_cause(stage: Stage) -> None:
    output = stage.topic("out", config={"cleanup.policy": "compact"})
    stage.write([In(None, b"bad")])
    handler = Asked()
    streams = stage.start(
        lambda builder: builder.stream(stage.input).map_values(lambda _: os.urandom(8)).to(output),
        "exactly_once_v2",
        production_exception_handler=handler,
    )
    with pytest.raises(StreamsError, match="produced different records each time") as raised:
        assert streams.wait(PATIENCE_S), "it keeps running"
    assert "has no key" in str(raised.value)
    assert len(handler.records) <= 25


def write_at_epoch(stage: Stage, *records: tuple[bytes | None, bytes]) -> None:
    connection = kafka_python_connection(stage.bootstrap, "judge", parse_security({}), embedded=False)
    sender = KafkaPythonEpochSender(connection, timeout_ms=30_000)
    for key, value in records:
        sender.send(stage.input, value, key, 0, None)
    sender.close()


def counted(builder: StreamsBuilder, stage: Stage, output: str) -> None:
    """A sink, a changelog and a repartition topic."""
    stream = builder.stream(stage.input)
    stream.to(output)
    stream.group_by(lambda key, _: key, key=serdes.BYTES, value=serdes.BYTES).count(store="again")


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_records_with_timestamp_0_are_written_between_others(stage: Stage, guarantee: str) -> None:
    output = stage.topic("out", config=ANY_TIME)
    streams = stage.start(lambda builder: counted(builder, stage, output), guarantee)
    number = 0
    for _ in range(3):  # transactions with and without such records, before and after them
        stage.write([In(b"k", b"%d" % (number + more)) for more in range(20)])
        write_at_epoch(stage, *((b"k", b"%d" % (number + 20 + more)) for more in range(3)))
        stage.write([In(b"k", b"%d" % (number + 23 + more)) for more in range(20)])
        number += 43
        stage.until_written(output, b"%d" % (number - 1))
    messages = stage.read(output)
    assert [message.value() for message in messages] == [b"%d" % one for one in range(number)]
    assert [message.value() for message in messages if message.timestamp()[1] == 0] == [
        b"%d" % (start + more) for start in (20, 63, 106) for more in range(3)
    ]
    for internal in ("again-changelog", "again-repartition"):
        topic = f"refused-{stage.number}-{internal}"
        until(lambda topic=topic: len(stage.read(topic)) >= 1, f"records in {topic}")  # type: ignore[misc]
    until(lambda: stage.count_of(b"k") == number, "the count")
    assert streams.state is State.RUNNING


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_restart_between_records_with_timestamp_0_loses_and_doubles_nothing(stage: Stage, guarantee: str) -> None:
    output = stage.topic("out", config=ANY_TIME)

    def build(builder: StreamsBuilder) -> None:
        counted(builder, stage, output)

    first = stage.start(build, guarantee)
    write_at_epoch(stage, (b"k", b"0"), (b"k", b"1"))
    stage.write([In(b"k", b"2")])
    stage.until_written(output, b"2")
    assert first.close(PATIENCE_S)
    stage.write([In(b"k", b"3")])
    write_at_epoch(stage, (b"k", b"4"))
    stage.start(build, guarantee)
    assert stage.until_written(output, b"4") == [b"%d" % one for one in range(5)]
    until(lambda: stage.count_of(b"k") == 5, "the count")


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_refused_record_with_timestamp_0_is_asked_about_once(stage: Stage, guarantee: str) -> None:
    output = stage.topic("out", config={"cleanup.policy": "compact", **ANY_TIME})
    write_at_epoch(stage, (b"k", b"0"), (None, b"bad"), (b"k", b"1"))
    stage.write([In(b"k", b"2")])
    handler = Asked()
    stage.start(lambda builder: builder.stream(stage.input).to(output), guarantee, production_exception_handler=handler)
    assert stage.until_written(output, b"2") == [b"0", b"1", b"2"]
    assert [(record.value, record.timestamp_ms) for record in handler.records] == [(b"bad", 0)]
