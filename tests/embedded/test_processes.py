"""Whole applications on the embedded cluster, each instance in a separate process, without any broker."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_py.errors import ConfigError
from streams_py.runtime.client.kafka_streams import KafkaStreams
from streams_py.testing.broker import EmbeddedBroker
from tests.support.broker.kit import Application, text, true_counts
from tests.support.runtime.world import copying

SESSION = {"session_timeout_ms": 1500, "heartbeat_interval_ms": 100}


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Callable[..., Application]]:
    """Create applications, each on a separate embedded cluster."""
    made: list[Application] = []
    brokers: list[EmbeddedBroker] = []

    def make(**settings: Any) -> Application:
        brokers.append(EmbeddedBroker())
        made.append(Application(brokers[-1], tmp_path, **{**SESSION, **settings}))
        return made[-1]

    yield make
    for one in made:
        one.close()
    for broker in brokers:
        broker.close()


def test_two_processes_count_words_while_one_joins_is_killed_and_comes_back(
    application: Callable[..., Application],
) -> None:
    app = application(num_standby_replicas=1)
    lines = text(60_000)
    third = len(lines) // 3
    a = app.start("a")
    app.await_shared(a)
    app.feed(lines[:third])
    b = app.start("b")
    app.await_shared(a, b)
    app.await_caught_up()
    b.kill()
    app.feed(lines[third : 2 * third])
    app.await_shared(a)
    b = app.start("b")
    app.feed(lines[2 * third :])
    app.await_shared(a, b)
    app.await_caught_up()
    assert a.ask("store") | b.ask("store") == true_counts(lines)
    assert a.close() == b.close() == 0
    assert app.counts() == true_counts(lines)


def test_state_is_restored_when_its_directory_is_gone(application: Callable[..., Application]) -> None:
    app = application(partitions=2)
    lines = text(20_000)
    a = app.start("a")
    app.await_shared(a)
    app.feed(lines[:500])
    app.await_caught_up()
    assert a.ask("close", leave=True, timeout=60)
    b = app.start("b")
    app.await_shared(b)
    app.feed(lines[500:])
    app.await_caught_up()
    assert app.counts() == true_counts(lines) == b.ask("store")
    assert all(one["start"] == 0 and one["total"] > 0 for one in b.ask("restored"))


def test_counting_continues_when_the_cluster_was_away(application: Callable[..., Application]) -> None:
    app = application(partitions=2)
    lines = text(20_000)
    a = app.start("a")
    app.await_shared(a)
    app.feed(lines[:500])
    app.await_caught_up()
    app.broker.stop_node(1)
    cpu_before_s = a.ask("cpu")
    app.until(lambda: "unreachable" in a.log_text, "the warning about the outage")
    app.broker.start_node(1)
    app.feed(lines[500:])
    app.await_caught_up()
    assert app.counts() == true_counts(lines)
    assert a.ask("cpu") - cpu_before_s < 5


def test_process_ends_without_a_trace_back_when_interrupted_in_the_middle(
    application: Callable[..., Application],
) -> None:
    app = application(num_stream_threads=2)
    a = app.start("a")
    app.await_shared(a)
    app.feed(text(20_000))
    assert a.signal(signal.SIGINT) == 130
    assert "Traceback" not in a.log_text


@pytest.mark.parametrize(
    ("setting", "value"), [("processing.guarantee", "exactly_once_v2"), ("group.instance.id", "static")]
)
def test_what_the_embedded_cluster_cannot_do_is_refused_with_what_to_use_instead(
    tmp_path: Path, setting: str, value: str
) -> None:
    config = {"application.id": "app", "bootstrap.servers": "embedded", "state.dir": str(tmp_path), setting: value}
    with pytest.raises(ConfigError, match=setting):
        KafkaStreams(copying(), config)
