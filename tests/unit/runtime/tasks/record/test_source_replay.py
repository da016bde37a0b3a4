"""A store restored from its source topic equals the result of processing, whatever the topic contains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams_protocol.types import TaskId, TopicPartition
from streams_py import Answer, serdes
from streams_py.errors import BrokerUnavailableError, DeserializationError, StreamsError
from streams_py.ports import RawRecord
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.record.collector import RecordCollector
from streams_py.runtime.tasks.record.node_services import SharedServices
from streams_py.runtime.tasks.record.source_replay import ReplayedRecord, task_replays
from streams_py.runtime.tasks.settings.handlers import DeadLetterQueue, Handler, log_and_continue, log_and_fail
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.runtime.tasks.settings.timestamps import log_and_skip_invalid, partition_time_if_invalid
from streams_py.runtime.tasks.standby_task import StandbyTask
from streams_py.runtime.tasks.task import Task
from streams_py.serdes import BYTES, INT64, JSON, STRING, UUID, Serde
from streams_py.state.custom.lru import lru_map
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.opening.stores import StoreDefaults
from streams_py.state.stores.versioned import VersionedStore
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.testing.memory_clients import ManualClock, MemoryProducer, MemoryRecord
from streams_py.topology.declare.nodes import TimestampExtractor
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.declare.stores import key_value_store
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.topology import Topology
from tests.support.runtime.fakes import FakeLog
from tests.support.runtime.stepped_updater import LOG, OTHER, Stepped, active
from tests.support.runtime.task_kit import FakeInputs

IN, TASK = TopicPartition("in", 0), TaskId(0, 0)

Row = tuple[Any, ...]


def build(
    key: Serde[Any],
    value: Serde[Any],
    *,
    extractor: TimestampExtractor | None = None,
    store: Materialized[Any, Any] | None = None,
) -> Topology:
    """Build a table that reuses its source topic."""
    builder = StreamsBuilder(key=key, value=value)
    builder.table("in", materialized=store or Materialized("t"), timestamp_extractor=extractor)
    return builder.build({"topology.optimization": "all"})


class Run:
    """Tasks of one topology, one after the other, each with a separate store."""

    def __init__(self, topology: Topology, handler: Handler, path: Path | None = None) -> None:
        self.nodes = topology.subtopology(0)
        self.settings = TaskSettings(application_id="app", deserialization_handler=handler)
        self.path = path
        self.producer = MemoryProducer()
        self.directories: dict[str, StateDirectory] = {}

    def stores(self, name: str) -> TaskState:
        is_persistent = self.path is not None
        directory = self.directories.get(name)
        if directory is None:
            directory = StateDirectory(str(self.path and self.path / name), "app", persistent=is_persistent)
            directory.open()
            self.directories[name] = directory
        defaults = StoreDefaults(persistent=is_persistent)
        return TaskState(
            TASK, self.nodes.stores, StoreEnvironment(directory, "thread-1", defaults=defaults), application_id="app"
        )

    def active(self, name: str) -> ActiveTask:
        return ActiveTask(
            TASK,
            self.nodes,
            [IN],
            self.stores(name),
            collector=RecordCollector(TASK, self.producer, self.settings),
            inputs=FakeInputs(),
            shared=SharedServices(clock=ManualClock()),
        )

    def standby(self, name: str) -> StandbyTask:
        return StandbyTask(TASK, self.nodes, [IN], self.stores(name), self.settings)

    def processed(self, records: Sequence[RawRecord]) -> list[Row]:
        task = self.active("processed")
        task.initialize()
        task.complete_restoration({})
        task.add_records(IN, records)
        while task.process(100):
            pass
        task.flush_caches()
        task.post_commit(enforce_checkpoint=False, acked={})
        return closed_rows(task)

    def restored(self, task: Task, records: Sequence[RawRecord], batch: int = 3) -> list[Row]:
        task.initialize()
        for at in range(0, len(records), batch):
            task.restoring.restore(IN, records[at : at + batch])
            assert task.restoring.restore_position(IN) == records[at : at + batch][-1].offset() + 1
        while not task.restoring.flush_restored():
            pass
        task.restoring.end_loading()
        return closed_rows(task)


def closed_rows(task: Task) -> list[Row]:
    store = task.stores.store("t")
    if isinstance(store, VersionedStore):
        decode = store.codec.decode_value
        rows = [(key, value if value is None else decode(value), time_ms) for key, value, time_ms in store.entries()]
    else:
        rows = sorted(((repr(key), value) for key, value in store.all()), key=repr)
    task.close_dirty()
    return rows


def records_of(*entries: tuple[bytes | None, bytes | None, int]) -> list[RawRecord]:
    """Create records at the offsets 0, 2, 4, ...: a topic has gaps."""
    return [
        MemoryRecord("in", 0, 2 * number, key, value, timestamp_ms=time_ms)
        for number, (key, value, time_ms) in enumerate(entries)
    ]


KINDS: dict[str, tuple[Serde[Any], Serde[Any], Sequence[bytes], Sequence[bytes]]] = {
    "bytes": (BYTES, BYTES, [b"", b"a", b"\xff"], [b"", b"x", b"\xff"]),
    "text": (STRING, STRING, [b"", b"a", b"\xff", b"\xc3\xa9"], [b"", b"x", b"\xff"]),
    "numbers": (INT64, INT64, [bytes(8), b"\xff" * 8, b"bad"], [bytes(7) + b"\1", b"bad", b""]),
    "json": (JSON, JSON, [b'"a"', b"null", b' "a"', b"{", b"1", b"1 "], [b"null", b"[1]", b"[ 1 ]", b"{", b""]),
    "uuid": (
        UUID,
        STRING,
        [b"550e8400-e29b-41d4-a716-446655440000", b"550E8400-E29B-41D4-A716-446655440000", b"no"],
        [b"x", b"\xff"],
    ),
}

EXTRACTORS: dict[str, TimestampExtractor | None] = {
    "none": None,
    "skips": log_and_skip_invalid,
    "partition time": partition_time_if_invalid,
    "of the value": lambda key, value, time_ms, partition_ms: len(repr(value)) * 10 - 25,
}

STORES: dict[str, Materialized[Any, Any]] = {
    "plain": Materialized("t"),
    "uncached": Materialized("t", caching=False),
    "versioned": Materialized("t", history=50),
    "of the user": Materialized("t", supplier=lru_map(100)),
}


@pytest.mark.parametrize(
    "store",
    ["plain", "versioned", *(pytest.param(name, marks=pytest.mark.slow) for name in ("uncached", "of the user"))],
)
@pytest.mark.parametrize("extractor", EXTRACTORS)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)  # of each of 40 combinations
@given(data=st.data())
def test_restored_table_equals_the_processed_one(kind: str, extractor: str, store: str, data: st.DataObject) -> None:
    key, value, keys, values = KINDS[kind]
    times = st.integers(0, 300) if extractor == "none" else st.integers(-3, 300)
    entry = st.tuples(st.sampled_from([None, *keys]), st.sampled_from([None, *values]), times)
    entries = data.draw(st.lists(entry, min_size=1, max_size=12))
    if extractor == "partition time":  # needs an initial time
        entries = [(keys[0], None, 5), *entries]
    records = records_of(*entries)
    run = Run(build(key, value, extractor=EXTRACTORS[extractor], store=STORES[store]), log_and_continue)
    processed = run.processed(records)
    batch = data.draw(st.integers(1, 5))
    assert run.restored(run.active("active"), records, batch) == processed
    assert run.restored(run.standby("standby"), records, batch) == processed


def test_restored_table_equals_the_processed_one_on_disk(tmp_path: Path) -> None:
    entries = [
        (b"%d" % (number % 7), b"bad" if number % 5 == 0 else bytes(7) + b"%c" % number, 9) for number in range(99)
    ]
    run = Run(build(STRING, INT64), log_and_continue, tmp_path)
    records = records_of(*entries, (b"\xff", bytes(8), 9), (b"1", b"bad", 9))
    processed = run.processed(records)
    assert len(processed) == 7
    assert run.restored(run.active("active"), records, 10) == processed
    assert run.restored(run.standby("standby"), records, 10) == processed


def test_position_is_on_disk_when_a_whole_batch_is_dropped(tmp_path: Path) -> None:
    run = Run(build(STRING, INT64), log_and_continue, tmp_path)
    task = run.active("active")
    task.initialize()
    task.restoring.restore(IN, records_of((b"a", bytes(8), 1)))
    task.restoring.restore(IN, records_of((b"a", b"bad", 1), (b"a", b"", 1), (None, bytes(8), 1))[1:])
    while not task.restoring.flush_restored():
        pass
    task.close_dirty()
    again = run.active("active")
    again.initialize()
    assert again.restoring.restore_position(IN) == 5
    assert closed_rows(again) == [("'a'", (0, 1))]


# -- what is asked, and what is not ------------------------------------------------------------------------------------


def test_handler_is_asked_about_each_bad_record_with_its_offset() -> None:
    asked: list[tuple[int, str]] = []

    def handler(context: Any, record: Any, error: Exception) -> Answer:
        asked.append((context.offset, context.node))
        return Answer.CONTINUE

    run = Run(build(STRING, INT64), handler)
    run.restored(run.active("active"), records_of((b"a", bytes(8), 1), (b"a", b"bad", 2), (b"\xff", bytes(8), 3)))
    assert asked == [(2, "KSTREAM-SOURCE-0000000000"), (4, "KSTREAM-SOURCE-0000000000")]


def test_restoration_fails_naming_the_record_when_the_handler_says_so() -> None:
    run = Run(build(STRING, INT64), log_and_fail)
    with pytest.raises(DeserializationError, match=r"in-0 at offset 2.*deserialization\.exception\.handler"):
        run.restored(run.active("active"), records_of((b"a", bytes(8), 1), (b"a", b"bad", 2)))


def test_no_dead_letter_is_written_again() -> None:
    run = Run(build(STRING, INT64), DeadLetterQueue("dead").handle)
    records = records_of((b"a", bytes(8), 1), (b"a", b"bad", 2))
    run.processed(records)
    assert [record.topic() for record in run.producer.sent] == ["dead"]
    run.restored(run.active("active"), records)
    run.restored(run.standby("standby"), records)
    assert [record.topic() for record in run.producer.sent] == ["dead"]


def test_extractor_that_fails_stops_the_restoration() -> None:
    def extractor(key: Any, value: Any, time_ms: int, partition_ms: int) -> int:
        raise ValueError("no time in it")

    run = Run(build(STRING, INT64, extractor=extractor), log_and_continue)
    with pytest.raises(StreamsError, match=r"in-0 at offset 0.*no time in it"):
        run.restored(run.active("active"), records_of((b"a", bytes(8), 1)))


def test_invalid_timestamp_without_an_extractor_stops_the_restoration() -> None:
    run = Run(build(STRING, INT64), log_and_continue)
    with pytest.raises(StreamsError, match=r"in-0 at offset 0 has no valid timestamp \(-7\)"):
        run.restored(run.active("active"), records_of((b"a", bytes(8), -7)))


def test_replay_that_begins_in_the_middle_finds_a_partition_time() -> None:
    run = Run(build(STRING, INT64, extractor=partition_time_if_invalid), log_and_continue)
    records = records_of((b"a", bytes(8), 5), (b"b", bytes(8), -1), (b"c", bytes(8), 9))[1:]
    assert run.restored(run.active("active"), records) == [("'b'", (0, 9)), ("'c'", (0, 9))]


def test_headers_of_a_replayed_record_are_those_of_the_topic() -> None:
    raw = MemoryRecord("in", 3, 7, b"k", b"v", timestamp_ms=1, headers=[("h", b"1")])
    record = ReplayedRecord(raw, b"K", None, 2)
    assert (record.topic(), record.partition(), record.offset(), record.timestamp()) == ("in", 3, 7, (1, 2))
    assert (record.key(), record.value(), record.headers()) == (b"K", None, [("h", b"1")])


# -- the fast path -----------------------------------------------------------------------------------------------------


def test_records_are_passed_through_when_processing_would_not_change_them() -> None:
    topology = build(STRING, INT64)
    nodes = topology.subtopology(0)
    (replay,) = task_replays(TASK, nodes.nodes, nodes.stores, TaskSettings(application_id="app")).values()
    records = records_of((b"a", bytes(8), 1), (b"b", None, 2))
    assert replay.replayed(records) is records


def test_nothing_is_looked_at_when_bytes_are_stored_as_they_are() -> None:
    nodes = build(BYTES, BYTES).subtopology(0)
    assert task_replays(TASK, nodes.nodes, nodes.stores, TaskSettings(application_id="app")) == {}


@pytest.mark.parametrize(("key", "value", "lent"), [(BYTES, BYTES, True), (STRING, BYTES, False)])
def test_another_process_reads_only_what_is_stored_as_it_is(
    key: Serde[Any], value: Serde[Any], lent: bool, tmp_path: Path
) -> None:
    run = Run(build(key, value), log_and_continue, tmp_path)
    task = run.active("active")
    task.initialize()
    assert (task.restoring.sorted_files(IN) is not None) == lent
    task.close_dirty()


class Keep(Processor[Any, Any, None, None]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.get_state_store("t").put(record.key, record.value)


@pytest.mark.parametrize(("key", "value"), [(STRING, INT64), (JSON, serdes.msgpack())])
def test_read_only_store_is_restored_as_its_processor_fills_it(key: Serde[Any], value: Serde[Any]) -> None:
    topology = Topology()
    store = key_value_store("t", key=key, value=value, logging=False, persistent=False)
    topology.add_read_only_state_store(store, "source", "in", "keep", Keep, key=STRING, value=INT64)
    records = records_of((b"a", bytes(8), 1), (b"a", b"bad", 2), (b"b", bytes(8), 3), (b"a", None, 4))
    run = Run(topology, log_and_continue)
    processed = run.processed(records)
    assert processed == [("'b'", 0)]
    assert run.restored(run.active("active"), records) == processed


# -- a serde whose registry is away ------------------------------------------------------------------------------------


def test_batch_is_replayed_as_a_whole_or_not_at_all() -> None:
    is_away = True

    def decode(data: bytes) -> str:
        if is_away and data == b"new":
            raise BrokerUnavailableError("the registry is away")
        return data.decode()

    run = Run(build(STRING, serdes.serde(serialize=str.encode, deserialize=decode)), log_and_continue)
    task = run.active("active")
    task.initialize()
    records = records_of((b"a", b"old", 1), (b"b", b"new", 2))
    with pytest.raises(BrokerUnavailableError):
        task.restoring.restore(IN, records)
    assert task.restoring.restore_position(IN) < 0
    is_away = False
    task.restoring.restore(IN, records)
    assert closed_rows(task) == [("'a'", ("old", 1)), ("'b'", ("new", 2))]


def test_records_are_read_again_when_what_their_serde_needs_is_back(log: FakeLog) -> None:
    log.write(LOG, 4)
    log.write(OTHER, 3)
    updater, waits, goes_on = Stepped(log), active(LOG), active(OTHER)
    waits.error = BrokerUnavailableError("the registry is away")
    updater.add(waits)
    updater.add(goes_on)
    updater.turn(3)
    assert waits.restored == []
    assert updater.drain_failed() == []
    assert goes_on.restored == [(OTHER, 0), (OTHER, 1), (OTHER, 2)]
    waits.error = None
    updater.turn(3)
    assert waits.restored == [(LOG, offset) for offset in range(4)]
