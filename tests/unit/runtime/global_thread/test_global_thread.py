"""Global stores: filled before tasks run, updated afterwards, stored on disk, readable by all tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.errors import (
    BrokerUnavailableError,
    MissingSourceTopicError,
    StateStoreNotAvailableError,
    StreamsError,
    TimeoutExceededError,
)
from streams_py.ports import BEGINNING, AdminError, AdminErrorKind
from streams_py.runtime.global_thread import global_thread, restoration
from streams_py.runtime.global_thread.topics import GlobalTopics
from streams_py.runtime.tasks.settings.handlers import DeadLetterQueue
from streams_py.runtime.thread import topic_ids
from streams_py.runtime.thread.states import State
from streams_py.serdes import STRING
from streams_py.state.directory.checkpoint import read_checkpoint
from streams_py.state.reading.typed_queries import KeyQuery
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.declare.processor import Record
from streams_py.topology.declare.stores import key_value_store
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology
from tests.support.runtime.global_tables import Upper, Waiting, client, custom, table
from tests.support.runtime.world import World, WorldAdmin, WorldConsumer, WorldProducer
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> type[Waiting]:
    monkeypatch.setattr(Waiting, "is_away", True)
    monkeypatch.setattr(Waiting, "tries", 0)
    return Waiting


@pytest.fixture
def world() -> World:
    made = World(g=2)
    made.write("g", b"one", key=b"a")
    made.write("g", b"two", key=b"b", partition=1)
    return made


@pytest.mark.parametrize(("topology", "found"), [(table, "one two"), (custom, "ONE TWO")])
def test_global_store_is_complete_when_start_returns(
    world: World, tmp_path: Path, topology: Callable[[], Topology], found: str
) -> None:
    with client(world, topology(), tmp_path) as streams:
        view = streams.store("names")
        assert f"{view.get('a')} {view.get('b')}" == found
        assert streams.state is State.RUNNING  # there is nothing else to wait for


def test_global_store_follows_its_topic(world: World, tmp_path: Path) -> None:
    with client(world, table(), tmp_path) as streams:
        world.write("g", b"three", key=b"a")
        view = streams.store("names")
        until(lambda: view.get("a") == "three", "the new value")


@pytest.mark.parametrize("kind", ["rocksdb", "in_memory"])
def test_global_stores_are_measured(world: World, tmp_path: Path, kind: str) -> None:
    config = {"metrics.recording.level": "DEBUG", "dsl.store.suppliers.class": kind}
    with client(world, table(), tmp_path, **config) as streams:
        forgotten = streams.store("names").all()
        [(group, found)] = [of for of in streams.metrics().items() if of[0].startswith("stream-state-metrics")]
        scope = "rocksdb" if kind == "rocksdb" else "in-memory"
        thread = f"{streams._shared.client_id}-GlobalStreamThread"  # it is generated
        assert group == f"stream-state-metrics{{thread-id={thread},task-id=-1_-1,{scope}-state-id=names}}"
        assert found["num-open-iterators"] == 1
        assert 0 < float(found["oldest-iterator-open-since-ms"]) <= time.time() * 1000
        assert ("estimate-num-keys" in found) != ("num-keys" in found)
        assert len(list(forgotten)) == 2
        [found] = [of for group, of in streams.metrics().items() if group.startswith("stream-state-metrics")]
        assert (found["num-open-iterators"], found["oldest-iterator-open-since-ms"]) == (0, 0)
    with client(world, table(), tmp_path / "quiet") as streams:
        [found] = [of for group, of in streams.metrics().items() if group.startswith("stream-state-metrics")]
        assert found["num-open-iterators"] == 0
        assert "oldest-iterator-open-since-ms" not in found


def drop(key: object, value: object, timestamp_ms: int, partition_time_ms: int) -> int:
    return -1


def test_global_table_takes_records_with_their_own_time_whatever_extractor_is_configured(
    world: World, tmp_path: Path
) -> None:
    with client(world, table(), tmp_path, **{"default.timestamp.extractor": drop}) as streams:
        world.write("g", b"three", key=b"c")
        view = streams.store("names")
        until(lambda: view.get("c") == "three", "the record that came later")
        assert view.get("a") == "one"


def test_global_store_on_disk_continues_from_where_it_was(world: World, tmp_path: Path) -> None:
    with client(world, table(), tmp_path):
        pass
    world.log.records[TopicPartition("g", 0)][0] = world.log.records[TopicPartition("g", 1)][0]  # not read again
    world.write("g", b"three", key=b"c")
    with client(world, table(), tmp_path) as streams:
        view = streams.store("names")
        assert [view.get(key) for key in "abc"] == ["one", "two", "three"]


@pytest.mark.parametrize(("suppliers", "found"), [("rocksdb", {0: 1, 1: 1}), ("in_memory", {})])
def test_checkpoint_file_has_the_next_offset_of_each_partition_of_a_store_on_disk(
    world: World, tmp_path: Path, suppliers: str, found: dict[int, int]
) -> None:
    with client(world, table(), tmp_path, **{"dsl.store.suppliers.class": suppliers}):
        pass
    checkpoint = read_checkpoint(str(tmp_path / "app" / "global"))
    assert checkpoint == {TopicPartition("g", number): offset for number, offset in found.items()}


@pytest.mark.parametrize(("topology", "found"), [(table, "four None"), (custom, "FOUR None")])
def test_global_store_is_filled_again_when_its_topic_was_recreated(
    world: World, tmp_path: Path, topology: Callable[[], Topology], found: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.topic_ids["g"] = "first"
    with client(world, topology(), tmp_path):
        pass
    for number in (0, 1):
        world.log.records[TopicPartition("g", number)].clear()
    for number in (0, 0, 1, 1):  # higher than the earlier positions
        world.write("g", b"four", key=b"a", partition=number)
    world.topic_ids["g"] = "second"
    with client(world, topology(), tmp_path) as streams:
        view = streams.store("names")
        assert f"{view.get('a')} {view.get('b')}" == found
    warned = "topic g was deleted and created again since global store names was filled from it"
    assert caplog.text.count(warned) == 1
    with client(world, topology(), tmp_path):
        pass
    assert caplog.text.count(warned) == 1


def test_client_does_not_continue_with_a_global_store_whose_topic_is_recreated(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new topic is longer than the old positions, so no offset is out of range."""
    monkeypatch.setattr(topic_ids, "_INTERVAL_MS", 20)
    monkeypatch.setattr(topic_ids, "_CONFIRM_MS", 20)
    world.topic_ids["g"] = "first"
    with client(world, table(), tmp_path) as streams:
        for number in (0, 1):
            world.log.records[TopicPartition("g", number)][0] = MemoryRecord("g", number, 0, b"a", b"four")
        world.topic_ids["g"] = "second"
        until(lambda: streams.state is State.ERROR, "the client to end")
        assert "topic g was deleted and created again since its global store was restored from it" in str(streams.error)
    with client(world, table(), tmp_path) as streams:
        view = streams.store("names")
        assert f"{view.get('a')} {view.get('b')}" == "four None"


def test_global_store_continues_while_nobody_says_whether_its_topics_are_the_same(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(global_thread, "_NEW_PARTITIONS_MS", 20)
    asked = threading.Event()

    def away(self: GlobalTopics) -> None:
        asked.set()
        raise BrokerUnavailableError("no broker answers")

    with client(world, table(), tmp_path) as streams:
        monkeypatch.setattr(GlobalTopics, "describe", away)
        assert asked.wait(PATIENCE_S)
        world.write("g", b"three", key=b"a")
        until(lambda: streams.store("names").get("a") == "three", "the new value")


def test_record_that_waits_for_what_is_away_is_read_again_after_a_restart(
    world: World, tmp_path: Path, waiting: type[Waiting], monkeypatch: pytest.MonkeyPatch
) -> None:
    with client(world, custom(waiting), tmp_path, **{"task.timeout.ms": 60_000}):
        world.write("g", b"three", key=b"c")
        until(lambda: waiting.tries, "the record to be tried")
    monkeypatch.setattr(Waiting, "is_away", False)
    with client(world, custom(waiting), tmp_path) as streams:
        view = streams.store("names")
        assert [view.get(key) for key in "abc"] == ["ONE", "TWO", "THREE"]


def test_start_waits_for_a_record_that_waits_for_what_is_away(
    world: World, tmp_path: Path, waiting: type[Waiting]
) -> None:
    world.write("g", b"three", key=b"c")
    streams = client(world, custom(waiting), tmp_path)
    with pytest.raises(TimeoutExceededError, match="the registry is away"):
        streams.start()
    assert streams.close()


def test_start_says_that_the_topic_of_a_global_store_is_missing(tmp_path: Path) -> None:
    streams = client(World(other=1), table(), tmp_path)
    with pytest.raises(MissingSourceTopicError, match="topic g of a global store"):
        streams.start()
    assert streams.close()
    assert streams.state is State.ERROR


@pytest.mark.parametrize("kind", [AdminErrorKind.UNKNOWN_TOPIC, AdminErrorKind.LEADER_NOT_AVAILABLE])
def test_start_waits_for_a_broker_that_does_not_know_the_topic_of_a_global_store_yet(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: AdminErrorKind
) -> None:
    """A broker that has just started may not know an existing topic yet, so the user need not create it."""
    first_answers(monkeypatch, AdminError(kind, "not yet"))
    with client(world, table(), tmp_path) as streams:
        assert streams.store("names").get("a") == "one"


def test_start_fails_when_no_broker_describes_the_topics_for_the_task_timeout(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: GlobalTopics) -> None:
        raise BrokerUnavailableError("no broker answers")

    monkeypatch.setattr(GlobalTopics, "describe", away)
    streams = client(world, table(), tmp_path, **{"task.timeout.ms": 50})
    failed = r"restoring the global stores has failed for 50 ms \(task\.timeout\.ms\): no broker answers"
    with pytest.raises(TimeoutExceededError, match=failed):
        streams.start()
    assert streams.close()


def test_start_names_the_right_that_it_takes_to_fill_a_global_store(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_answers(monkeypatch, AdminError(AdminErrorKind.NOT_ALLOWED, "no"))
    streams = client(world, table(), tmp_path)
    with pytest.raises(StreamsError, match="no right READ on topic g"):
        streams.start()
    assert streams.close()


def first_answers(monkeypatch: pytest.MonkeyPatch, answer: AdminError) -> None:
    """A broker's first answer about topics."""
    describe, said = WorldAdmin.describe_topics, []

    def first(self: WorldAdmin, names: Collection[str] | None = None) -> Any:
        said.append(names)
        return describe(self, names) if len(said) > 1 else dict.fromkeys(names or (), answer)

    monkeypatch.setattr(WorldAdmin, "describe_topics", first)


class Exiting(Upper):
    """Calls sys.exit()."""

    def process(self, record: Record[str, str]) -> None:
        if record.value == "exit":
            raise SystemExit(3)
        super().process(record)


@pytest.mark.parametrize("is_filling", [True, False])
def test_processor_that_ends_the_program_ends_the_client_in_error(
    world: World, tmp_path: Path, is_filling: bool
) -> None:
    streams = client(world, custom(Exiting), tmp_path)
    if is_filling:
        world.write("g", b"exit", key=b"c")
        with pytest.raises(StreamsError, match="SystemExit"):
            streams.start()
    else:
        streams.start()
        world.write("g", b"exit", key=b"c")
        assert streams.wait_until(State.ERROR, PATIENCE_S)
        assert "SystemExit" in str(streams.error)
    assert streams.close()


def test_client_ends_in_error_when_the_global_thread_fails(world: World, tmp_path: Path) -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.add_global_store(key_value_store("names", logging=False), "g", Upper)
    builder.stream("g2").to("out")
    world.topics.update({"g2": 1, "out": 1})
    with client(world, builder.build(), tmp_path) as streams:
        world.log.produce("g", None, b"k", 0, None, 1, None)  # None has no upper()
        assert streams.wait_until(State.ERROR, PATIENCE_S)
        assert isinstance(streams.error, StreamsError)


def test_global_store_whose_place_in_the_topic_is_gone_is_deleted_and_filled_from_the_beginning_next_time(
    world: World, tmp_path: Path
) -> None:
    with client(world, table(), tmp_path):
        pass
    partition = TopicPartition("g", 0)
    world.write("g", b"three", b"four", key=b"c")
    world.starts[partition] = 2  # the topic's records after the store's position are deleted, and those before it, too
    streams = client(world, table(), tmp_path)
    with pytest.raises(StreamsError, match=r"g-0 no longer has the records that follow those in its global store"):
        streams.start()
    assert streams.close()
    with client(world, table(), tmp_path) as streams:
        view = streams.store("names")
        assert [view.get(key) for key in "abc"] == [None, "two", "four"]


@pytest.mark.parametrize(("topology", "found"), [(table, "one two"), (custom, "ONE TWO")])
def test_records_without_key_are_in_no_global_table_and_poison_is_the_handlers_at_start_and_later(
    world: World, tmp_path: Path, topology: Callable[[], Topology], found: str
) -> None:
    poison = b"\xff"
    config = {"deserialization.exception.handler": "log_and_continue"}
    world.log.produce("g", poison, b"p", 0, None, 1, None)
    if topology is table:
        world.log.produce("g", b"x", None, 0, None, 1, None)
    with client(world, topology(), tmp_path, **config) as streams:
        world.log.produce("g", poison, b"q", 0, None, 1, None)
        world.write("g", b"last", key=b"z")
        view = streams.store("names")
        until(lambda: view.get("z"), "the record behind the poison")
        assert f"{view.get('a')} {view.get('b')}" == found
        assert view.get("q") is None


def test_processing_handler_is_asked_when_the_processor_of_a_global_store_raises(world: World, tmp_path: Path) -> None:
    world.log.produce("g", None, b"k", 0, None, 1, None)  # None has no upper()
    config = {"processing.exception.handler": "log_and_continue"}
    with client(world, custom(), tmp_path, **config) as streams:
        world.write("g", b"last", key=b"z")
        view = streams.store("names")
        until(lambda: view.get("z") == "LAST", "the record behind the one that failed")


# -- dead letters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_filling", [True, False])
def test_record_counts_as_read_when_its_dead_letter_is_written(
    world: World, tmp_path: Path, is_filling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the record would be lost if the process were killed before that."""
    unacknowledged, asked = threading.Event(), threading.Event()
    unacknowledged.set()

    def flush(self: WorldProducer, timeout_ms: int) -> int:
        asked.set()
        return int(unacknowledged.is_set())

    monkeypatch.setattr(WorldProducer, "flush", flush)
    world.topics["dead"] = 1
    partition = TopicPartition("g", 0)
    handler = {"deserialization.exception.handler": DeadLetterQueue("dead")}
    streams = client(world, custom(), tmp_path, **handler)
    if is_filling:
        world.log.produce("g", b"\xff", b"p", 0, None, 1, None)
    starting = threading.Thread(target=streams.start)
    starting.start()
    if not is_filling:
        starting.join(PATIENCE_S)
        world.log.produce("g", b"\xff", b"p", 0, None, 1, None)
    assert asked.wait(PATIENCE_S)
    stores = streams._global_thread.thread.stores  # type: ignore[union-attr]  # views of them refuse writes
    assert stores.restore_position(partition) == (BEGINNING if is_filling else 1)
    unacknowledged.clear()
    until(lambda: stores.restore_position(partition) == 2, "the record to count as read")
    starting.join(PATIENCE_S)
    assert [record.key() for record in world.records(TopicPartition("dead", 0))] == [b"p"]
    assert streams.close()


# -- half a topic --------------------------------------------------------------------------------------------------


def test_global_store_is_read_by_nobody_before_it_is_filled(
    world: World, tmp_path: Path, waiting: type[Waiting]
) -> None:
    """Otherwise a key would be reported as absent although its record is not read yet."""
    world.write("g", b"three", key=b"c")
    streams = client(world, custom(waiting), tmp_path, **{"task.timeout.ms": 600_000})
    starting = threading.Thread(target=streams.start)
    starting.start()
    until(lambda: waiting.tries, "the record to be tried")
    with pytest.raises(StateStoreNotAvailableError, match="still being restored"):
        streams.store("names")
    with pytest.raises(StateStoreNotAvailableError, match="is being restored"):
        streams.query("names", KeyQuery("c"))
    waiting.is_away = False
    starting.join(PATIENCE_S)
    assert streams.store("names").get("c") == "THREE"
    found = streams.query("names", KeyQuery("c")).only
    assert found is not None
    assert found.value == "THREE"
    assert streams.close()


def test_no_more_records_are_taken_in_while_one_waits_for_what_is_away(
    world: World, tmp_path: Path, waiting: type[Waiting]
) -> None:
    with client(world, custom(waiting), tmp_path, **{"task.timeout.ms": 600_000}) as streams:
        world.write("g", b"three", key=b"c")
        until(lambda: waiting.tries, "the record to be tried")
        world.write("g", *[b"%d" % number for number in range(50_000)], key=b"d")
        tries = waiting.tries
        until(lambda: waiting.tries > tries + 2, "the record to be tried again")
        (consumer,) = (one for one in world.open_clients if isinstance(one, WorldConsumer))
        assert consumer.position(TopicPartition("g", 0)) == 2
        waiting.is_away = False
        until(lambda: streams.store("names").get("d") == "49999", "the rest")


def test_new_partitions_of_a_topic_are_read(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_thread, "_NEW_PARTITIONS_MS", 20)
    with client(world, table(), tmp_path) as streams:
        world.topics["g"] = 3
        world.write("g", b"three", key=b"c", partition=2)
        world.write("g", b"four", key=b"a")
        view = streams.store("names")
        until(lambda: view.get("c") == "three", "the record in the new partition")
        assert [view.get(key) for key in "ab"] == ["four", "two"]
        world.write("g", b"five", key=b"c", partition=2)
        until(lambda: view.get("c") == "five", "the next one")


def test_start_does_not_wait_for_the_end_of_a_transaction(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restoration, "_OPEN_TRANSACTION_MS", 0)
    world.write("g", b"three", b"four", key=b"c")
    world.open_from[TopicPartition("g", 0)] = 1
    with client(world, table(), tmp_path) as streams:
        view = streams.store("names")
        assert [view.get(key) for key in "abc"] == ["one", "two", None]
        assert "g-0 has an open transaction" in caplog.text
        del world.open_from[TopicPartition("g", 0)]
        until(lambda: view.get("c") == "four", "what was committed")
