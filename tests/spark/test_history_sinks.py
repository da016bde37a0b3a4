"""Outputs of a history are written to their topics exactly once. The kernel is called as Spark calls it."""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from pyspark import TaskContext

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk import once_writer
from streams_py.adapters.confluent.bulk.once_writer import OnceWriter
from streams_py.errors import StreamsError
from streams_py.spark.columns import HEADERS
from streams_py.spark.history.sinks import announce_writers, check_writers, once_kernel
from streams_py.spark.kafka.options import writer_options
from streams_py.spark.version import library_version
from tests.support.spark.cluster import Cluster
from tests.support.spark.source import read
from tests.support.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

Options = Callable[..., dict[str, str]]
SCHEMA: Any = pa.schema(
    [("source", pa.int64()), ("topic", pa.string()), ("partition", pa.int32()), ("value", pa.binary()),
     ("key", pa.binary()), ("timestamp_ms", pa.int64()), ("headers", HEADERS)]
)  # fmt: skip
_numbers = itertools.count()


def row(source: int, topic: str, partition: int, value: str, timestamp_ms: int = 5) -> dict[str, Any]:
    headers = [{"key": "h", "value": b"1"}]
    return {"source": source, "topic": topic, "partition": partition, "value": value.encode(), "key": b"k",
            "timestamp_ms": timestamp_ms, "headers": headers}  # fmt: skip


def batches(rows: list[dict[str, Any]], size: int = 4) -> Iterator[Any]:
    for at in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[at : at + size], schema=SCHEMA)


def broken_off(rows: list[dict[str, Any]]) -> Iterator[Any]:
    yield from batches(rows)
    raise RuntimeError("the machine is gone")


class Writing:
    """The kernel with transactions of three records, and the records that readers see. ``place``: an existing topic."""

    def __init__(self, options: Options, place: str) -> None:
        self.options, self.place = options, place
        id = f"{os.getpid()}-{next(_numbers)}"
        self.names = {source: f"sinks-{id}-0_{source}" for source in range(3)}

        announce_writers(options(), [*self.names.values()], place)

    def write(self, rows: Iterator[Any]) -> list[tuple[int, int, int]]:
        kernel = once_kernel(writer_options(self.options()), self.names, self.place, library_version(), 3)
        return [tuple(found.values()) for batch in kernel(rows) for found in batch.to_pylist()]

    def await_seen(self, topic: str, wanted: list[tuple[int, bytes]]) -> None:
        """The end of a transaction reaches the partitions a moment after its coordinator has answered."""
        found: list[tuple[int, bytes]] = []

        def equal() -> bool:
            found[:] = [(row["partition"], row["value"]) for row in read(self.options(topics=topic))]
            return len(found) >= len(wanted)

        until(equal, f"{wanted} in {topic}")
        assert found == wanted


def test_what_was_committed_before_a_task_broke_off_is_not_written_again(cluster: Cluster, options: Options) -> None:
    topic, other = cluster.topic(2), cluster.topic(1)
    writing = Writing(options, topic)
    first = [row(0, topic, at % 2, f"a{at}") for at in range(8)] + [row(0, other, 0, "b")]
    second = [row(1, topic, 0, f"c{at}") for at in range(4)]
    with pytest.raises(RuntimeError, match="gone"):
        writing.write(broken_off(first[:5]))
    writing.await_seen(topic, [(0, b"a0"), (0, b"a2"), (1, b"a1")])
    assert writing.write(batches(first + second)) == [(0, 6, 3), (1, 4, 0)]
    wanted = [(at % 2, f"a{at}".encode()) for at in range(8)] + [(0, f"c{at}".encode()) for at in range(4)]
    writing.await_seen(topic, sorted(wanted))
    writing.await_seen(other, [(0, b"b")])
    assert writing.write(batches(first + second)) == [(0, 0, 9), (1, 0, 4)]
    writing.await_seen(topic, sorted(wanted))
    found = read(options(topics=other))[0]
    assert (found["key"], found["timestamp_ms"], found["headers"]) == (b"k", 5, [{"key": "h", "value": b"1"}])


REFUSALS: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "no key": ({"cleanup_policy": "compact"}, {"key": None}, "no key"),
    "too far ahead": ({}, {"timestamp_ms": 9_000_000_000_000}, "key of 1 bytes"),
    "too large": ({"max_message_bytes": "3000"}, {"value": os.urandom(5_000)}, "key of 1 bytes"),
    "headers too large": (
        {"max_message_bytes": "3000"},
        {"headers": [{"key": "h", "value": os.urandom(5_000)}]},
        "key of 1 bytes",
    ),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_refused_record_is_named_by_its_number_and_its_transaction_is_not_committed(
    cluster: Cluster, options: Options, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    config, change, shown = REFUSALS[kind]
    topic = cluster.topic(1, message_timestamp_before_max_ms=str(2**62), **config)
    writing = Writing(options, topic)
    good = [row(0, topic, 0, f"a{at}") for at in range(12)]
    bad = [*good[:7], good[7] | change, *good[8:]]
    with pytest.raises(StreamsError) as refused:
        writing.write(batches(bad))
    name = writing.names[0]
    start = rf"^record 8 of {name} \({shown}\): a record for {topic}-0 was not written: Broker: "
    assert re.search(start, str(refused.value)), refused.value
    assert "last commit" not in caplog.text + str(refused.value)
    assert writing.write(batches(good)) == [(0, 6, 6)], "the transactions before are committed, this one is not"
    writing.await_seen(topic, [(0, row["value"]) for row in good])


def test_refused_record_is_named_when_its_transaction_has_several_batches(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1, message_timestamp_before_max_ms=str(2**62))
    name = f"several-{os.getpid()}"
    announce_writers(options(), [name], topic)
    kernel = once_kernel(
        writer_options(options(**{"kafka.batch.num.messages": "100", "kafka.linger.ms": "0"})),
        {0: name},
        topic,
        library_version(),
    )
    rows = [row(0, topic, 0, f"a{at}", 9_000_000_000_000 if at in (3_456, 4_000) else 5) for at in range(5_000)]
    with pytest.raises(StreamsError, match=rf"^record 3,457 of {name} \(key of 1 bytes\): .*Invalid timestamp"):
        list(kernel(batches(rows, 1_000)))
    assert read(options(topics=topic)) == []


def test_earlier_attempt_that_wrote_something_else_is_noticed(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    writing = Writing(options, topic)
    rows = [row(0, topic, 0, f"a{at}") for at in range(6)]
    assert writing.write(batches(rows)) == [(0, 6, 0)]
    others = [row(0, topic, 0, f"b{at}") for at in range(7)]
    assert writing.write(batches(others)) == [(0, 1, 6)], "values may be made by chance"
    for changed in (rows[:5], [row(0, topic, 0, "a0", 4), *others[1:]], [{**others[0], "key": b"l"}, *others[1:]]):
        with pytest.raises(
            StreamsError, match=r"the 7 records that an earlier attempt has written as sinks-.* are not"
        ):
            writing.write(batches(changed))
    writing.await_seen(topic, [(0, row["value"]) for row in (*rows, others[6])])


def test_earlier_attempt_is_found_also_where_its_first_topic_has_nothing_any_more(
    cluster: Cluster, options: Options
) -> None:
    topic, other = sorted((cluster.topic(1), cluster.topic(1)))
    writing = Writing(options, topic)
    rows = [row(0, topic, 0, "are deleted now"), *(row(0, other, 0, f"a{at}") for at in range(3))]
    assert writing.write(batches(rows)) == [(0, 4, 0)]
    with pytest.raises(StreamsError, match="the 4 records that an earlier attempt has written"):
        writing.write(batches(rows[1:]))
    writing.await_seen(other, [(0, row["value"]) for row in rows[1:]])


def test_two_attempts_at_once_write_every_record_once(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(2)
    writing = Writing(options, topic)
    rows = [row(source, topic, at % 2, f"{source}-{at}") for source in range(3) for at in range(40)]
    together = threading.Barrier(2)

    def attempt(_: int) -> StreamsError | None:
        together.wait(30)
        try:
            writing.write(batches(rows))
        except StreamsError as error:  # the other one has taken its place
            return error
        return None

    with ThreadPoolExecutor(2) as both:
        failures = list(both.map(attempt, range(2)))
    assert None in failures, failures
    writing.await_seen(topic, [(at, row["value"]) for at in range(2) for row in rows if row["partition"] == at])


def test_an_attempt_that_was_replaced_writes_nothing_more(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    kafka = writer_options(options()).resolved()
    name = f"zombie-{os.getpid()}-{next(_numbers)}"
    old, new = (OnceWriter(kafka, name, TopicPartition(topic, 0), timeout_ms=30_000) for _ in range(2))
    try:
        old.announce()
        assert old.begin() == (0, "")
        old.write(topic, 0, b"old", None, 1, None)
        assert new.begin() == (0, "")
        new.write(topic, 0, b"new", None, 1, None)
        new.commit(1)
        with pytest.raises(StreamsError):
            old.commit(1)
    finally:
        old.close()
        new.close()
    Writing(options, topic).await_seen(topic, [(0, b"new")])


def test_writer_that_brokers_have_forgotten_does_not_write_everything_again(
    cluster: Cluster, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.topic(1)
    writing = Writing(options, topic)
    names = [*writing.names.values()]
    rows = [row(0, topic, 0, f"a{at}") for at in range(4)]
    assert writing.write(batches(rows)) == [(0, 4, 0)]
    announce_writers(options(), names, topic)  # once more does no harm
    check_writers(options(), names, topic)
    assert writing.write(batches(rows)) == [(0, 0, 4)]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for forgotten in admin.delete_consumer_groups(names[:1]).values():
        forgotten.result(30)
    monkeypatch.setattr(once_writer, "_PATIENCE_S", 0.5)
    said = rf"brokers have no committed position of {names[0]}: .*offsets\.retention\.minutes.*new plan"
    with pytest.raises(StreamsError, match=said):
        check_writers(options(), names, topic)
    with pytest.raises(StreamsError, match=said):
        writing.write(batches(rows))
    assert writing.write(batches([row(1, topic, 0, "b")])) == [(1, 1, 0)], "other tasks continue"
    writing.await_seen(topic, [(0, row["value"]) for row in rows] + [(0, b"b")])


def test_attempt_after_one_that_failed_looks_twice_how_far_that_one_was(
    cluster: Cluster, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.topic(1)
    writing, begin, seen = Writing(options, topic), OnceWriter.begin, list[bool]()

    def watched(writer: OnceWriter, *, is_repeated: bool) -> tuple[int, str]:
        seen.append(is_repeated)
        return begin(writer, is_repeated=is_repeated)

    monkeypatch.setattr(once_writer, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(OnceWriter, "begin", watched)
    for attempt in range(2):
        context = SimpleNamespace(attemptNumber=lambda attempt=attempt: attempt)
        monkeypatch.setattr(TaskContext, "get", lambda context=context: context)
        assert writing.write(batches([row(0, topic, 0, "a")])) == [(0, 1 - attempt, attempt)]
    assert seen == [False, True]


def test_what_a_writer_says_of_itself_comes_back_as_it_was(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    name = f"said-{os.getpid()}-{next(_numbers)}"
    writer = OnceWriter(writer_options(options()).resolved(), name, TopicPartition(topic, 0), timeout_ms=30_000)
    try:
        writer.announce()
        for length in (0, 1, 8, 23, 24, 25, 40, 56):
            writer.commit(length, "x" * length)
            assert writer.begin() == (length, "x" * length)
    finally:
        writer.close()


def test_timestamp_0_cannot_be_written_in_a_transaction(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    with pytest.raises(StreamsError, match=f"{topic}-0 has the timestamp 0.*timestamp_extractor"):
        Writing(options, topic).write(batches([row(0, topic, 0, "x", 0)]))


def test_time_of_writing_is_what_the_producer_says(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    writing = Writing(options, topic)
    writing.write(batches([row(0, topic, 0, "x", -1)]))
    writing.await_seen(topic, [(0, b"x")])
    assert read(options(topics=topic))[0]["timestamp_ms"] > 1_600_000_000_000
