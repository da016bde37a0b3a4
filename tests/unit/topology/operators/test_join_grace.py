"""Joins with a grace period: stream records wait for late rows of the table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from streams_py.errors import TopologyError
from streams_py.serdes import BYTES, STRING
from streams_py.state.buffers.join_buffer import JoinBuffer
from streams_py.state.stores.bytes_store import MemoryBytes
from streams_py.state.stores.codec import StoreCodec
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.topology import Topology
from tests.support.topology.driver_parts import written_by

RECORDED = Path(__file__).parents[3] / "vectors" / "versioned_tables" / "join_with_grace.json"
"""What Kafka Streams 4.3.1 does with :func:`topology`, out of order."""


def topology(*, persistent: bool) -> Topology:
    builder = StreamsBuilder(key=STRING, value=STRING)
    rows = builder.table("rows", materialized=Materialized("rows-store", history=100, persistent=persistent))

    def joined(value: str, row: str | None) -> str:
        return f"{value}+{'null' if row is None else row}"

    builder.stream("in").left_join(rows, joined, grace=20, name="j").to("out")
    counts = rows.filter(lambda key, value: len(value) > 2).group_by(lambda key, value: (value, value)).count()
    counts.map_values(str).to_stream().to("counts", value=STRING)
    return builder.build()


@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
def test_outputs_and_changelogs_are_those_of_kafka_streams(persistent: bool) -> None:
    recorded = json.loads(RECORDED.read_text())
    described = topology(persistent=persistent)
    assert lines_of(described.describe()) == lines_of(recorded["describe"])
    with TopologyTestDriver(described, {"statestore.cache.max.bytes": 0}) as driver:
        inputs = {name: driver.input_topic(name, key=STRING, value=STRING) for name in ("rows", "in")}
        outputs = {name: driver.output_topic(name, key=STRING, value=STRING) for name in ("out", "counts")}
        for number, step in enumerate(recorded["records"]):
            topic, key, value, at = step["in"]
            inputs[topic].send(key, value, timestamp_ms=at)
            found = [
                [name, record.key, record.value, record.timestamp]
                for name, output in outputs.items()
                for record in output.read_all()
            ]
            assert (number, found) == (number, step["out"])
        assert changelog(driver, "j-Buffer") == [(key, value) for key, value in recorded["changelogs"]["j-Buffer"]]
        rows = changelog(driver, "rows-store")
        assert rows == [(key, value) for key, value, _ in recorded["changelogs"]["rows-store"]]


def lines_of(text: str) -> list[list[str]]:
    """Return the lines with sorted words: names of stores have no order."""
    return [sorted(re.split(r"[\s,()\[\]]+", line)) for line in text.strip().splitlines()]


def changelog(driver: TopologyTestDriver, store: str) -> list[tuple[str, str | None]]:
    written = written_by(driver)
    (logged,) = (written[partition] for partition in written if partition.topic.endswith(f"{store}-changelog"))
    return [(record.key().hex(), None if record.value() is None else record.value().hex()) for record in logged]


class Buffer:
    """A buffer, and methods that add records to it."""

    def __init__(self) -> None:
        self.logged: list[tuple[bytes, bytes | None, int]] = []
        self.context = RecordContext()
        self.context.topic, self.context.partition = "in", 0
        self.store: JoinBuffer[str, str] = JoinBuffer(
            "b",
            MemoryBytes(),
            StoreCodec("b-changelog", STRING, STRING),
            self.context,
            persistent=False,
            log=lambda key, value, timestamp_ms, headers=None: self.logged.append((key, value, timestamp_ms)),
        )

    def put(self, key: str, value: str, at: int) -> None:
        self.context.timestamp = at
        self.store.put(key, value)

    def take(self, until: int) -> list[tuple[str, str, int]]:
        return [(due.key, due.new, due.timestamp) for due in self.store.take_until(until)]


def test_restored_buffer_has_what_still_waits_and_goes_on() -> None:
    buffer, restored = Buffer(), Buffer()
    for key, value, at in [("a", "1", 10), ("b", "2", 30), ("a", "3", 30), ("a", "4", 30)]:
        buffer.put(key, value, at)
    assert buffer.take(20) == [("a", "1", 10)]
    assert restored.store.restore(buffer.logged) == 5
    assert restored.store.observed_ms == 30
    restored.put("a", "5", 30)  # would get the number of a waiting record if that were not checked
    restored.put("a", "6", 30)
    assert sorted(restored.take(30)) == [("a", value, 30) for value in "3456"] + [("b", "2", 30)]
    assert restored.take(100) == []
    assert restored.store.approximate_num_entries() == 0


def test_restored_record_has_its_headers() -> None:
    buffer, restored = Buffer(), Buffer()
    buffer.context.headers = (("h", None), ("h", b"2"))
    buffer.put("a", "1", 10)
    restored.store.restore(buffer.logged)
    assert [tuple(due.headers) for due in restored.store.take_until(10)] == [(("h", None), ("h", b"2"))]


def test_grace_is_refused_for_a_table_that_cannot_be_asked_so_far_back() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    stream = builder.stream("in")
    plain, short = builder.table("plain"), builder.table("short", materialized=Materialized("rows", history=10))
    with pytest.raises(TopologyError, match="its table must have a history"):
        stream.join(plain, lambda value, row: value, grace=5)
    with pytest.raises(TopologyError, match="20 ms, but the history of its table is only 10 ms"):
        stream.join(short, lambda value, row: value, grace=20)


def test_record_without_a_key_does_not_wait_in_a_left_join() -> None:
    with TopologyTestDriver(topology(persistent=False)) as driver:
        driver.input_topic("in", key=STRING, value=STRING).send(None, "v", timestamp_ms=5)
        assert driver.output_topic("out", key=STRING, value=STRING).read_pairs() == [(None, "v+null")]


def test_names_of_topics_in_metadata_include_the_buffer() -> None:
    names: set[Any] = set(topology(persistent=False).metadata("app").subtopologies[0].changelogs)
    assert names == {"app-rows-store-changelog", "app-j-Buffer-changelog"}


def test_numbers_of_waiting_records_begin_anew_after_the_largest() -> None:
    logged: list[bytes] = []
    context, codec = RecordContext(), StoreCodec("t", BYTES, BYTES)
    buffer = JoinBuffer("b", MemoryBytes(), codec, context, persistent=False, log=lambda at, *_: logged.append(at))
    context.timestamp, buffer._number = 5, 2**31 - 2  # two billion records are too many for a test
    for value in (b"1", b"2"):
        buffer.put(b"k", value)
    assert [at[-4:] for at in logged] == [b"\x7f\xff\xff\xff", bytes(4)]
