"""A warm start when something goes wrong, and when a Java application takes over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from streams_py import StreamsBuilder, serdes
from streams_py.spark.history import warm_start
from streams_py.testing import TopologyTestDriver
from streams_py.testing.broker.jars import kafka_jars
from tests.support.broker.java_programs import STATE_WORKER, JavaPrograms, java_programs_or_skip
from tests.support.broker.kit import Instance
from tests.support.broker.state_programs import PROGRAMS, Input, portions
from tests.support.spark.cluster import Cluster
from tests.support.spark.source import read
from tests.support.spark.warm_start import App, committed_text, state_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]


@pytest.mark.weekly
def test_log_that_ends_with_an_aborted_transaction_is_read_to_its_end(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.produce(20)
    producer = Producer({"bootstrap.servers": app.cluster.bootstrap, "transactional.id": f"{app.id}-lines"})
    producer.init_transactions(60)
    for text, commits in (("committed same", True), ("aborted same", False)):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(app.lines, text, partition=partition, timestamp=1_700_000_001_000)
        producer.flush(60)
        producer.commit_transaction(60) if commits else producer.abort_transaction(60)
    app.counted.update("committed same".split() * 2)
    once = warm_start._write  # the step that Spark may repeat

    def write_twice(rows: Any, options: Any) -> None:  # as a Spark task does that is repeated
        once(rows, options)
        once(rows, options)

    monkeypatch.setattr(warm_start, "_write", write_twice)  # see above
    assert app.plan().exit_code == 0
    app.ok("run", "--commit")
    # 10 lines, a line with its marker, an aborted one with its marker
    assert {committed_text(app)[app.lines, partition][0] for partition in (0, 1)} == {14}
    with app.live() as streams:
        until(lambda: state_of(streams) == dict(app.counted), f"counts {dict(app.counted)}")


@pytest.mark.weekly
def test_old_local_state_is_warned_of_and_not_taken_for_the_new_one(app: App) -> None:
    app.produce(40)
    with app.live() as streams:
        until(lambda: state_of(streams) == dict(app.counted), "counts")
        streams.close(leave_group=True)
    app.produce(10, first=40)
    planned = app.plan("--replace")
    assert planned.exit_code == 0, planned.output
    assert f"streams-py reset {app.id} --state-dir" in planned.output
    app.ok("run", "--commit")
    new = dict(app.counted)
    app.state_dir = app.state_dir.with_name("wiped")
    with app.live() as streams:
        until(lambda: state_of(streams) == new, "the folded state")
        streams.close(leave_group=True)
    app.state_dir = app.state_dir.with_name("state")
    with app.live() as streams:  # its position lies behind the new changelog's end, but it is of a topic that is gone
        until(lambda: state_of(streams) == new, "the folded state")


@pytest.mark.weekly
def test_abort_clears_up_after_an_application_that_was_started_too_early(app: App) -> None:
    app.produce(20)
    app.plan()
    app.ok("run")
    app.ok("verify")
    twice = {word: 2 * count for word, count in app.counted.items()}
    with app.live() as streams:
        until(lambda: state_of(streams) == twice, "it has counted everything on top of what is there")
        for step in ("commit", "abort"):
            assert app.do(step).exit_code == 1
        streams.close(leave_group=True)
    assert app.do("commit").exit_code == 1
    assert f"streams-py reset {app.id} --state-dir" in app.ok("abort")
    topics = AdminClient({"bootstrap.servers": app.cluster.bootstrap}).list_topics(timeout=30).topics
    assert not [topic for topic in topics if topic.startswith(f"{app.id}-")], "it would be read again"
    assert app.plan().exit_code == 0, "nothing of both is left"
    app.state_dir = app.state_dir.with_name("wiped")
    with app.live() as streams:
        until(lambda: state_of(streams) == dict(app.counted), "it begins at the beginning")


_JAVA = """
from streams_py import State, StreamsBuilder, serdes
from tests.support.broker.java_programs import STATE_WORKER, JavaPrograms
from tests.support.broker.state_programs import PROGRAMS


def topology():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    PROGRAMS[{program!r}](builder, {left!r}, {right!r}).to({out!r}, key=serdes.STRING, value=serdes.STRING)
    return builder.build()
"""


@pytest.fixture(scope="module")
def java_programs(tmp_path_factory: pytest.TempPathFactory) -> JavaPrograms:
    return java_programs_or_skip(tmp_path_factory.mktemp("java-programs"))


@pytest.fixture
def jvm(java_programs: JavaPrograms, tmp_path: Path) -> Iterator[Instance]:
    instance = Instance("java", {}, tmp_path / "java.log", java_programs.command(STATE_WORKER, kafka_jars()))
    yield instance
    instance.close()


@pytest.mark.weekly
@pytest.mark.parametrize("program", ["timestamped", "window", "session", "versioned"])
def test_java_application_goes_on_from_the_state_that_was_folded(
    cluster: Cluster, spark: SparkSession, jvm: Instance, tmp_path: Path, program: str
) -> None:
    app = App(cluster, tmp_path)
    left, right, out = (cluster.topic(1) for _ in range(3))
    file = tmp_path / "java_app.py"
    file.write_text(_JAVA.format(program=program, left=left, right=right, out=out))
    app.topology = f"{file}:topology"
    base_ms = int(time.time()) * 1_000

    def feed(records: list[Input]) -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for one in records:
            producer.produce((left, right)[one.side], one.value, one.key, 0, timestamp=base_ms + one.at)
        assert producer.flush(60) == 0

    def expected(records: list[Input]) -> list[tuple[Any, ...]]:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        PROGRAMS[program](builder, left, right).to(out, key=serdes.STRING, value=serdes.STRING)
        with TopologyTestDriver(builder.build(), {"statestore.cache.max.bytes": 0}) as driver:
            for one in records:
                driver.input_topic((left, right)[one.side], key=serdes.STRING, value=serdes.STRING).send(
                    one.key, one.value, timestamp_ms=base_ms + one.at
                )
            found = driver.output_topic(out, key=serdes.STRING, value=serdes.STRING).read_all()
        return [(record.key, record.value, record.timestamp) for record in found]

    def written() -> list[tuple[Any, ...]]:
        rows = read({"kafka.bootstrap.servers": cluster.bootstrap, "topics": out})
        return [
            (row["key"].decode(), None if row["value"] is None else row["value"].decode(), row["timestamp_ms"])
            for row in rows
        ]

    history, *later = portions(program)
    more = [record for portion in later for record in portion]
    feed(history)
    assert app.plan().exit_code == 0
    app.ok("run", "--commit")
    feed(more)
    config = {
        "application.id": app.id,
        "bootstrap.servers": cluster.bootstrap,
        "state.dir": str(tmp_path / "java-state"),
        "auto.offset.reset": "earliest",
        "statestore.cache.max.bytes": 0,
        "commit.interval.ms": 100,
        "default.key.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
        "default.value.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
    }
    wanted = expected(history + more)[len(expected(history)) :]
    jvm.ask("start", program=program, config=config, topics=[left, right, out])
    until(lambda: len(written()) >= len(wanted), f"{len(wanted)} records by Java")
    assert jvm.ask("stop", config=config) is None
    assert written() == wanted
