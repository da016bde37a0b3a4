"""Reports of the progress of filling global stores, before tasks run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py import Answer
from streams_py.errors import BrokerUnavailableError, DeserializationError, StreamsError
from streams_py.runtime.client.kafka_streams import KafkaStreams
from streams_py.runtime.global_thread import global_task, restoration
from streams_py.runtime.restore.listener import RestoreListener
from streams_py.runtime.tasks.settings.handlers import DeadLetterQueue
from streams_py.serdes import INT64, JSON, STRING, Serde, serde
from streams_py.state.tasks.global_stores import GlobalStores
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.declare.processor import Record
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology
from tests.support.runtime.global_tables import Upper, client, custom, table
from tests.support.runtime.world import World, WorldConsumer
from tests.support.waiting import until


@pytest.fixture
def world() -> World:
    made = World(g=2)
    made.write("g", b"one", key=b"a")
    made.write("g", b"two", key=b"b", partition=1)
    return made


class Heard(RestoreListener):
    """Calls of a restore listener, with the client's progress at that moment."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.progress: list[tuple[int, int]] = []
        self.streams: KafkaStreams | None = None

    def on_restore_start(self, changelog: TopicPartition, store: str, start: int, end: int) -> None:
        self.told.append((changelog.partition, "start", store, start, end))

    def on_batch_restored(self, changelog: TopicPartition, store: str, batch_end: int, count: int) -> None:
        assert self.streams is not None
        now = self.streams.restore_progress()
        self.progress.append((now.records, now.remaining))
        self.told.append((changelog.partition, "batch", store, batch_end, count))

    def on_restore_end(self, changelog: TopicPartition, store: str, total: int) -> None:
        self.told.append((changelog.partition, "end", store, total))


@pytest.mark.parametrize("topology", [table, custom])
def test_filling_is_told_to_the_restore_listener_and_its_progress_to_whoever_asks(
    world: World, tmp_path: Path, topology: Callable[[], Topology], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    told: list[list[tuple[Any, ...]]] = []
    for _ in range(2):
        heard = Heard()
        heard.streams = client(world, topology(), tmp_path, restore_listener=heard)
        with heard.streams as streams:
            assert streams.restore_progress().remaining == 0
        told.append([one for number in (0, 1) for one in heard.told if one[0] == number])
    assert told[0] == [
        one
        for number in (0, 1)
        for one in ((number, "start", "names", 0, 1), (number, "batch", "names", 0, 1), (number, "end", "names", 1))
    ]
    assert told[1] == [
        one for number in (0, 1) for one in ((number, "start", "names", 1, 1), (number, "end", "names", 0))
    ]
    (sentence, *_) = [text for text in caplog.messages if "GlobalStreamThread restored" in text]
    assert "restored 2 records" in sentence


def test_progress_of_a_global_store_says_what_is_left(world: World, tmp_path: Path) -> None:
    heard = Heard()
    heard.streams = client(world, table(), tmp_path, restore_listener=heard)
    with heard.streams:
        assert heard.progress == [(1, 1), (2, 0)]


@pytest.mark.parametrize("topology", [table, custom])
def test_complete_partition_is_not_read_while_others_are_restored(
    world: World, tmp_path: Path, topology: Callable[[], Topology], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its later records were applied during the restoration, and again when the client followed the topic."""
    small = TopicPartition("g", 0)
    world.write("g", *[b"x"] * 2 * global_task.RECORDS_MAX, key=b"b", partition=1)
    noted: list[int] = []
    processed: list[str] = []
    note_positions, process = GlobalStores.note_positions, Upper.process

    def note(self: GlobalStores, positions: Mapping[TopicPartition, int]) -> None:
        noted.extend(offset for partition, offset in positions.items() if partition == small)
        note_positions(self, positions)

    def count(self: Upper, record: Record[str, str]) -> None:
        processed.append(record.value)
        process(self, record)

    class Producing(Heard):
        def on_restore_end(self, changelog: TopicPartition, store: str, total: int) -> None:
            super().on_restore_end(changelog, store, total)
            if changelog == small:
                world.write("g", b"three", key=b"a")

    monkeypatch.setattr(GlobalStores, "note_positions", note)
    monkeypatch.setattr(Upper, "process", count)
    heard = Producing()
    heard.streams = client(world, topology(), tmp_path, restore_listener=heard)
    with heard.streams as streams:
        until(lambda: str(streams.store("names").get("a")).lower() == "three", "the record that came later")
        until(lambda: noted[-1] == 2, "its position")
    assert noted == sorted(noted)
    assert [call[1] for call in heard.told if call[0] == 0] == ["start", "batch", "end"]
    assert [call[1] for call in heard.told if call[0] == 1][-2:] == ["batch", "end"]
    assert processed.count("three") == (topology is custom)


# -- what is in the topic ----------------------------------------------------------------------------------------------


def numbers(*, key: Serde[Any] = STRING, value: Serde[Any] = INT64) -> Topology:
    builder = StreamsBuilder(key=key, value=value)
    builder.global_table("n", store="names")
    return builder.build()


GOOD, BAD = bytes(7) + b"\1", b"bad"


@pytest.mark.parametrize("kept", ["rocksdb", "in_memory"])
def test_bad_record_is_dropped_while_a_global_table_is_filled_as_while_it_is_followed(
    tmp_path: Path, kept: str
) -> None:
    world = World(n=1)
    asked: list[int] = []

    def handler(context: Any, record: Any, error: Exception) -> Answer:
        asked.append(context.offset)
        return Answer.CONTINUE

    world.write("n", GOOD, BAD, key=b"a")
    world.write("n", GOOD, key=b"\xff")
    more = {"deserialization.exception.handler": handler, "dsl.store.suppliers.class": kept}
    with client(world, numbers(), tmp_path, **more) as streams:
        assert asked == [1, 2]
        assert dict(streams.store("names").all()) == {"a": 1}
        world.write("n", BAD, key=b"a")
        world.write("n", GOOD, key=b"b")
        until(lambda: streams.store("names").get("b") == 1, "the record behind the bad one is in the table")
        assert asked == [1, 2, 3]
        assert dict(streams.store("names").all()) == {"a": 1, "b": 1}


def test_client_does_not_start_when_the_handler_stops_at_a_record_of_a_global_table(tmp_path: Path) -> None:
    world = World(n=1)
    world.write("n", GOOD, BAD, key=b"a")
    with pytest.raises(DeserializationError, match=r"n-0 at offset 1"):
        client(world, numbers(), tmp_path).start()


def test_dead_letter_is_written_for_a_record_of_a_global_table_once(tmp_path: Path) -> None:
    world = World(n=1, dead=1)
    world.write("n", GOOD, BAD, key=b"a")
    world.write("n", BAD, key=b"b")
    for _ in range(2):
        with client(world, numbers(), tmp_path, **{"deserialization.exception.handler": DeadLetterQueue("dead")}):
            pass
    assert [letter.key() for letter in world.records(TopicPartition("dead", 0))] == [b"a", b"b"]


def test_global_table_has_one_row_for_keys_that_are_equal_but_written_otherwise(tmp_path: Path) -> None:
    world = World(n=1)
    world.write("n", b"1", key=b"[1, 2]")
    world.write("n", b"2", key=b"[1,2]")
    world.write("n", b"3", key=b'"gone"')
    world.write("n", b"null", key=b'"gone"')
    with client(world, numbers(key=JSON, value=JSON), tmp_path) as streams:
        assert list(streams.store("names").all()) == [([1, 2], 2)]


def test_record_without_a_time_ends_the_filling_as_it_ends_the_following(tmp_path: Path) -> None:
    world = World(n=1)
    world.log.produce("n", GOOD, b"a", 0, None, 5, None)
    world.log.records[TopicPartition("n", 0)].append(MemoryRecord("n", 0, 1, b"a", GOOD, timestamp_ms=-1))
    with pytest.raises(StreamsError, match=r"n-0 at offset 1 has no valid timestamp"):
        client(world, numbers(), tmp_path).start()


def test_filling_waits_for_what_a_serde_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(n=1)
    world.write("n", b"one", key=b"a")
    tries: list[bytes] = []

    def decode(data: bytes) -> str:
        tries.append(data)
        if len(tries) < 9:
            raise BrokerUnavailableError("the registry is away")
        return data.decode()

    value = serde(serialize=str.encode, deserialize=decode)
    with client(world, numbers(value=value), tmp_path, **{"task.timeout.ms": 60_000}) as streams:
        assert streams.store("names").get("a") == "one"


def test_filling_continues_at_the_new_log_start_when_retention_overtakes_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restoration, "RECORDS_MAX", 10)
    at = TopicPartition("g", 0)
    world.write("g", *[b"%d" % number for number in range(100)], key=b"a")
    poll = WorldConsumer.poll
    polls = itertools.count()

    def poll_and_delete(self: WorldConsumer, max_records: int, timeout_ms: int) -> list[MemoryRecord]:
        if next(polls) == 3:
            world.starts[at] = 80
        return poll(self, max_records, timeout_ms)

    monkeypatch.setattr(WorldConsumer, "poll", poll_and_delete)
    with client(world, table(), tmp_path) as streams:
        assert streams.store("names").get("a") == "99"
    assert "records of g-0 were deleted while its global store was being restored" in caplog.text
