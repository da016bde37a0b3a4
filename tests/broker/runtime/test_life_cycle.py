"""Threads that are added and removed, uncaught errors, and every way to stop an application."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable

import pytest

from tests.support.broker.kit import Application, Instance, text, true_counts

pytestmark = pytest.mark.broker

LONG_MS = 240_000
"""A session longer than anything is waited for here: what happens did not need its end."""

OURS = ("StreamThread", "StateUpdater", "membership", "kafka-io", "state-cleaner", "freed-memory", "task-assignor")


def own_threads(instance: Instance) -> list[str]:
    """Threads of the library that still exist in the process."""
    return [name for name in instance.ask("threads") if any(mark in name for mark in OURS)]


def threads_with_tasks(instance: Instance) -> dict[str, str]:
    """State of each stream thread by its number."""
    return {name.rsplit("-", 1)[1]: state for name, state in instance.status["threads"].items()}


# -- threads -----------------------------------------------------------------------------------------------------


def test_threads_share_the_work_and_numbers_are_reused_when_threads_are_added_and_removed(
    application: Callable[..., Application],
) -> None:
    app = application(partitions=6, num_stream_threads=3, session_timeout_ms=LONG_MS)
    lines = text(12_000)
    third = len(lines) // 3
    a = app.start("a")
    app.await_shared(a)
    assert threads_with_tasks(a) == dict.fromkeys("123", "RUNNING")
    app.feed(lines[:third])
    removed = a.ask("remove thread", timeout=60)
    assert removed.endswith("-StreamThread-1")
    app.until(lambda: threads_with_tasks(a) == dict.fromkeys("23", "RUNNING"), "two threads")
    app.await_shared(a)
    app.feed(lines[third : 2 * third])
    assert a.ask("add thread") == removed
    assert a.ask("add thread").endswith("-StreamThread-4")
    app.until(lambda: threads_with_tasks(a) == dict.fromkeys("1234", "RUNNING"), "four threads")
    app.await_shared(a)
    app.feed(lines[2 * third :])
    app.await_caught_up()
    assert app.counts() == true_counts(lines)


@pytest.mark.parametrize("timeout", [60, 0.001])
def test_static_member_is_removed_from_the_group_when_its_thread_is_removed(
    application: Callable[..., Application], timeout: float
) -> None:
    """Independent of the time for which the caller waits for it."""
    app = application(app="trace", num_stream_threads=2, session_timeout_ms=LONG_MS)
    a = app.start("a", config={"group.instance.id": "static"})
    app.await_shared(a)
    app.until(lambda: len(threads_with_tasks(a)) == 2, "two threads")
    with contextlib.nullcontext() if timeout > 1 else pytest.raises(RuntimeError, match="its removal continues"):
        a.ask("remove thread", timeout=timeout)
    app.until(lambda: len(threads_with_tasks(a)) == 1 and app.shared(a), "the other thread to take over")


def test_static_members_hand_over_immediately_when_their_client_leaves_for_good(
    application: Callable[..., Application],
) -> None:
    app = application(app="trace", num_stream_threads=2, session_timeout_ms=LONG_MS)
    a = app.start("a", config={"group.instance.id": "static-a"})
    b = app.start("b", config={"group.instance.id": "static-b"})
    app.await_shared(a, b)
    assert a.ask("close", leave=True, timeout=60)
    app.until(lambda: app.shared(b), "the other client to take over")


# -- errors ------------------------------------------------------------------------------------------------------


def test_client_ends_in_error_and_names_the_record_when_nobody_handles_an_error(
    application: Callable[..., Application],
) -> None:
    app = application(app="trace", num_stream_threads=2, session_timeout_ms=3000)
    app.may_fail = True
    a, b = app.start("a"), app.start("b")
    app.await_shared(a, b)
    app.feed(["x", "poison"])
    app.until(lambda: "ERROR" in (a.state, b.state), "one client to end")
    failed, other = (a, b) if a.state == "ERROR" else (b, a)
    assert failed.wait_end() == 1
    assert "poisoned on purpose" in failed.error
    assert f"{app.input}-1 at offset 0" in failed.error
    # The record goes to the other client when the session of the first client's healthy thread expires.
    app.until(lambda: other.state == "ERROR", "the other client")


def test_thread_is_replaced_and_nothing_is_lost_when_the_handler_says_so(
    application: Callable[..., Application],
) -> None:
    app = application(app="trace", num_stream_threads=2, session_timeout_ms=LONG_MS)
    a = app.start("a", uncaught="REPLACE_THREAD")
    app.await_shared(a)
    app.feed(["x"] * 20 + ["poison once"] + ["x"] * 20)
    app.await_caught_up()
    app.await_shared(a)
    assert threads_with_tasks(a) == dict.fromkeys("12", "RUNNING")
    assert len(app.read()) >= 41
    assert "poisoned on purpose" in a.log_text


def test_every_client_ends_in_error_when_one_shuts_the_application_down(
    application: Callable[..., Application],
) -> None:
    app = application(app="trace", session_timeout_ms=LONG_MS)
    app.may_fail = True
    a = app.start("a", uncaught="SHUTDOWN_APPLICATION")
    b = app.start("b", uncaught="SHUTDOWN_APPLICATION")
    app.await_shared(a, b)
    app.feed(["poison once"])  # the next owner of the record has no other reason to stop
    assert a.wait_end() == b.wait_end() == 1
    errors = [a.error, b.error]
    assert any("poisoned on purpose" in error for error in errors)
    assert any("asked all members to shut down" in error for error in errors)


# -- closing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["uncaught handler", "state listener", "restore listener", "processor"])
def test_application_ends_with_nothing_left_over_when_closed_from_a_callback(
    application: Callable[..., Application], where: str
) -> None:
    app = application(app="count" if where == "restore listener" else "trace", num_stream_threads=2)
    order = {"uncaught": "close"} if where == "uncaught handler" else {"close_in": where}
    a = app.start("a", stays=True, **order)
    if where in ("uncaught handler", "processor"):
        app.await_shared(a)
        app.feed(["poison" if where == "uncaught handler" else "close"])
    app.until(lambda: a.state == "NOT_RUNNING", "the application to end")
    app.until(lambda: not own_threads(a), "its threads to end")
    assert a.close() == 0


def test_close_returns_in_time_and_says_so_in_every_state(application: Callable[..., Application]) -> None:
    app = application(app="trace", session_timeout_ms=2000)
    app.may_fail = True
    a = app.start("a", stays=True)
    app.until(lambda: a.state == "REBALANCING", "a to start")
    assert a.ask("close", timeout=60) is True  # in the middle of the first rebalance
    assert a.ask("close") is True  # NOT_RUNNING
    assert own_threads(a) == []
    b = app.start("b", stays=True, delay_s=0.02)
    app.await_shared(b)
    app.feed(["x"] * 400)
    app.until(lambda: len(app.traces()) > 20, "b to work")
    assert b.ask("close", timeout=0) is False  # RUNNING
    assert b.ask("close", timeout=60) is True  # PENDING_SHUTDOWN
    c = app.start("c", stays=True)
    app.feed(["poison"])
    app.until(lambda: c.state == "ERROR", "c to fail")
    assert c.ask("close", timeout=60) is True
    assert own_threads(c) == []


def test_closing_commits_so_that_nothing_is_processed_twice(application: Callable[..., Application]) -> None:
    app = application(app="trace", commit_interval_ms=60_000)
    a = app.start("a")
    app.await_shared(a)
    app.feed(["x"] * 400)
    app.until(lambda: len(app.traces()) >= 100, "a to work")
    assert a.close() == 0
    b = app.start("b")
    app.until(lambda: len({trace[4:] for trace in app.traces()}) == 400, "all records")
    assert len(app.traces()) == 400
    assert b.close() == 0


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.weekly)], ids=["ctrl-c", "sigterm"]
)
def test_nothing_is_left_behind_when_the_process_is_ended_by_a_signal(
    application: Callable[..., Application], number: int
) -> None:
    app = application(num_stream_threads=2, num_standby_replicas=1)
    lines = text(20_000)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in `nohup ... &`: children inherit it
    try:
        a = app.start("a")
    finally:
        signal.signal(signal.SIGINT, before)
    app.await_shared(a)
    app.feed(lines)
    app.await_caught_up()
    assert a.signal(number) == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in a.log_text
    again = app.start("a")  # the state directory is free
    app.await_shared(again)
    assert again.ask("store") == dict(true_counts(lines))
