"""From a live group on a real broker to the report: the tables show that instances join and leave."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from streams_py import KafkaStreams, StreamsBuilder, Topology, serdes
from streams_py.events.codec import decode_event
from streams_py.events.model import Event, TaskEvent
from streams_py.runtime.thread.states import State
from tests.support.spark.cluster import Cluster
from tests.support.spark.source import produce, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

PATIENCE_S = 120.0


def counting(source: str, sink: str) -> Topology:
    builder = StreamsBuilder()
    stream = (
        builder.stream(source, key=serdes.BYTES, value=serdes.BYTES).group_by_key().count(store="counts").to_stream()
    )
    stream.to(sink, key=serdes.BYTES, value=serdes.INT64)
    return builder.build()


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(0.1)


class Group:
    """Instances of one application, each with its own state directory."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.source, self.sink = cluster.topic(4), cluster.topic(4)
        self.name = f"live-{self.source}"

    def instance(self, name: str, **changes: Any) -> KafkaStreams:
        config = {
            "application.id": self.name,
            "bootstrap.servers": self.cluster.bootstrap,
            "state.dir": str(self.folder / name),
            "client.tag.zone": name,
            "commit.interval.ms": 200,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "assignment.events.level": "tasks",
            "assignment.events.sample.interval.ms": 1_000,
        } | {key.replace("_", "."): value for key, value in changes.items()}
        return KafkaStreams(counting(self.source, self.sink), config)

    def tasks_of(self, streams: KafkaStreams) -> int:
        return sum(len(thread.active_tasks) for thread in streams.metadata_for_local_threads())

    def feed(self) -> None:
        """50 records in each partition; no key is in two of them."""
        numbers = [(partition, n) for partition in range(4) for n in range(50)]
        records = [(partition, b"p%d-k%d" % (partition, n), b"v") for partition, n in numbers]
        produce(self.cluster, self.source, *records)


def play(group: Group) -> None:
    """A second instance joins and takes over half of the tasks. Then the first hands over the rest and leaves."""
    first, second = group.instance("one"), group.instance("two")
    try:
        first.start()
        assert first.wait_until(State.RUNNING, PATIENCE_S)
        group.feed()
        wait_for("the first records are counted", lambda: total(group) >= 200)
        second.start()
        wait_for("the second instance has tasks", lambda: group.tasks_of(second) == 2 and group.tasks_of(first) == 2)
        assert second.wait_until(State.RUNNING, PATIENCE_S)
        group.feed()
        wait_for("both count", lambda: total(group) >= 400)
        first.close(PATIENCE_S, leave_group=True)
        wait_for("the second instance has all tasks", lambda: group.tasks_of(second) == 4)
        group.feed()
        wait_for("everything is counted", lambda: total(group) >= 600)
    finally:
        first.close(PATIENCE_S)
        second.close(PATIENCE_S)


def total(group: Group) -> int:
    """Records counted so far: the last count of each key in each partition, summed up."""
    rows = read({"kafka.bootstrap.servers": group.cluster.bootstrap, "topics": group.sink})
    last = {(row["partition"], row["key"]): int.from_bytes(row["value"], "big") for row in rows}
    return sum(last.values())


@pytest.mark.smoke
def test_live_group_becomes_tables_and_a_report(
    spark: SparkSession, cluster: Cluster, options: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    from streams_py.spark.telemetry import events_topic, start_telemetry
    from streams_py.telemetry.report.page import report_page
    from streams_py.telemetry.report.tables import read_tables

    group = Group(cluster, tmp_path)
    play(group)
    topic = events_topic(group.name)
    check_topic(cluster, topic)
    check_events(read(options(topics=topic)))
    query = start_telemetry(spark, group.name, str(tmp_path / "tables"), options(), once=True)
    assert query.awaitTermination(600)
    tables = read_tables(tmp_path / "tables")
    ok = sorted((row for row in tables["rebalance"] if row["outcome"] == "ok"), key=lambda row: row["at"])
    assert ok[0]["trigger"] == ["first"]
    triggers = {trigger for row in ok for trigger in row["trigger"]}
    assert {"member_joined", "revocation_done"} <= triggers
    moved = [row for row in tables["move"] if row["kind"].startswith("move_")]
    assert len(moved) >= 2
    assert {row["kind"] for row in tables["gap"]} == {"moved", "untouched"}
    assert all(row["gap_ms"] >= 0 for row in tables["gap"] if row["kind"] == "untouched")
    active = [row for row in tables["placement"] if row["role"] == "active"]
    assert sorted(row["task"] for row in active) == ["0_0", "0_1", "0_2", "0_3"]
    assert len({row["client"] for row in active}) == 1
    page = report_page(tables)
    assert group.name in page
    assert "member_joined" in page
    check_backtest(spark, tmp_path)


def check_backtest(spark: SparkSession, folder: Path) -> None:
    """Backtest of the group's tables: the recorded assignor gives the same decisions again.

    All outside events are replayed for every candidate: the join, the request to leave, and the leave.
    """
    from streams_py.backtest.candidates import parse_candidate
    from streams_py.backtest.kernel import EVENTS, Orders
    from streams_py.backtest.summary import Key
    from streams_py.backtest.verdict import scenarios_of
    from streams_py.spark.backtest import evaluate_on_spark

    orders = Orders([parse_candidate("recorded"), parse_candidate("sticky")])
    summary = evaluate_on_spark(spark, orders, str(folder / "tables"), str(folder / "backtest"))
    assert summary.reproduced == (summary.situations, summary.situations)
    assert scenarios_of(summary) == [EVENTS]
    recorded, sticky = (summary.rows[Key(EVENTS, name)] for name in ("recorded", "sticky"))
    # The request to leave is a separate event, unless the member has left before the next rebalance.
    assert recorded == sticky
    assert recorded in (2, 3)


def check_topic(cluster: Cluster, topic: str) -> None:
    """The application has created the topic with the right settings."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert len(admin.list_topics(timeout=30).topics[topic].partitions) == 1
    resource = ConfigResource(ResourceType.TOPIC, topic)
    config = admin.describe_configs([resource])[resource].result(30)
    assert config["cleanup.policy"].value == "delete"
    assert config["message.timestamp.type"].value == "LogAppendTime"
    assert config["retention.ms"].value == "2592000000"


def check_events(rows: list[dict[str, Any]]) -> None:
    """Each process numbers its events without gaps, and every rebalance is complete."""
    events = []
    for row in rows:
        event = decode_event(row["value"])
        assert isinstance(event, Event)
        assert event.envelope.dropped == 0
        assert [header["key"] for header in row["headers"]] == ["v", "kind"]
        events.append(event)
    for run in {event.envelope.run for event in events}:
        numbers = sorted({event.envelope.seq for event in events if event.envelope.run == run})
        assert numbers == list(range(len(numbers)))
    seen = {event.body.event for event in events if isinstance(event.body, TaskEvent)}
    assert {"assigned", "created", "running", "first_record", "last_record", "revoked", "suspended", "restored"} <= seen
