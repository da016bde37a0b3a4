"""User processors: what they receive, what they may do, and how the record context follows the forwarded records."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from streams_protocol.types import TaskId
from streams_py.errors import ProcessingError, TopologyError
from streams_py.ports import Headers
from streams_py.serdes import STRING
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.nodes import Punctuation
from streams_py.topology.declare.processor import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    ProcessorContext,
    Record,
    RecordMetadata,
)
from streams_py.topology.declare.stores import key_value_store, timestamped_key_value_store
from streams_py.topology.declare.window_stores import window_store
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology
from tests.conformance.programs.user_code import Counter, Lookup, Previous, Router
from tests.support.topology.driver_parts import written_by
from tests.support.topology.fakes import FakeTask


class Recorder(Processor[Any, Any, Any, Any]):
    """Keeps all records that it receives."""

    def __init__(self, records: list[Record[Any, Any]]) -> None:
        self.records = records

    def process(self, record: Record[Any, Any]) -> None:
        self.records.append(record)


class Sender(Processor[Any, Any, Any, Any]):
    """Forwards the records that the test chooses."""

    def __init__(self, *records: Record[Any, Any], child: str | None = None) -> None:
        self.to_send = records
        self.child = child

    def process(self, record: Record[Any, Any]) -> None:
        for each in self.to_send:
            self.context.forward(each, child=self.child)


def topology_of(sender: Any, *recorders: list[Record[Any, Any]], stores: tuple[str, ...] = ()) -> Topology:
    topology = Topology().add_source("source", "in")
    for store in stores:
        topology.add_state_store(key_value_store(store))
    topology.add_processor("sender", sender, "source", stores=stores)
    for number, records in enumerate(recorders):
        topology.add_processor(f"child-{number}", lambda records=records: Recorder(records), "sender")
    return topology


def test_processor_gets_the_whole_record() -> None:
    records: list[Record[Any, Any]] = []
    topology = Topology().add_source("s", "in").add_processor("p", lambda: Recorder(records), "s")
    headers: Headers = [("a", b"1"), ("a", None)]
    FakeTask(topology).feed("in", "k", "v", 7, headers)
    assert records == [Record("k", "v", 7, (("a", b"1"), ("a", None)))]


def test_record_is_immutable_and_gives_changed_copies() -> None:
    record = Record("k", 1, 7)
    with pytest.raises(AttributeError):
        record.value = 2
    changed = record.with_key("l").with_value(2).with_timestamp(8).add_header("a", None).add_header("b", b"")
    assert changed == Record("l", 2, 8, (("a", None), ("b", b"")))
    assert changed.with_headers(()) == ("l", 2, 8, ())
    assert record == Record("k", 1, 7, ())


def test_forwarded_records_reach_all_children_in_order() -> None:
    first: list[Record[Any, Any]] = []
    second: list[Record[Any, Any]] = []
    one, two = Record("a", 1, 5, (("x", b"1"),)), Record("b", 2, 6)
    FakeTask(topology_of(lambda: Sender(one, two), first, second)).feed("in", "k", "v", 3, (("h", b"0"),))
    assert first == second == [one, two]


def test_forwarded_record_reaches_only_the_named_child() -> None:
    first: list[Record[Any, Any]] = []
    second: list[Record[Any, Any]] = []
    FakeTask(topology_of(lambda: Sender(Record("a", 1, 5), child="child-1"), first, second)).feed("in", "k", "v")
    assert (first, second) == ([], [Record("a", 1, 5)])


@pytest.mark.parametrize(
    ("sender", "message"),
    [
        (lambda: Sender(Record("a", 1, 5), child="unknown"), r"no child 'unknown'; its children: child-0"),
        (lambda: Sender(Record("a", 1, -1)), "timestamp -1"),
        (lambda: Sender(Record("a", 1, 1.5)), r"timestamp 1\.5; .*must be a non-negative int"),  # type: ignore[arg-type]  # a slip
    ],
)
def test_forward_is_an_error_when_child_or_timestamp_is_wrong(sender: Any, message: str) -> None:
    records: list[Record[Any, Any]] = []
    task = FakeTask(topology_of(sender, records))
    task.feed("in", "k", "v")
    [(node, error, *_)] = task.failures
    assert node == "sender"
    assert records == []
    with pytest.raises(ProcessingError, match=message):
        raise error


def test_record_context_is_restored_after_each_forward() -> None:
    seen: list[tuple[int, Headers]] = []

    class Nosy(Processor[Any, Any, Any, Any]):
        def init(self, context: ProcessorContext[Any, Any]) -> None:
            super().init(context)
            self.store = context.get_state_store("st")

        def process(self, record: Record[Any, Any]) -> None:
            self.context.forward(Record("x", 1, 50, [("own", b"")]))
            self.store.put("k", "after")
            seen.append((task.record.timestamp, task.record.headers))

    below: list[Record[Any, Any]] = []
    task = FakeTask(topology_of(Nosy, below, stores=("st",)))
    task.feed("in", "k", "v", 9, (("h", b"0"),))
    assert seen == [(9, (("h", b"0"),))]
    assert task.stores["st"].log == [("k", "after", 9)]
    assert below == [Record("x", 1, 50, (("own", b""),))]


def test_store_below_logs_with_the_forwarded_timestamp() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(lambda: Sender(Record("a", 1, 50), Record("a", 1, 20))).to_table(store="t")
    task = FakeTask(builder.build())
    task.feed("in", "k", "v", 9)
    assert task.stores["t"].log == [("a", 1, 50), ("a", 1, 20)]


def test_context_answers_from_task_and_record() -> None:
    answers: dict[str, Any] = {}

    class Asking(Processor[Any, Any, Any, Any]):
        def process(self, record: Record[Any, Any]) -> None:
            context = self.context
            context.commit()
            answers.update(
                task_id=context.task_id,
                application_id=context.application_id,
                metadata=context.record_metadata,
                configs=context.app_configs,
                state_dir=context.state_dir,
                stream_time=context.current_stream_time_ms(),
                system_time=context.current_system_time_ms(),
            )

    task = FakeTask(topology_of(Asking), app_configs={"a": 1})
    task.feed("in", "k", "v", 100)
    task.feed("in", "k", "v", 90)
    assert answers == {
        "task_id": TaskId(0, 0),
        "application_id": "app",
        "metadata": RecordMetadata("in", 0, 1),
        "configs": {"a": 1},
        "state_dir": "/state",
        "stream_time": 100,
        "system_time": 77,
    }
    assert task.commit_requests == 2
    assert task.failures == []


def test_record_metadata_is_none_in_a_punctuator() -> None:
    seen: list[RecordMetadata | None] = []

    class Ticking(Processor[Any, Any, Any, Any]):
        def init(self, context: ProcessorContext[Any, Any]) -> None:
            super().init(context)
            self.timer = context.schedule(10, Punctuation.STREAM_TIME, self.tick)

        def tick(self, time_ms: int) -> None:
            seen.append(self.context.record_metadata)
            self.context.forward(Record("tick", time_ms, time_ms))
            self.timer.cancel()

        def process(self, record: Record[Any, Any]) -> None:
            seen.append(self.context.record_metadata)

    below: list[Record[Any, Any]] = []
    task = FakeTask(topology_of(Ticking, below))
    task.feed("in", "k", "v")
    [(interval_ms, clock, callback)] = task.schedules
    task.record.topic = None
    callback(30)
    assert (interval_ms, clock, task.schedules) == (10, Punctuation.STREAM_TIME, [])
    assert seen == [RecordMetadata("in", 0, 0), None]
    assert below == [Record("tick", 30, 30)]


def test_store_of_another_processor_is_not_to_be_had() -> None:
    topology = Topology().add_source("s", "in").add_processor("p", lambda: Lookup("st"), "s")
    topology.add_state_store(key_value_store("st"))
    task = FakeTask(topology)
    task.feed("in", "k", "v")
    assert [type(failure[1]) for failure in task.failures] == [LookupError]


def test_each_task_gets_its_own_processor_initialised_once_and_closed_once() -> None:
    events: list[tuple[str, int]] = []

    class Living(Processor[Any, Any, Any, Any]):
        def init(self, context: ProcessorContext[Any, Any]) -> None:
            events.append(("init", id(self)))

        def process(self, record: Record[Any, Any]) -> None:
            events.append(("process", id(self)))

        def close(self) -> None:
            events.append(("close", id(self)))

    topology = topology_of(Living)
    tasks = [FakeTask(topology), FakeTask(topology)]
    for task in tasks:
        task.feed("in", "k", "v")
        for callback in task.on_close:
            callback()
    first, second = events[0][1], events[1][1]
    assert first != second
    assert events == [
        ("init", first),
        ("init", second),
        ("process", first),
        ("close", first),
        ("process", second),
        ("close", second),
    ]


def test_failing_processor_is_reported() -> None:
    class Broken(Processor[Any, Any, Any, Any]):
        def process(self, record: Record[Any, Any]) -> None:
            raise ValueError(record.value)

    task = FakeTask(topology_of(Broken))
    task.feed("in", "k", "v", 3)
    assert [(failure[0], type(failure[1]), *failure[2:]) for failure in task.failures] == [
        ("sender", ValueError, "k", "v", 3)
    ]


# -- fixed keys ----------------------------------------------------------------------------------------------


def test_fixed_key_processor_keeps_key_and_may_change_the_rest() -> None:
    class Changing(FixedKeyProcessor[Any, Any, Any]):
        def process(self, record: FixedKeyRecord[Any, Any]) -> None:
            assert not hasattr(record, "with_key")
            self.context.forward(record.with_value(2).with_timestamp(9).with_headers((*record.headers, ("b", None))))

    builder = StreamsBuilder()
    builder.stream("in").process_values(Changing).to("out")
    task = FakeTask(builder.build())
    task.feed("in", "k", 1, 5, (("a", b""),))
    assert task.outputs["out"] == [("k", 2, 9, (("a", b""), ("b", None)))]


def test_fixed_key_processor_cannot_forward_a_record_of_its_own_making() -> None:
    def renames(record: FixedKeyRecord[Any, Any], context: Any) -> Iterator[Any]:
        yield Record("other", record.value, record.timestamp)

    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.stream("in").process_values(renames, name="renames").to("out")
    task = FakeTask(builder.build())
    task.feed("in", "k", "v", 5)
    [(node, error, *_)] = task.failures
    assert (node, task.outputs.get("out", [])) == ("renames", [])
    with pytest.raises(ProcessingError, match=r"'renames' cannot change keys, but forwards a Record; .*process\(\)"):
        raise error


def test_fixed_key_of_a_record_cannot_be_set() -> None:
    record: Any = FixedKeyRecord("k", 1, 5, ())
    with pytest.raises(AttributeError):
        record.key = "l"
    assert repr(record) == "FixedKeyRecord(key='k', value=1, timestamp=5)"


def test_key_counts_as_changed_after_process_but_not_after_process_values() -> None:
    def repartitions(describe: Any) -> bool:
        builder = StreamsBuilder()
        describe(builder.stream("in")).group_by_key().count()
        return len(builder.build().subtopologies()) == 2

    assert repartitions(lambda s: s.process(Router))
    assert not repartitions(lambda s: s.process_values(lambda: Previous("st"), stores=[]))


# -- the processors of the recorded programs -----------------------------------------------------------------


def test_recorded_counter_counts_and_removes_at_its_limit() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("st"))
    builder.stream("in").process(lambda: Counter("st", 10, Punctuation.WALL_CLOCK_TIME, 2), stores=["st"]).to("out")
    task = FakeTask(builder.build())
    for key in ("a", "b", None, "a"):
        task.feed("in", key, "v", 5)
    task.schedules[0][2](30)
    assert task.out() == [
        ("a", "v#1", 5),
        ("b", "v#1", 5),
        (None, "no key", 5),
        ("a", "v#2", 5),
        ("a", "p2", 30),
        ("b", "p1", 30),
    ]
    assert task.stores["st"].rows == {"b": 1}


def test_recorded_previous_remembers_value_and_timestamp() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(timestamped_key_value_store("prev"))
    builder.stream("in").process_values(lambda: Previous("prev"), stores=["prev"]).to("out")
    task = FakeTask(builder.build())
    for timestamp_ms, value in enumerate(["x", "y", None, "z"]):
        task.feed("in", "k", value, timestamp_ms)
    assert [record[1] for record in task.out()] == ["->x", "x/0>y", "y/1>-", "->z"]


# -- generator functions -------------------------------------------------------------------------------------


def test_generator_function_sends_on_what_it_yields() -> None:
    def each_word(record: Record[str, str], context: ProcessorContext[str, str]) -> Iterator[Record[str, str]]:
        for number, word in enumerate(record.value.split()):
            yield record.with_key(word).with_timestamp(record.timestamp + number)

    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.stream("in").process(each_word).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("in", key=STRING, value=STRING).send("k", "a b", timestamp_ms=5, headers=[("h", b"1")])
        records = driver.output_topic("out", key=STRING, value=STRING).read_all()
    assert records == [Record("a", "a b", 5, (("h", b"1"),)), Record("b", "a b", 6, (("h", b"1"),))]


def test_function_sends_on_what_it_returns() -> None:
    topology = Topology().add_source("source", "in", key=STRING, value=STRING)
    topology.add_processor("twice", lambda record, context: [record, record], "source")
    topology.add_processor("none", lambda record, context: None, "twice")
    topology.add_sink("sink", "out", "twice", key=STRING, value=STRING)
    with TopologyTestDriver(topology) as driver:
        driver.input_topic("in", key=STRING, value=STRING).send("k", "a")
        assert driver.output_topic("out", key=STRING, value=STRING).read_pairs() == [("k", "a")] * 2


def test_function_fills_a_global_store() -> None:
    def keep(record: Record[str, str], context: ProcessorContext[Any, Any]) -> None:
        context.get_state_store("all").put(record.key, record.value)

    builder = StreamsBuilder()
    store = key_value_store("all", key=STRING, value=STRING, logging=False)
    builder.add_global_store(store, "in", keep, key=STRING, value=STRING)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("in", key=STRING, value=STRING).send("k", "a")
        assert driver.store("all").get("k") == "a"  # type: ignore[union-attr]  # it is a key-value store


def test_generator_function_uses_the_stores_it_is_connected_to() -> None:
    def changed(record: FixedKeyRecord[str, str], context: Any) -> Iterator[FixedKeyRecord[str, str]]:
        store = context.get_state_store("last")
        if store.get(record.key) != record.value:
            store.put(record.key, record.value)
            yield record

    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.add_state_store(key_value_store("last"))
    builder.stream("in").process_values(changed, stores="last").to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("in", key=STRING, value=STRING).send_all([("k", "a"), ("k", "a"), ("k", "b")])
        assert driver.output_topic("out", key=STRING, value=STRING).read_pairs() == [("k", "a"), ("k", "b")]


def test_failure_in_a_generator_function_is_that_of_its_node() -> None:
    def fail(record: Record[Any, Any], context: Any) -> Iterator[Record[Any, Any]]:
        yield record
        raise ValueError("no")

    builder = StreamsBuilder()
    builder.stream("in").process(fail, name="broken").to("out")
    task = FakeTask(builder.build())
    task.feed("in", "k", "v")
    assert [failure[0] for failure in task.failures] == ["broken"]
    assert len(task.out()) == 1


class Keeping(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.get_state_store("kept").put(record.key, record.value)


class Finding(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record.with_value(self.context.get_state_store("kept").get(record.key)))


def read_only(**options: Any) -> Topology:
    topology = Topology()
    store = key_value_store("kept", key=STRING, value=STRING, **{"logging": False, **options})
    topology.add_read_only_state_store(store, "rows", "t", "keep", Keeping, key=STRING, value=STRING)
    topology.add_source("asked", "in", key=STRING, value=STRING).add_processor("find", Finding, "asked")
    return topology.connect_processor_and_state_stores("find", "kept").add_sink(
        "o", "out", "find", key=STRING, value=STRING
    )


def test_read_only_store_has_its_topic_as_changelog_and_is_read_by_others() -> None:
    topology = read_only()
    metadata = topology.metadata("app").subtopologies[0]
    assert metadata.source_changelogs == {"t"}
    assert metadata.changelogs == {}
    assert topology.changelog_topic("kept", "app") == "t"
    with TopologyTestDriver(topology) as driver:
        driver.input_topic("t", key=STRING, value=STRING).send("k", "row")
        driver.input_topic("in", key=STRING, value=STRING).send("k", "?")
        assert driver.output_topic("out", key=STRING, value=STRING).read_pairs() == [("k", "row")]
        assert driver.produced_topics == {"out"}


def test_read_only_store_is_not_logged() -> None:
    with pytest.raises(TopologyError, match="'kept' must not be logged"):
        read_only(logging=True)


class Windows(Processor[str, str, None, None]):
    """Keeps records by their time."""

    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("kept").put(record.key, record.value, record.timestamp)


@pytest.mark.parametrize(("keeps_duplicates", "number"), [(False, 0), (True, 1)])
def test_changelog_of_windows_that_a_processor_keeps_has_no_headers(keeps_duplicates: bool, number: int) -> None:
    """The changelog of a join has them, in the same kind of store."""
    topology = Topology().add_source("rows", "in", key=STRING, value=STRING).add_processor("keep", Windows, "rows")
    store = window_store(
        "kept", retention=20, size=10, key=STRING, value=STRING, keep_duplicates=keeps_duplicates, persistent=False
    )
    with TopologyTestDriver(topology.add_state_store(store, "keep")) as driver:
        driver.input_topic("in", key=STRING, value=STRING).send("k", "v", timestamp_ms=5, headers=[("h", b"x")])
        written = written_by(driver)
    (logged,) = [record for at, records in written.items() if at.topic.endswith("kept-changelog") for record in records]
    assert (logged.key(), logged.value()) == (b"k" + struct.pack(">qi", 5, number), b"v")
    assert (logged.timestamp()[1], list(logged.headers() or ())) == (5, [])
