"""What is measured of threads, tasks and stores at each level."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams_py.topology.declare.nodes import Punctuation
from tests.support.metrics.measured_client import Client


@pytest.fixture
def client(tmp_path: Path) -> Client:
    made = Client(tmp_path, metrics_recording_level="TRACE")
    made.work()
    return made


def store_metrics(of: Client, store: str) -> dict[str, float]:
    return {m.name: float(m.value) for m in of.measure() if m.tags[-1][1] == store and ("task-id", "0_0") in m.tags}


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_iterator_that_is_never_closed_shows(tmp_path: Path, level: str) -> None:
    client = Client(tmp_path, metrics_recording_level=level)
    client.work()
    store = client.steps.parts.table.running()[0].stores.store("counts")
    opened_ms = client.world.clock.now_ms()
    forgotten = store.all()
    assert next(forgotten)[0] == "k"
    client.world.clock.advance(5_000)
    assert len(list(store.range(None, None))) == 1
    found = store_metrics(client, "counts")
    assert found["num-open-iterators"] == 1
    assert found.get("oldest-iterator-open-since-ms") == (opened_ms if level == "DEBUG" else None)
    assert ("iterator-duration-max" in found) == (level == "DEBUG")
    del forgotten
    found = store_metrics(client, "counts")
    assert found["num-open-iterators"] == 0
    assert found.get("oldest-iterator-open-since-ms") == (0 if level == "DEBUG" else None)


def test_stores_in_memory_say_how_many_keys_they_have(tmp_path: Path) -> None:
    client = Client(tmp_path)
    client.work()
    notes = client.steps.parts.table.running()[0].stores.store("notes")
    notes.put("a", "x")
    notes.put("b", "y")
    assert store_metrics(client, "notes")["num-keys"] == 2
    assert "num-keys" not in store_metrics(client, "counts")


def test_age_of_records_that_are_put_is_measured_with_trace_only(client: Client, tmp_path: Path) -> None:
    def ages(of: Client) -> list[float]:
        return [value for name, value in store_metrics(of, "counts").items() if name.startswith("record-e2e-latency")]

    client.world.clock.advance(60_001)  # what was counted first is forgotten
    for age_ms in (700, 300):
        client.world.log.produce("in", b"v", b"k", 0, None, client.world.clock.now_ms() - age_ms, None)
    client.steps.turn(2)
    assert ages(client) == [500, 300, 700]
    quiet = Client(tmp_path / "quiet", metrics_recording_level="DEBUG")
    quiet.work()
    assert ages(quiet) == []


def test_punctuations_of_tasks_are_measured_with_debug_only(client: Client, tmp_path: Path) -> None:
    def metrics(of: Client) -> dict[str, float]:
        return {
            m.name: float(m.value)
            for m in of.measure()
            if m.group == "stream-task-metrics" and m.name.startswith("punctuate")
        }

    (running,) = client.steps.parts.table.running()
    clock = client.world.clock
    schedules = running.punctuators.queue(Punctuation.WALL_CLOCK_TIME)
    schedules.schedule(clock.now_ms() + 1_000, 1_000, lambda now_ms: clock.advance(40))
    clock.advance(1_000)
    client.steps.turn()
    assert metrics(client) == {
        "punctuate-total": 1,
        "punctuate-rate": pytest.approx(1 / client_seconds(client)),
        "punctuate-latency-avg": 40,
        "punctuate-latency-max": 40,
    }
    thread = {m.name: m.value for m in client.measure() if m.group == "stream-thread-metrics"}
    assert (thread["punctuate-total"], thread["punctuate-latency-max"]) == (1, 40)
    quiet = Client(tmp_path / "quiet")
    quiet.work()
    assert metrics(quiet) == {}


def client_seconds(client: Client) -> float:
    return (client.metrics_input().now_ms - client.steps.thread.started_ms) / 1000


def test_thread_says_its_state_and_how_often_tasks_come_and_go(client: Client) -> None:
    thread = {m.name: m.value for m in client.measure() if m.group == "stream-thread-metrics"}
    assert thread["state"] == "RUNNING"
    assert (thread["task-created-rate"], thread["task-closed-rate"]) == (1, 0)  # two tasks in two seconds
