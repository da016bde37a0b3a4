"""One topology over several partitions, run by Kafka Streams and by this library on one broker, with the same records.

Three repartition topics (one of a grouped table, one of windowed keys), windows with final results, a join and a table.
The whole output of both is compared: partitions, the order of each key's records, and committed offsets.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition

from streams_protocol.types import TopicPartition
from streams_py import EmitStrategy, KafkaStreams, KStream, StreamsBuilder, serdes
from streams_py.runtime.tasks.record.offset_metadata import decode_offset_metadata
from streams_py.topology.declare.windows import JoinWindows, TimeWindows
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.partitioning import partition_for
from tests.support.broker.kit import Application, Instance
from tests.support.broker.state_programs import join, pair, show

LEFT, RIGHT, BETWEEN = 3, 4, 4
LETTERS = "abcdefgh"

Seen = dict[tuple[int, bytes | None], list[Any]]


def several_partitions(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    """As in StateWorker.java."""
    spread = builder.stream(left).select_key(lambda _, value: value[0]).repartition(name="spread", partitions=BETWEEN)
    windows = JoinWindows.of(10, grace=200)
    pairs = spread.join(builder.stream(right), pair, windows=windows, store="pairs")
    finals = (
        spread.group_by_key()
        .windowed_by(TimeWindows.of(10, grace=200, advance=5), emit=EmitStrategy.ON_WINDOW_CLOSE)
        .reduce(join, materialized=Materialized("finals", retention=60_000))
        .to_stream()
    )
    finals.repartition(key=serdes.time_windowed(serdes.STRING, 10), name="windows", partitions=BETWEEN)
    grouped = (
        spread.to_table(materialized=Materialized("rows"))
        .group_by(lambda key, value: (key + key, value), name="groups")
        .reduce(join, lambda before, _: join(before, "-"), materialized=Materialized("store"))
        .to_stream()
    )
    return pairs.merge(finals.select_key(show)).merge(grouped)


class Run:
    """The application once, by one of the two."""

    def __init__(self, app: Application, base_ms: int) -> None:
        self.app = app
        self.base_ms = base_ms
        self.right = f"{app.input}-right"
        app.broker.create_topic(self.right, RIGHT)
        self.counts = {app.input: LEFT, self.right: RIGHT, self.internal("spread-repartition"): BETWEEN}
        self.counts |= {self.internal(f"{name}-repartition"): BETWEEN for name in ("groups", "windows")}
        self.config: dict[str, Any] = {
            **app.config,
            "state.dir": str(app.folder / "state"),
            "statestore.cache.max.bytes": 0,
            "repartition.purge.interval.ms": 3_600_000,
        }

    def internal(self, name: str) -> str:
        return f"{self.app.id}-{name}"

    def feed(self, rows: Iterable[tuple[str, int]]) -> None:
        """For each a record on the left, where all records of a letter are in one partition, and one on the right."""
        producer = self.app.clients.producer("feeder")
        for value, at in rows:
            letter, headers, time_ms = value[0].encode(), [("of", value.encode())], self.base_ms + at
            partition = LETTERS.index(value[0]) % LEFT
            producer.produce(self.app.input, value.encode(), b"any", partition, None, time_ms, headers)
            partition = partition_for(letter, RIGHT)
            producer.produce(self.right, value.upper().encode(), letter, partition, None, time_ms - 4, headers)
        assert producer.flush(60_000) == 0
        producer.check()
        producer.close()

    def await_caught_up(self) -> None:
        def caught_up() -> bool:
            if not self.counts.keys() <= set(self.app.admin.describe_topics(None)):
                return False
            every = self.partitions()
            committed = self.app.admin.committed_offsets(self.app.id, every)
            return all((committed[at] or 0) == end for at, end in self.app.admin.list_offsets(every).items())

        self.app.until(caught_up, "everything to be processed")

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic, count in self.counts.items() for number in range(count)]

    def seen(self, topic: str, partitions: int) -> Seen:
        """Return the content of a topic: the records of each partition and key in order."""
        found: Seen = defaultdict(list)
        for record in self.app.read(topic, partitions=partitions):
            key = record.key()
            content = (record.value(), record.timestamp()[1], tuple(record.headers() or ()))
            found[record.partition(), key].append(content)
        assert found, topic
        return dict(found)

    def changelog(self, name: str) -> Seen:
        return self.seen(self.internal(f"{name}-changelog"), BETWEEN)

    def committed(self) -> dict[tuple[str, int], Any]:
        """Return offsets with the decoded metadata, without the stream times that only this library commits there."""
        consumer: Any = KafkaConsumer(bootstrap_servers=self.app.broker.bootstrap.split(","), group_id=self.app.id)
        try:
            found = {}
            for topic, number in self.partitions():
                entry = consumer.committed(KafkaPartition(topic, number), metadata=True)
                beside = None if entry is None else decode_offset_metadata(entry.metadata)
                if beside is not None:
                    javas = {name: number for name, number in beside.processors.items() if not name.startswith("~")}
                    beside = replace(beside, processors=javas)
                named = topic.removeprefix(f"{self.app.id}-").replace(self.app.input, "in")
                found[named, number] = None if entry is None else (entry.offset, beside)
            return found
        finally:
            consumer.close()


def test_several_partitions_are_written_and_committed_as_by_kafka_streams(
    application: Callable[..., Application], jvm: Instance
) -> None:
    base_ms = int(time.time()) * 1000
    theirs = Run(application(partitions=LEFT, app="spread"), base_ms)
    ours = Run(application(partitions=LEFT, app="spread"), base_ms)
    records = [(f"{letter}{at}", at + number) for at in range(0, 60, 6) for number, letter in enumerate(LETTERS)]
    ends = [(f"{letter}!", 5_000) for letter in LETTERS]

    throttle = "__emit.interval.ms.kstreams.windowed.aggregation__"
    default = {f"default.{part}.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde" for part in _PARTS}
    config = {**theirs.config, **default, throttle: 0}
    topics = [theirs.app.input, theirs.right, theirs.app.output]
    jvm.ask("start", program="several partitions", config=config, topics=topics)
    try:
        theirs.feed(records)
        theirs.await_caught_up()
        theirs.feed(ends)  # all windows close together, so that the speed of a partition affects no result
        theirs.await_caught_up()
    finally:
        assert jvm.ask("stop", config=config) is None

    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    several_partitions(builder, ours.app.input, ours.right).to(ours.app.output)
    with KafkaStreams(builder.build(), ours.config):
        ours.feed(records)
        ours.await_caught_up()
        time.sleep(1)  # windows that have closed are looked for once a second
        ours.feed(ends)
        ours.await_caught_up()

    for name in ("spread-repartition", "groups-repartition"):
        assert ours.seen(ours.internal(name), BETWEEN) == theirs.seen(theirs.internal(name), BETWEEN), name
    name = "windows-repartition"  # which record closes the windows of a partition, and so gives the headers, is open
    assert ours.seen(ours.internal(name), BETWEEN).keys() == theirs.seen(theirs.internal(name), BETWEEN).keys()
    for name in ("finals", "rows", "store"):
        assert ours.changelog(name) == theirs.changelog(name), name
    for name in ("pairs-this-join-store", "pairs-other-join-store"):
        assert without_sequence(ours.changelog(name)) == without_sequence(theirs.changelog(name)), name
    our_outputs, their_outputs = ours.seen(ours.app.output, LEFT), theirs.seen(theirs.app.output, LEFT)
    assert settled(our_outputs) == settled(their_outputs)
    committed = theirs.committed()
    assert ours.committed() == committed
    assert all(entry is not None for entry in committed.values())
    assert {name for _, beside in committed.values() for name in beside.processors} == {"finals"}


_PARTS = ("key", "value")


def without_sequence(seen: Seen) -> Seen:
    """The last four bytes count the records of all keys of a partition, which come in any order."""
    found: Seen = defaultdict(list)
    for (partition, key), contents in seen.items():
        assert key is not None
        found[partition, key[:-4]] += contents
    return {at: sorted(contents) for at, contents in found.items()}


def settled(seen: Seen) -> Seen:
    """Which side of a pair comes last, and so gives the headers and the order, depends on who reads faster; and the
    record that closes the windows of a partition is the first one of several. Values of a group have an order."""
    return {
        at: contents if len(at[1] or b"") == 2 else sorted(content[:2] for content in contents)
        for at, contents in seen.items()
    }
