"""Tasks move as soon as their new client has caught up, not with the next probing rebalance; Java may lead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.broker.kit import Application, Instance, text, true_counts

pytestmark = pytest.mark.broker

TEN_MINUTES_MS = 600_000
"""Longer than any wait of these tests: what moves has not waited for it."""


def halves(app: Application, first: Instance, second: Instance) -> bool:
    """Each has half of the tasks with state."""
    stateful = {f"1_{number}" for number in range(app.partitions)}
    mine, others = first.running & stateful, second.running & stateful
    return mine | others == stateful and len(mine) == len(others) == app.partitions // 2


def test_twelve_tasks_are_shared_two_warm_ups_at_a_time_without_a_probing_rebalance(
    application: Callable[..., Application],
) -> None:
    app = application(partitions=12, acceptable_recovery_lag=0, probing_rebalance_interval_ms=TEN_MINUTES_MS)
    lines = text(20_000)
    a = app.start("a")
    app.await_shared(a)
    app.feed(lines)
    app.await_caught_up()
    b = app.start("b")
    app.until(lambda: halves(app, a, b), "half of the tasks on the second member")
    app.feed(lines)
    app.await_caught_up()
    assert app.counts() == true_counts(lines + lines)


def test_tasks_move_to_a_python_member_that_has_caught_up_when_java_leads(
    application: Callable[..., Application], java: tuple[str, ...]
) -> None:
    app = application(acceptable_recovery_lag=0, probing_rebalance_interval_ms=TEN_MINUTES_MS)
    lines = text(6_000)
    first = app.start("java", command=java)
    app.await_shared(first)
    app.feed(lines)
    app.await_caught_up()
    second = app.start("python")
    app.until(lambda: halves(app, first, second), "half of the tasks on the Python member")
    assert second.ask("led") == 0
    app.feed(lines)
    app.await_caught_up()
    assert app.counts() == true_counts(lines + lines)
