"""A task whose serdes need a registry: records wait for it, and no handler hears of that."""

from __future__ import annotations

from typing import Any

import pytest

from streams_py import StreamsBuilder, serdes
from streams_py.errors import RegistryError, TaskCorruptedError, TimeoutExceededError
from streams_py.registry import SchemaRegistry
from streams_py.runtime.tasks.settings.handlers import Answer, Response
from streams_py.testing import TopologyTestDriver

pytest.importorskip("fastavro")

from streams_py import Topology
from streams_py.serdes import Serde
from tests.support.registry.stub import RegistryStub, running
from tests.support.runtime.task_kit import Kit, record
from tests.support.waiting import until

SCHEMA = '"string"'
DATA = b"\x00\x00\x00\x00\x01\x02a"


class Never:
    """A handler that must not be asked."""

    def __call__(self, *_: Any) -> Response:
        raise AssertionError("asked about a record")


class Counting:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *_: Any) -> Response:
        self.calls += 1
        return Response(Answer.CONTINUE)


def kit(source: Any, sink: Any, handler: Any, topics: tuple[str, ...] = ("in",), **settings: Any) -> Kit:
    topology = (
        Topology()
        .add_source("source", topics, key=serdes.BYTES, value=source)
        .add_sink("sink", "out", "source", key=serdes.BYTES, value=sink)
    )
    handlers = {f"{which}_handler": handler for which in ("deserialization", "processing", "production")}
    return Kit(topology, inputs=topics, max_task_idle_ms=-1, **handlers, **settings)


@pytest.mark.parametrize("topics", [("in",), ("in", "b")])
def test_record_waits_for_the_registry_that_decoding_needs(topics: tuple[str, ...]) -> None:
    stub = RegistryStub()
    with running(stub):
        stub.add({"schemaType": "AVRO", "schema": SCHEMA}, "in-value")
        task = kit(stub.registry().avro(SCHEMA), serdes.STRING, Never(), topics)
        task.add(record(None, raw_value=DATA))
        stub.answer = (503, b"")
        assert task.task.process(1) == 0
        assert task.task.committable_offsets() == {}
        stub.answer = None
        processed = 0
        while not processed:  # a pause lies between two requests
            processed = task.task.process(1)
        assert task.sent("out") == [(b"k", b"a", 0)]
        assert task.task.dropped_records == 0


def test_record_waits_for_the_registry_that_encoding_needs() -> None:
    stub = RegistryStub()
    with running(stub):
        task = kit(serdes.STRING, stub.registry().avro(SCHEMA), Never())
        task.add(record("a"))
        stub.answer = (503, b"")
        assert task.task.process(1) == 0
        stub.answer = None
        while not task.task.process(1):
            pass
        assert task.sent("out") == [(b"k", DATA, 0)]
        assert list(stub.subjects) == ["out-value"]


def test_registry_that_stays_away_ends_the_task_after_its_timeout() -> None:
    with running(RegistryStub()) as stub:
        stub.answer = (503, b"")
        task = kit(stub.registry().avro(SCHEMA), serdes.STRING, Never(), task_timeout_ms=1_000)
        task.add(record(None, raw_value=DATA))
        assert task.task.process(1) == 0
        task.clock.advance(1_000)
        with pytest.raises(TimeoutExceededError, match=r"task 0_0 .* 1000 ms .*: the schema registry at http"):
            task.task.process(1)


@pytest.mark.parametrize("which", ["source", "sink"])
def test_refused_credentials_end_the_task_and_are_no_matter_of_handlers(which: str) -> None:
    with running(RegistryStub(user_info="me:right")) as stub:
        avro = stub.registry({"basic.auth.user.info": "me:wrong"}).avro(SCHEMA)
        task = kit(*((avro, serdes.STRING) if which == "source" else (serdes.STRING, avro)), Never())
        task.add(record("a", raw_value=DATA if which == "source" else None))
        with pytest.raises(RegistryError, match="HTTP status 401"):
            task.task.process(1)


@pytest.mark.parametrize("data", [b"a", b"\x00\x00\x00\x00\x63\x02a", b"\x01" + bytes(16) + b"\x02a"])
def test_poison_record_is_the_deserialization_handlers(data: bytes) -> None:
    with running(RegistryStub()) as stub:
        handler = Counting()
        task = kit(stub.registry().avro(SCHEMA), serdes.STRING, handler)
        task.add(record(None, raw_value=data))
        assert task.task.process(1) == 1
        assert handler.calls == 1


def test_stores_name_their_subjects_after_the_changelog_topic() -> None:
    stub = RegistryStub()
    with running(stub):
        avro = stub.registry().avro('"long"')
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        stream = builder.stream("in").group_by_key()
        stream.aggregate(lambda: 0, lambda key, value, old: old + 1, store="counts", value=avro).to_stream().to("out")
        with TopologyTestDriver(builder.build(), {"application.id": "app", "statestore.cache.max.bytes": 0}) as driver:
            driver.input_topic("in", key=serdes.STRING, value=serdes.STRING).send("a", "x")
            assert driver.output_topic("out", key=serdes.STRING, value=avro).read_to_dict() == {"a": 1}
    assert sorted(stub.subjects) == ["app-counts-changelog-value", "out-value"]


def test_test_driver_says_that_the_registry_is_away() -> None:
    with running(RegistryStub()) as stub:
        stub.answer = (503, b"")
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream("in").to("out", value=stub.registry().avro(SCHEMA))
        with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
            topic = driver.input_topic("in", key=serdes.STRING, value=serdes.STRING)
            with pytest.raises(TimeoutExceededError, match="the schema registry at"):
                topic.send("a", "x")


class TestExactlyOnce:
    """A record that was half processed is in the transaction of the whole thread; one that could not even be decoded
    is nowhere."""

    @pytest.mark.parametrize("topics", [("in",), ("in", "b")])
    def test_record_that_cannot_be_decoded_yet_just_waits(self, topics: tuple[str, ...]) -> None:
        with running(RegistryStub()) as stub:
            stub.add({"schemaType": "AVRO", "schema": SCHEMA}, "in-value")
            source = stub.registry().avro(SCHEMA)
            task = kit(source, serdes.STRING, Never(), topics, exactly_once=True, task_timeout_ms=1_000)
            task.add(record(None, raw_value=DATA))
            stub.answer = (503, b"")
            assert task.task.process(1) == 0
            task.clock.advance(999)
            assert task.task.process(1) == 0
            assert task.task.committable_offsets() == {}
            assert not task.task.commit_needed
            task.clock.advance(1)
            with pytest.raises(TimeoutExceededError, match=r"task 0_0 .* 1000 ms .*: the schema registry at http"):
                task.task.process(1)

    def test_half_processed_record_takes_the_task_back_and_the_next_try_comes_after_a_pause(self) -> None:
        with running(RegistryStub()) as stub:
            task = kit(serdes.STRING, stub.registry().avro(SCHEMA), Never(), exactly_once=True)
            stub.answer = (503, b"")
            for pause_ms in (500, 1_000, 2_000, 4_000, 5_000, 5_000):
                task.add(record("a"))
                with pytest.raises(TaskCorruptedError, match="the schema registry at http") as raised:
                    task.task.process(1)
                assert list(raised.value.tasks) == [task.task.id]
                start_over(task)
                asked = len(stub.requests)
                task.add(record("a"))
                task.clock.advance(pause_ms - 1)
                assert task.task.process(1) == 0
                assert len(stub.requests) == asked
                assert not task.task.commit_needed
                start_over(task)
                task.clock.advance(1)

    def test_pauses_begin_anew_after_a_commit_of_records(self) -> None:
        with running(RegistryStub()) as stub:
            task = kit(serdes.STRING, stub.registry().avro(SCHEMA), Never(), exactly_once=True)
            stub.answer = (503, b"")
            for number in range(3):
                task.add(record("a"))
                with pytest.raises(TaskCorruptedError):
                    task.task.process(1)
                start_over(task)
                task.clock.advance(500 << number)
            stub.answer = None
            task.add(record("a"))
            until(lambda: succeeds(task), "the registry to be asked again")
            task.task.post_commit(enforce_checkpoint=False, acked={})
            assert task.sent("out") == [(b"k", DATA, 0)]

    def test_registry_that_stays_away_ends_the_task_after_its_timeout_whatever_it_took_in_vain(self) -> None:
        """Records before the one that waits are processed again and again; none of that is committed."""
        with running(RegistryStub()) as stub:
            topology = (
                Topology()
                .add_source("source", ("in",), key=serdes.BYTES, value=serdes.STRING)
                .add_sink("sink", lambda key, value, _: value, "source", key=serdes.BYTES, value=only_b(stub.url))
            )
            task = Kit(topology, exactly_once=True, task_timeout_ms=10_000)
            stub.answer = (503, b"")
            for _ in range(2):
                task.add(record("a", offset=0), record("b", offset=1))
                with pytest.raises(TaskCorruptedError):
                    task.task.process(2)
                start_over(task)
                task.clock.advance(5_000)
            task.add(record("a", offset=0), record("b", offset=1))
            with pytest.raises(TimeoutExceededError, match="made no progress for 10000 ms"):
                task.task.process(2)


def only_b(url: str) -> Any:
    """A serde that needs the registry for the value b alone."""
    avro = SchemaRegistry(url).avro(SCHEMA)

    class Mixed(Serde[str]):
        def serializer(self, topic: str, *, is_key: bool) -> Any:
            encode = avro.serializer(topic, is_key=is_key)
            return lambda value: encode(value) if value == "b" else value.encode()

        def deserializer(self, topic: str, *, is_key: bool) -> Any:
            return avro.deserializer(topic, is_key=is_key)

    return Mixed()


def start_over(task: Kit) -> None:
    """As the thread does with a task that is to go back to the last commit."""
    task.task.revive()
    task.task.initialize()
    task.task.complete_restoration({})


def succeeds(task: Kit) -> bool:
    try:
        return task.task.process(1) == 1
    except TaskCorruptedError:
        start_over(task)
        task.clock.advance(5_000)
        task.add(record("a"))
        return False
