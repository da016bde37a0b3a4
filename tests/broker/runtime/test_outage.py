"""The broker goes away, or is not there yet: one warning per outage, no crash, no busy loop, nothing lost."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streams_py.testing.broker import Broker
from tests.support.broker.kit import Application, text, true_counts

pytestmark = pytest.mark.broker


def warnings(log: str) -> list[str]:
    """Return lines about connections, from this library and from both client libraries."""
    loggers = (" streams_py.system.outages ", " streams_py.adapters.confluent", " kafka.", "Traceback")
    return [line for line in log.splitlines() if any(logger in line for logger in loggers)]


@pytest.mark.parametrize("hard", [False, pytest.param(True, marks=pytest.mark.weekly)], ids=["stopped", "killed"])
def test_counting_continues_without_loss_when_the_broker_was_away_for_longer_than_a_session(
    own_broker: Broker, tmp_path: Path, hard: bool
) -> None:
    app = Application(own_broker, tmp_path, session_timeout_ms=4000)
    try:
        lines = text(40_000)
        half = len(lines) // 2
        a, b = app.start("a"), app.start("b")
        app.await_shared(a, b)
        app.feed(lines[:half])
        app.await_caught_up()
        generations = dict(a.status["generations"])
        cpu_before_s, said_before = a.ask("cpu"), len(warnings(a.log_text))
        (own_broker.kill_node if hard else own_broker.stop_node)(1)
        away_s = 6.0
        time.sleep(away_s)
        cpu_s = a.ask("cpu") - cpu_before_s
        logged = warnings(a.log_text)[said_before:]
        own_broker.start_node(1)
        app.feed(lines[half:])
        app.await_caught_up(timeout_s=90)
        assert a.close() == b.close() == 0
        assert app.counts() == true_counts(lines)
        assert cpu_s < 0.3 * away_s, f"{cpu_s:.1f} s of CPU in {away_s} s without a broker"
        assert len(logged) == 1, "\n".join(logged)
        assert f"cluster {own_broker.bootstrap} unreachable for" in logged[0]
        assert "no record is lost; retrying" in logged[0]
        assert f"cluster {own_broker.bootstrap} reachable again after" in a.log_text
        assert len(warnings(a.log_text)[said_before:]) == 2, "\n".join(warnings(a.log_text)[said_before:])
        if not hard:
            assert a.status["generations"] == generations
    finally:
        app.close()


def test_application_started_before_its_broker_works_when_the_broker_comes(own_broker: Broker, tmp_path: Path) -> None:
    app = Application(own_broker, tmp_path)
    try:
        lines = text(10_000)
        own_broker.stop_node(1)
        a = app.start("a")
        app.until(lambda: a.state == "REBALANCING", "a to start")
        app.until(lambda: f"cluster {own_broker.bootstrap} unreachable for" in a.log_text, "a warning")
        cpu_before_s = a.ask("cpu")
        time.sleep(3)
        cpu_s = a.ask("cpu") - cpu_before_s
        assert a.state == "REBALANCING"
        own_broker.start_node(1)
        app.await_shared(a)
        app.feed(lines)
        app.await_caught_up()
        assert app.counts() == true_counts(lines)
        assert cpu_s < 1.0, f"{cpu_s:.1f} s of CPU in 3 s of waiting"
    finally:
        app.close()


def test_wrong_address_is_named_and_waited_for_when_no_broker_answers_there(
    application: Callable[..., Application],
) -> None:
    app = application()
    with socket.socket() as unused:  # bound, but not listening
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        a = app.start("a", config={"bootstrap.servers": address})
        app.until(lambda: any(address in line for line in warnings(a.log_text)), "the address to be named")
        app.until(lambda: a.state == "REBALANCING", "the state of one who waits")
        assert a.ask("close", timeout=60)
        assert a.wait_end() == 0


@pytest.mark.parametrize("timeout", [0.5, pytest.param(5.0, marks=pytest.mark.weekly)])
def test_close_keeps_its_time_when_the_broker_is_away(own_broker: Broker, tmp_path: Path, timeout: float) -> None:
    app = Application(own_broker, tmp_path)
    try:
        a = app.start("a", stays=True)
        app.await_shared(a)
        app.feed(text(200_000))
        app.until(lambda: sum(app.counts().values()) > 1000, "counting to be under way")
        own_broker.kill_node(1)
        started = time.monotonic()
        a.ask("close", timeout=timeout)
        took_s = time.monotonic() - started
        assert took_s < timeout + 10.0, f"{took_s:.1f} s"
        app.until(lambda: a.state == "NOT_RUNNING", "the rest to be closed in the background")
        assert a.close() == 0
    finally:
        app.close()
