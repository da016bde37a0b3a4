"""Look-ups under way in two processes while tasks move, and while one of the processes dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.broker.kit import Application, Instance, text, true_counts

pytestmark = pytest.mark.broker

_KEYS = 40


def values(count: int) -> list[str]:
    return [f"{number % _KEYS}:{number:05d}" for number in range(count)]


def written(app: Application) -> Counter[str]:
    return Counter((record.value() or b"").decode() for record in app.read())


def started(app: Application, name: str) -> Instance:
    """It answers slowly enough for many look-ups to be under way."""
    return app.start(name, delay_s=0.02)


def test_no_record_under_way_is_lost_or_made_twice_when_tasks_move_and_processes_close(
    application: Callable[..., Application],
) -> None:
    app = application(app="ask", commit_interval_ms=60_000)
    lines = values(12_000)
    a = started(app, "a")
    app.await_shared(a)
    app.feed(lines)
    app.until(lambda: written(app).total() > 500, "look-ups to be under way")
    b = started(app, "b")
    app.await_shared(a, b)
    assert a.close() == 0
    app.await_shared(b)
    app.until(lambda: written(app).total() >= len(lines), "all look-ups")
    assert b.close() == 0
    assert written(app) == Counter(lines)
    assert app.caught_up()


def test_no_record_under_way_is_lost_when_a_process_is_killed(application: Callable[..., Application]) -> None:
    app = application(app="ask")
    lines = values(12_000)
    a, b = started(app, "a"), started(app, "b")
    app.await_shared(a, b)
    app.feed(lines)
    app.until(lambda: written(app).total() > 500, "look-ups to be under way")
    a.kill()
    a = started(app, "a")
    app.await_caught_up()
    assert a.close() == b.close() == 0
    assert written(app).keys() == set(lines)


def test_every_record_under_way_counts_once_when_a_process_is_killed(application: Callable[..., Application]) -> None:
    app = application(app="ask", processing_guarantee="exactly_once_v2", commit_interval_ms=100)
    lines = values(4_000)
    a, b = started(app, "a"), started(app, "b")
    app.await_shared(a, b)
    app.feed(lines)
    app.until(lambda: written(app).total() > 500, "look-ups to be under way")
    a.kill()
    a = started(app, "a")
    app.await_caught_up()
    assert a.close() == b.close() == 0
    assert written(app) == Counter(lines)


def test_results_out_of_a_cache_that_wait_for_look_ups_are_not_lost_when_a_process_is_killed(
    application: Callable[..., Application],
) -> None:
    app = application(processing_guarantee="exactly_once_v2", commit_interval_ms=100)
    lines = text(10_000)
    a, b = started(app, "a"), started(app, "b")
    app.await_shared(a, b)
    app.feed(lines)
    app.until(lambda: app.counts().total() > 2_000, "words to be counted")
    a.kill()
    a = started(app, "a")
    app.await_caught_up()
    assert a.close() == b.close() == 0
    assert app.counts() == true_counts(lines)
