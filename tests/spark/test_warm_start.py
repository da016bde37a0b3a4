"""A live application starts with the state that Spark has computed from its history."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from streams_py import State
from streams_py.adapters.confluent.bulk import once_writer
from streams_py.runtime.tasks.record.offset_metadata import decode_offset_metadata
from tests.support.spark.source import read
from tests.support.spark.warm_start import App, committed_text, state_of
from tests.support.system.file_locks import held_elsewhere
from tests.support.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]


def test_live_application_goes_on_from_the_state_that_was_folded(app: App) -> None:
    app.produce(300)
    assert app.plan().exit_code == 0
    app.ok("run")
    app.ok("verify")
    app.produce(40, first=300)  # what comes meanwhile is not lost
    app.ok("commit")
    with app.live() as streams:
        until(lambda: state_of(streams) == dict(app.counted), f"counts {dict(app.counted)}")
        restored = Counter(state_of(streams))
    assert restored == app.counted


def test_windows_that_the_changelog_would_delete_at_once_are_left_out(app: App) -> None:
    """One partition has only old records, so its stream time does not advance, and its changelog deletes by age."""
    producer = Producer({"bootstrap.servers": app.cluster.bootstrap})
    for partition, timestamp_ms in ((0, 1_700_000_000_000), (1, int(time.time() * 1000))):
        for _ in range(3):
            producer.produce(app.lines, b"line", b"key", partition, timestamp=timestamp_ms)
    assert producer.flush(30) == 0
    app.topology = app.topology.replace("word_count", "by_minute")
    assert app.plan().exit_code == 0
    said = app.ok("run", "--commit")
    assert f"{app.id}-counts-changelog: 1 records left out" in said
    assert "verified: 1 records match what was written" in said


def test_positions_have_the_partition_times_beside_them(app: App) -> None:
    app.produce(20)
    app.plan()
    app.ok("run", "--commit", "--option", "poll.timeout.ms=50000", "--option", "flush.timeout.ms=50000")
    found = committed_text(app)
    for partition in (0, 1):
        offset, text = found[app.lines, partition]
        assert offset == 10
        assert "\0" not in text
        assert decode_offset_metadata(text).partition_time_ms == 1_700_000_000_018 + partition
    assert {topic for topic, _ in found} == {app.lines, f"{app.id}-counts-repartition"}


def test_nothing_is_committed_when_the_application_was_started_meanwhile(app: App) -> None:
    app.produce(20)
    app.plan()
    app.ok("run")
    app.ok("verify")
    with app.live() as streams:
        until(lambda: streams.state is State.RUNNING, "the application runs")
        refused = app.do("commit")
        assert refused.exit_code != 0
        assert "nothing is committed" in refused.output
    assert app.do("commit").exit_code != 0  # the application has committed offsets now


def test_aborted_warm_start_leaves_nothing_and_can_be_made_again(app: App) -> None:
    app.produce(30)
    app.plan()
    app.ok("run")
    assert "not empty" in app.plan().output or app.plan().exit_code != 0
    assert f"{app.id}-counts-changelog" in app.ok("abort")
    assert app.do("commit").exit_code == 2
    assert app.plan().exit_code == 0
    app.ok("run", "--commit")
    with app.live() as streams:
        until(lambda: state_of(streams) == dict(app.counted), "the folded state")


def test_plan_says_everything_that_stands_against_it(app: App) -> None:
    app.produce(10)
    with app.live() as streams:
        until(lambda: state_of(streams) == dict(app.counted), "counts")
        until(lambda: "not empty" in app.plan().output, "its changelog")  # a count is read before it is flushed
        assert "members run" in app.plan().output
        streams.close(leave_group=True)
    app.cluster.delete_before(app.lines, 0, 2)
    result = app.plan()
    assert result.exit_code == 2
    for part in ("its first 2 offsets are deleted", "committed offsets", "--replace", "not empty"):
        assert part in result.output
    assert app.plan("--replace", "--accept-partial-history").exit_code == 0
    app.ok("run", "--commit")


def test_topic_that_was_created_again_is_not_taken_for_the_planned_one(app: App) -> None:
    app.produce(10)
    assert app.plan().exit_code == 0
    app.cluster.delete(app.lines)
    app.cluster.topic(2, name=app.lines)
    app.produce(30)
    refused = app.do("run")
    assert refused.exit_code == 2
    assert f"topic {app.lines}: it was deleted and created again since the plan was made; plan again" in refused.output
    assert app.plan().exit_code == 0, "nothing was begun"


_VERSIONS = """
from streams_py import Materialized, StreamsBuilder, serdes


def topology():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    prices = builder.table({prices!r}, materialized=Materialized("prices", history=1_000))
    builder.stream({lines!r}).join(prices, lambda line, price: f"{{line}}@{{price}}").to({out!r})
    return builder.build()
"""


def test_versions_of_a_table_are_all_there_for_an_application_that_starts_warm(app: App, tmp_path: Path) -> None:
    base_ms, prices = 1_700_000_000_000, app.cluster.topic(2)
    file = tmp_path / "versions.py"
    file.write_text(_VERSIONS.format(prices=prices, lines=app.lines, out=app.out))
    app.topology = f"{file}:topology"

    def produce(topic: str, *records: tuple[str, str, int]) -> None:
        producer = Producer({"bootstrap.servers": app.cluster.bootstrap})
        for key, value, at_ms in records:
            producer.produce(topic, value, key, 1, timestamp=base_ms + at_ms)
        assert producer.flush(30) == 0

    later = [("tea", "first", 50_000), ("tea", "second", 50_600), ("tea", "late", 50_300)]
    produce(prices, ("rum", "old", 100), *later)
    assert app.plan().exit_code == 0
    app.ok("run", "--commit")
    produce(app.lines, ("rum", "a", 50_700), ("tea", "b", 50_700), ("tea", "c", 50_400), ("tea", "d", 50_100))
    wanted = [b"a@old", b"b@second", b"c@late", b"d@first"]

    def written() -> list[bytes]:
        rows = read({"kafka.bootstrap.servers": app.cluster.bootstrap, "topics": app.out})
        return [row["value"] for row in rows]

    with app.live():
        until(lambda: len(written()) >= len(wanted), f"{wanted} in {app.out}")
    assert sorted(written()) == wanted


_RECENT = """
from streams_py import Materialized, StreamsBuilder, lru_map, serdes


def topology():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.table({lines!r}, materialized=Materialized("recent", supplier=lru_map(2))).to_stream().to({out!r})
    return builder.build()
"""


def test_store_that_drops_the_oldest_gets_its_records_in_the_order_of_their_updates(app: App, tmp_path: Path) -> None:
    file = tmp_path / "recent.py"
    file.write_text(_RECENT.format(lines=app.lines, out=app.out))
    app.topology = f"{file}:topology"
    producer = Producer({"bootstrap.servers": app.cluster.bootstrap})
    for at, key in enumerate("zyxazb"):
        producer.produce(app.lines, str(at), key, 1, timestamp=1_700_000_000_000 - at)
    assert producer.flush(30) == 0
    assert app.plan().exit_code == 0
    app.ok("run", "--commit")
    kept = read({"kafka.bootstrap.servers": app.cluster.bootstrap, "topics": f"{app.id}-recent-changelog"})
    assert [row["key"] for row in sorted(kept, key=lambda row: row["offset"])] == [b"y", b"x", b"a", b"z", b"b"]


def test_folder_that_another_run_has_is_refused_before_anything_is_changed(app: App, tmp_path: Path) -> None:
    app.produce(4)
    assert app.plan().exit_code == 0
    before = app.plan_file.read_text()
    with held_elsewhere(tmp_path / ".lock") as holder:
        refused = app.do("run", "--work", str(tmp_path))
        assert refused.exit_code == 2, refused.output
        assert f"--work: process {holder.pid} has a run in {tmp_path}, which would be overwritten" in refused.output
    assert app.plan_file.read_text() == before
    app.ok("run", "--work", str(tmp_path))


def test_outputs_that_brokers_have_forgotten_are_not_written_twice(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once_writer, "_PATIENCE_S", 0.5)
    app.produce(6)
    assert app.do("plan", app.with_output, "--application-id", app.id).exit_code == 0
    app.ok("run", "--sinks")
    app.ok("abort")
    writers = json.loads(app.plan_file.read_text())["writers"]
    assert len(writers) == 2
    admin = AdminClient({"bootstrap.servers": app.cluster.bootstrap})
    for forgotten in admin.delete_consumer_groups(writers[:1]).values():
        forgotten.result(30)
    refused = app.do("run", "--sinks")
    assert refused.exit_code == 1, refused.output
    assert f"brokers have no committed position of {writers[0]}" in refused.output
    assert json.loads(app.plan_file.read_text())["step"] == "aborted"
    app.ok("run")


def test_topics_without_records_leave_an_application_at_their_beginning(app: App) -> None:
    assert app.plan().exit_code == 0
    app.ok("run", "--commit")
    assert {offset for offset, _ in committed_text(app).values()} == {0}
    app.produce(10)
    with app.live() as streams:
        until(lambda: state_of(streams) == dict(app.counted), "counts")


def test_changelog_that_somebody_writes_to_is_noticed(app: App) -> None:
    app.produce(10)
    app.plan()
    app.ok("run")
    producer = Producer({"bootstrap.servers": app.cluster.bootstrap})
    producer.produce(f"{app.id}-counts-changelog", b"x", b"y", partition=0)
    assert producer.flush(30) == 0
    refused = app.do("verify")
    assert refused.exit_code == 1
    assert "Nothing is committed" in refused.output
    assert app.do("commit").exit_code == 2
