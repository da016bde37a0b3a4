"""State changes hands between Java and Python, one test per kind of store: each continues from the other's changelogs.

Java processes a portion and ends, Python takes over with an empty state directory, then Java again with an empty one.
What came out must be what one member alone would have made of all portions: our own topology, in the test driver, which
equals Kafka Streams' (``tests/vectors/topology``).

| what is in the changelog | programs of ``state_programs.py``: on disk; in memory |
|---|---|
| key-value, plain | ``plain``; ``plain in memory``, ``lru`` |
| key-value, timestamped: tables and aggregates | ``timestamped``, ``grouped table``; ``table in memory`` |
| the same, written by a processor: other timestamps, deletions | ``timestamped by processor`` |
| key-value, versioned | ``versioned`` |
| window, plain | ``plain window`` |
| window, plain, several values per key and time | ``duplicates`` |
| window, timestamped | ``window``, ``sliding``; ``window in memory``, ``sliding in memory`` |
| the same, written by a processor | ``timestamped window`` (in memory) |
| windows of a stream-stream join, with the records' headers | ``inner join`` |
| the same and what has no partner yet, outer | ``outer join``; ``join in memory`` |
| sessions | ``session``, ``plain session``; ``session in memory`` |
| buffer of suppress | ``suppress``, ``time limit`` |
| buffer of a stream-table join with grace | ``join buffer`` (not back to Java, which cannot read what it wrote) |
| subscriptions of a foreign-key join | ``foreign key`` |
| a source topic: optimised table, read-only store, global table | ``source changelog``, ``read-only``, ``global`` |
| none, but the offsets' metadata: how far final results were sent | ``final``, ``final session`` |
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from streams_protocol.types import TopicPartition
from streams_py import KafkaStreams, StreamsBuilder, Topology, serdes
from streams_py.testing import TopologyTestDriver
from tests.support.broker.kit import Application, Instance
from tests.support.broker.state_programs import ONE_SIDED, PROGRAMS, Input, add_read_only, portions

# Outputs of these come in an order that depends on the clock, or on what was read from where first.
BY_CLOCK = {"outer join", "inner join", "join in memory", "final", "final session"}
LAST_ONLY = {"foreign key"}
QUICK = {"window", "versioned"}
NOT_BACK = {"join buffer"}


class Output(NamedTuple):
    """A record that came out."""

    key: str | None
    value: str | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


class Run:
    """One program, its topics, and who has it."""

    def __init__(self, application: Application, program: str) -> None:
        self._app = application
        self._program = program
        self.topics = [application.input, f"{application.input}-right", application.output]
        application.broker.create_topic(self.topics[1], 1)
        self._config = {
            **application.config,
            "statestore.cache.max.bytes": 0,
            "commit.interval.ms": 100,
            "default.key.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
            "default.value.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
            "topology.optimization": "all" if program == "source changelog" else "none",
        }
        self._members = 0
        self._base_ms = int(time.time()) * 1000  # brokers delete changelog records of 1970

    def config(self) -> dict[str, Any]:
        """The settings of a member whose state directory is empty."""
        self._members += 1
        return {**self._config, "state.dir": str(self._app.folder / f"state-{self._members}")}

    def topology(self) -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        PROGRAMS[self._program](builder, *self.topics[:2]).to(self.topics[2], key=serdes.STRING, value=serdes.STRING)
        topology = builder.build({"topology.optimization": self._config["topology.optimization"]})
        if self._program == "read-only":
            add_read_only(topology, self.topics[1])
        return topology

    def feed(self, portion: list[Input]) -> None:
        producer = self._app.clients.producer("feeder")
        for side, key, value, at in portion:
            headers = [("of", value.encode())]
            producer.produce(self.topics[side], value.encode(), key.encode(), 0, None, self._base_ms + at, headers)
        assert producer.flush(60_000) == 0
        producer.check()
        producer.close()

    def await_caught_up(self) -> None:
        """Wait until all input and internal records are processed and committed."""
        inputs = self.topics[:1] if self._program == "global" else self.topics[:2]
        one_sided = self._program in ONE_SIDED

        def caught_up() -> bool:
            between = [
                name
                for name in self._app.admin.describe_topics(None)
                if name.startswith(f"{self._app.id}-") and not name.endswith("-changelog")
            ]
            topics = inputs[:1] if one_sided else inputs
            every = [TopicPartition(topic, 0) for topic in (*topics, *between)]
            committed, ends = (
                self._app.admin.committed_offsets(self._app.id, every),
                self._app.admin.list_offsets(every),
            )
            return all((committed[partition] or 0) == ends[partition] for partition in every)

        self._app.until(caught_up, f"{self._program} to be processed")

    def by_java(self, jvm: Instance) -> None:
        config = {
            **self.config(),
            "internal.leave.group.on.close": True,
            "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": 0,
            "__emit.interval.ms.kstreams.windowed.aggregation__": 0,
        }
        jvm.ask("start", program=self._program, config=config, topics=self.topics)
        try:
            self.await_caught_up()
        finally:
            assert jvm.ask("stop", config=config) is None

    def by_python(self) -> None:
        config = {key: value for key, value in self.config().items() if not key.startswith("default.")}
        streams = KafkaStreams(self.topology(), config)
        streams.start()
        try:
            self.await_caught_up()
        finally:
            streams.close(leave_group=True)

    def outputs(self) -> list[Output]:
        """All that came out."""
        return [
            Output(
                (r.key() or b"").decode(),
                None if (v := r.value()) is None else v.decode(),
                r.timestamp()[1],
                tuple(r.headers() or ()),
            )
            for r in self._app.read(partitions=1)
        ]

    def expected(self, fed: list[list[Input]]) -> list[Output]:
        """What one member makes of it."""
        with TopologyTestDriver(self.topology(), {"statestore.cache.max.bytes": 0}) as driver:
            for side, key, value, at in (record for portion in fed for record in portion):
                topic = driver.input_topic(self.topics[side], key=serdes.STRING, value=serdes.STRING)
                topic.send(key, value, timestamp_ms=self._base_ms + at, headers=[("of", value.encode())])
            found = driver.output_topic(self.topics[2], key=serdes.STRING, value=serdes.STRING).read_all()
        return [Output(record.key, record.value, record.timestamp, tuple(record.headers)) for record in found]


@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=() if name in QUICK else pytest.mark.weekly) for name in PROGRAMS]
)
def test_state_of_each_kind_goes_from_java_to_python_and_back(
    application: Callable[..., Application], jvm: Instance, program: str
) -> None:
    run = Run(application(partitions=1, app="state"), program)
    first, second, *rest = portions(program)
    third = [record for portion in rest for record in portion]
    run.feed(first)
    run.by_java(jvm)
    after_java = len(run.outputs())
    run.feed(second)
    run.by_python()
    assert len(run.outputs()) >= after_java
    run.feed(third)
    if program in NOT_BACK:
        run.by_python()
    else:
        run.by_java(jvm)
    found, expected = run.outputs(), run.expected([first, second, third])
    if program in LAST_ONLY:
        assert {output.key: output.value for output in found} == {output.key: output.value for output in expected}
    elif program in BY_CLOCK:  # and so is the record that sets an unmatched one off, whose headers it gets
        assert sorted(output[:3] for output in found) == sorted(output[:3] for output in expected)
    else:
        assert found == expected
