"""What an application says when something outside it is wrong: what, where, and what to do about it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streams_protocol import ErrorCode, decode_assignment_info
from streams_protocol.types import TopicPartition
from streams_py import KafkaStreams, State, StreamsBuilder, Topology, serdes
from streams_py.adapters.kafka_python.classic.membership import KafkaPythonMembership
from streams_py.adapters.kafka_python.settings import membership_settings
from streams_py.cli.connecting import connected
from streams_py.errors import (
    DeserializationError,
    MissingSourceTopicError,
    ProductionError,
    StreamsError,
    TaskAssignmentError,
)
from streams_py.inspection.gather import inspect_group
from streams_py.inspection.reasons import explain_group
from streams_py.ports import MemberAssignment, MemberSubscription, OffsetAndMetadata
from streams_py.runtime.tasks.settings.handlers import Answer, DeadLetterQueue
from streams_py.testing.broker import Broker
from tests.support.broker.kit import Application, steady_producer, text, true_counts, wait_until
from tests.support.uneven_joins import UNEVEN, check_error, uneven
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.broker

_numbers = itertools.count()


class Stage:
    """Topics and applications inside this process."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self.number = f"{os.getpid()}-{next(_numbers)}"
        self.id = f"bad-{self.number}"
        self.input, self.output, self.dead = (f"bad-{name}-{self.number}" for name in ("in", "out", "dead"))
        self._folder = folder
        self._made: list[KafkaStreams] = []
        self._kit: Application | None = None

    def config(self, **more: Any) -> dict[str, Any]:
        return {
            "application.id": self.id,
            "bootstrap.servers": self.broker.bootstrap,
            "state.dir": str(self._folder / self.number),
            "commit.interval.ms": 100,
            "session.timeout.ms": 3000,
            "heartbeat.interval.ms": 300,
        } | {key.replace("_", "."): value for key, value in more.items()}

    def topics(self, *names: str, config: Mapping[str, str] | None = None) -> None:
        for name in names:
            self.broker.create_topic(name, 2, config=config)

    def start(self, topology: Topology, **config: Any) -> KafkaStreams:
        streams = KafkaStreams(topology, self.config(**config))
        self._made.append(streams)
        streams.start()
        return streams

    def error_of(self, topology: Topology, **config: Any) -> StreamsError:
        """Return the error with which the application stops."""
        streams = self.start(topology, **config)
        with pytest.raises(StreamsError) as caught:
            assert streams.wait(40), "it keeps running"
        return caught.value

    def write(self, *values: bytes, topic: str | None = None) -> None:
        """Records with the key ``k``, all in partition 1."""
        self._records().feed_raw(topic or self.input, 1, values)

    def read(self, topic: str, count: int) -> list[Any]:
        """The first ``count`` records of a topic."""
        kit = self._records()
        wait_until(lambda: len(kit.read(topic, partitions=2)) >= count, f"{count} records in {topic}")
        return kit.read(topic, partitions=2)

    def _records(self) -> Application:
        if self._kit is None:
            self._kit = Application(self.broker, self._folder, app="bad")
        return self._kit

    def close(self) -> None:
        for streams in self._made:
            assert streams.close(20)
        if self._kit is not None:
            self._kit.close()


@pytest.fixture
def stage(kafka_broker: Broker, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(kafka_broker, tmp_path)
    yield made
    made.close()


def copy(stage: Stage, *, read: Any = serdes.STRING, write: Any = serdes.STRING, change: Any = str.upper) -> Topology:
    """Input -> change of the value -> output."""
    builder = StreamsBuilder()
    stream = builder.stream(stage.input, key=serdes.BYTES, value=read, name="the-source")
    stream.map_values(change).to(stage.output, key=serdes.BYTES, value=write, name="the-sink")
    return builder.build()


def count(stage: Stage) -> Topology:
    """Count by value, through a repartition topic, with a changelog."""
    builder = StreamsBuilder()
    stream = builder.stream(stage.input, key=serdes.BYTES, value=serdes.STRING)
    grouped = stream.group_by(lambda _, value: value, key=serdes.STRING, value=serdes.STRING)
    grouped.count(store="counts").to_stream().to(stage.output, key=serdes.STRING, value=serdes.INT64)
    return builder.build()


# -- topics ------------------------------------------------------------------------------------------------------


def test_missing_source_topic_is_named(stage: Stage) -> None:
    stage.topics(stage.output)
    error = stage.error_of(copy(stage))
    assert isinstance(error, MissingSourceTopicError)
    for word in (stage.input, "create", stage.broker.bootstrap):
        assert word in str(error)


@pytest.mark.parametrize("internal", ["counts-repartition", "counts-changelog"])
def test_internal_topic_with_a_wrong_partition_count_is_named_with_both_counts(stage: Stage, internal: str) -> None:
    stage.topics(stage.input, stage.output)
    name = f"{stage.id}-{internal}"
    stage.broker.create_topic(name, 3)
    error = stage.error_of(count(stage))
    for word in (name, "3", "2", "delete"):
        assert word in str(error), error


def test_second_topology_under_one_application_id_ends_with_a_sentence_and_the_first_continues(
    stage: Stage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage.topics(stage.input, stage.output, stage.dead)
    first = stage.start(copy(stage))
    assert first.wait_until(State.RUNNING, PATIENCE_S)
    builder = StreamsBuilder()
    builder.stream(stage.dead, key=serdes.BYTES, value=serdes.STRING).to(stage.output, value=serdes.STRING)
    error = stage.error_of(builder.build(), state_dir=str(tmp_path / "second"))
    assert isinstance(error, TaskAssignmentError)
    assert "its topology reads other topics than the leader's under the same application.id" in str(error)
    assert (
        f"two topologies run under one application.id: this member reads {stage.dead}, but not {stage.input}, which "
        "the leader's topology reads"
    ) in caplog.text
    stage.write(b"one")
    assert [record.value() for record in stage.read(stage.output, 1)] == [b"ONE"]
    assert first.state is State.RUNNING


def test_transaction_timeout_above_the_brokers_ends_the_application_at_its_start_with_both_settings(
    stage: Stage,
) -> None:
    stage.topics(stage.input, stage.output)
    config = {"processing.guarantee": "exactly_once_v2", "producer.transaction.timeout.ms": 3_600_000}
    error = stage.error_of(copy(stage), **config)
    for word in ("producer.transaction.timeout.ms = 3600000", "transaction.max.timeout.ms", "lower the first"):
        assert word in str(error), error


@pytest.mark.parametrize("case", UNEVEN)
def test_join_of_uneven_topics_is_named_with_its_line_before_a_record_is_read(stage: Stage, case: str) -> None:
    stage.topics(stage.input)
    stage.broker.create_topic(stage.dead, 3)
    stage.write(b"value")
    seen: list[Any] = []
    check_error(case, stage.error_of(uneven(case, stage.input, stage.dead, seen)), stage.dead)
    assert seen == []


# -- records -----------------------------------------------------------------------------------------------------


def test_wrong_serde_is_named_with_place_node_and_both_types(stage: Stage) -> None:
    stage.topics(stage.input, stage.output)
    stage.write(b"12345678", b"no number")
    error = stage.error_of(copy(stage, read=serdes.INT64, write=serdes.INT64, change=abs))
    assert isinstance(error, DeserializationError)
    for word in (
        stage.input,
        "partition 1" if "partition 1" in str(error) else "-1",
        "offset 1",
        "the-source",
        "int64",
    ):
        assert word in str(error).lower(), error
    assert "deserialization.exception.handler" in str(error)


def test_wrong_type_at_a_sink_is_named_with_node_topic_and_both_types(stage: Stage) -> None:
    stage.topics(stage.input, stage.output)
    stage.write(b"four")
    error = stage.error_of(copy(stage, change=len))
    for word in ("the-sink", stage.output, "int", "str", "offset 0", stage.input):
        assert word in str(error), error


def test_undecodable_record_is_passed_over_when_the_handler_continues(stage: Stage) -> None:
    stage.topics(stage.input, stage.output)
    stage.write(b"one", b"\xff\xfe", b"three")
    streams = stage.start(copy(stage), deserialization_exception_handler="log_and_continue")
    assert [record.value() for record in stage.read(stage.output, 2)] == [b"ONE", b"THREE"]
    dropped = [
        metrics["dropped-records-total"] for metrics in streams.metrics().values() if "dropped-records-total" in metrics
    ]
    assert sum(map(float, dropped)) == 1


def test_undecodable_record_goes_to_the_dead_letter_topic_as_it_was(stage: Stage) -> None:
    stage.topics(stage.input, stage.output, stage.dead)
    stage.write(b"one", b"\xff\xfe", b"three")
    stage.start(copy(stage), deserialization_exception_handler=DeadLetterQueue(stage.dead))
    assert [record.value() for record in stage.read(stage.output, 2)] == [b"ONE", b"THREE"]
    (letter,) = stage.read(stage.dead, 1)
    headers = dict(letter.headers())
    assert (letter.key(), letter.value()) == (b"k", b"\xff\xfe")
    assert headers["__streams.errors.topic"] == stage.input.encode()
    assert headers["__streams.errors.offset"] == b"1"


def test_refused_record_ends_the_application_with_the_topic_and_the_limit(stage: Stage) -> None:
    stage.topics(stage.input)
    stage.topics(stage.output, config={"max.message.bytes": "1000"})
    stage.write(b"small", b"large" * 1000)
    error = stage.error_of(copy(stage))
    assert isinstance(error, ProductionError)
    for word in (stage.output, "production.exception.handler"):
        assert word in str(error), error


def test_refused_record_is_dropped_when_the_production_handler_continues(stage: Stage) -> None:
    stage.topics(stage.input)
    stage.topics(stage.output, config={"max.message.bytes": "1000"})
    asked: list[str] = []

    def drop(context: Any, record: Any, error: Exception) -> Answer:
        asked.append(str(error))
        return Answer.CONTINUE

    stage.start(copy(stage), production_exception_handler=drop)
    stage.write(b"large" * 1000)
    wait_until(lambda: asked, "the handler to be asked")
    stage.write(b"small")
    assert [record.value() for record in stage.read(stage.output, 1)] == [b"SMALL"]
    assert stage.output in asked[0]


# -- other members -----------------------------------------------------------------------------------------------


class Stranger:
    """A member that speaks the group protocol but sends garbage as its user data."""

    def __init__(self, user_data: bytes) -> None:
        self.user_data = user_data
        self.received: list[tuple[tuple[TopicPartition, ...], bytes]] = []

    def subscription_user_data(self, topics: frozenset[str], member_id: str, generation: int) -> bytes:
        return self.user_data

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        raise AssertionError("the stranger must not lead")

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes, generation: int) -> None:
        self.received.append((partitions, user_data))

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return {}

    def on_revoked_committed(self, error: Exception | None) -> None: ...
    def on_stuck(self) -> None: ...
    def on_doubt(self, in_doubt: bool) -> None: ...
    def on_join_waits(self, waited_s: float) -> None: ...
    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None: ...
    def on_assigned(self, added: tuple[TopicPartition, ...]) -> None: ...


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x00\x00\x0b\x00\x00\x00\x0b\x7f\xff\xff\xff",
        pytest.param(b"garbage", marks=pytest.mark.weekly),
        pytest.param(b"", marks=pytest.mark.weekly),
    ],
    ids=["a huge count", "text", "nothing"],
)
def test_member_with_garbage_gets_an_error_assignment_and_the_others_go_on(
    application: Callable[..., Application], garbage: bytes
) -> None:
    app = application(app="trace")
    a, b = app.start("a"), app.start("b")
    app.await_shared(a, b)
    stranger = Stranger(garbage)
    settings = membership_settings(
        {"session.timeout.ms": 3000, "heartbeat.interval.ms": 200},
        bootstrap_servers=app.broker.bootstrap,
        group_id=app.id,
        client_id="stranger-consumer",
        group_instance_id=None,
    )
    membership = KafkaPythonMembership(settings, stranger, check_subscription=bytes, check_assignment=bytes)
    try:
        with steady_producer(app, spacing_s=0.05):
            membership.start()
            membership.subscribe(frozenset({app.input}))
            wait_until(lambda: stranger.received, "an answer to the stranger")
            seen = len(app.traces())
            app.until(lambda: len(app.traces()) > seen + 40, "records to flow")
        with connected(app.broker.bootstrap, None, "test") as cluster:
            view, reasons = inspect_group(cluster, app.id), explain_group(cluster, app.id)
    finally:
        membership.leave_and_close(leave_group=True, timeout_ms=5000)
    partitions, user_data = stranger.received[0]
    assert partitions == ()
    assert decode_assignment_info(user_data).error_code == ErrorCode.ASSIGNMENT_ERROR
    assert a.state == b.state == "RUNNING"
    assert "stranger-consumer" in a.log_text + b.log_text
    assert any("stranger-consumer: its subscription cannot be read" in problem for problem in view.problems)
    assert all(task.owner for task in view.tasks)
    assert reasons.tasks.keys() == {task.id for task in view.tasks}
    app.await_shared(a, b)
    app.await_caught_up()
    assert a.close() == b.close() == 0


def test_processes_with_one_state_directory_share_the_work_and_find_their_own_state_again(
    application: Callable[..., Application],
) -> None:
    app = application()
    shared = {"state.dir": str(app.folder / "shared")}
    a, b = app.start("a", config=shared), app.start("b", config=shared)
    app.await_shared(a, b)
    lines = text(2000)
    app.feed(lines[:1000])
    app.await_caught_up()
    files = list((app.folder / "shared").rglob("kafka-streams-process-metadata"))
    known = {file: file.read_text() for file in files}
    assert len(set(known.values())) == 2
    b.kill()
    b = app.start("b", config=shared)
    app.await_shared(a, b)
    app.feed(lines[1000:])
    app.await_caught_up()
    assert {file: file.read_text() for file in files} == known
    assert len(list((app.folder / "shared").rglob("kafka-streams-process-metadata"))) == 2
    assert app.counts() == true_counts(lines)
