"""Standbys and warm-ups: a new member gets its tasks only when it has their state, and keeps copies of others'."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.broker.kit import Application, Instance, text, true_counts

pytestmark = pytest.mark.broker

PROBING_MS = 60_000


def generations(members: tuple[Instance, ...]) -> set[int]:
    """Generations that the members know."""
    return {generation for member in members for generation in member.status["generations"].values()}


def probe(app: Application, members: tuple[Instance, ...], settled: Callable[[], bool]) -> None:
    """Let the time of the next probing rebalance come; nothing happens when the last one has settled everything."""
    before = generations(members)
    for member in members:
        member.ask("advance", ms=PROBING_MS + 1000)
    app.until(lambda: settled() or generations(members).isdisjoint(before), "a probing rebalance")
    app.until(lambda: len(generations(members)) == 1, "one generation")


def test_three_members_share_actives_and_standbys_after_warming_up(application: Callable[..., Application]) -> None:
    app = application(
        num_standby_replicas=1,
        acceptable_recovery_lag=0,
        max_warmup_replicas=4,
        probing_rebalance_interval_ms=PROBING_MS,
    )
    lines = text(60_000)
    third = len(lines) // 3
    stateful = {f"1_{number}" for number in range(app.partitions)}
    a = app.start("a")
    app.await_shared(a)
    app.feed(lines[:third])
    app.await_caught_up()
    b, c = app.start("b"), app.start("c")
    members = (a, b, c)

    def settled() -> bool:
        actives = [member.running & stateful for member in members]
        standbys = [member.standby for member in members]
        return (
            sorted(map(len, actives)) == [1, 1, 2]
            and set().union(*actives) == stateful
            and sum(map(len, standbys)) == len(stateful)
            and set().union(*standbys) == stateful
            and all(not mine & copies for mine, copies in zip(actives, standbys, strict=True))
        )

    # While a new member warms up, a works on; the probing rebalance then moves what has caught up.
    app.until(lambda: b.standby or c.standby, "a new member to warm up")
    assert a.running >= stateful
    app.feed(lines[third : 2 * third])
    app.await_caught_up()
    for _ in range(6):  # each probing rebalance moves what has caught up by then
        if settled():
            break
        probe(app, members, settled)
    app.until(settled, "one active and one standby of every stateful task, on different members")
    for moved in (b, c):
        taken_over = [one for one in moved.ask("restored") if one["total"]]
        assert all(one["start"] > 0 for one in taken_over), "a warm-up becomes active without starting over"
    app.feed(lines[2 * third :])
    app.await_caught_up()
    assert len(generations(members)) == 1
    assert app.counts() == true_counts(lines)
    stores: dict[str, int] = {}
    for member in members:
        stores |= member.ask("store")
    assert stores == true_counts(lines)
