"""Members that come back: static ones find their tasks again, and an eager group becomes a cooperative one."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.broker.kit import Application, Instance, steady_producer, text, true_counts

pytestmark = pytest.mark.broker


def test_killed_static_member_that_is_back_within_its_session_moves_nothing(
    application: Callable[..., Application],
) -> None:
    app = application(session_timeout_ms=30_000, num_standby_replicas=1)
    lines = text(6_000)
    half = len(lines) // 2

    def start(name: str) -> Instance:
        return app.start(name, config={"group.instance.id": name})

    a, b = start("a"), start("b")
    app.await_shared(a, b)
    app.feed(lines[:half])
    app.await_caught_up()
    app.until(lambda: a.standby and b.standby, "standbys on both")
    app.until(lambda: a.status["generations"].values() and generation(a) == generation(b), "one generation")
    before, tasks, copies, since = generation(a), set(b.running), set(b.standby), time.time()
    b.kill()
    b = start("b")
    app.until(lambda: b.running == tasks and b.standby == copies, "the same tasks on the same member")
    assert generation(a) == generation(b) == before
    assert all(status["running"] == sorted(a.running) for at, status in a.history if at > since)
    restored = b.ask("restored")
    assert all(one["start"] > 0 for one in restored if one["end"]), "its state was still there"
    app.feed(lines[half:])
    app.await_caught_up()
    assert app.counts() == true_counts(lines)


def generation(instance: Instance) -> set[int]:
    """The generation that the instance's members know."""
    return set(instance.status["generations"].values())


@pytest.mark.weekly
def test_eager_group_becomes_cooperative_in_two_rolling_bounces_without_losing_anything(
    application: Callable[..., Application],
) -> None:
    app = application()
    lines = text(6_000)
    step = len(lines) // 5
    fed: list[str] = []

    def count_more() -> None:
        portion = lines[len(fed) : len(fed) + step]
        app.feed(portion)
        fed.extend(portion)
        app.await_caught_up()
        assert app.counts() == true_counts(fed), app.tails()

    # Members that speak as Kafka Streams 1.0 does stand in for the old program: newer Java releases refuse to be eager.
    members = [app.start(f"old-{place}", config={"upgrade.from": "1.0"}) for place in range(2)]
    app.await_shared(*members)
    count_more()
    for bounce, config, protocols in (
        ("first", {"upgrade.from": "2.3"}, ["EAGER"]),
        ("second", {}, ["COOPERATIVE", "EAGER"]),
    ):
        for place in range(2):
            assert members[place].close() == 0
            members[place] = app.start(f"{bounce}-{place}", config=config)
            app.await_shared(*members)
            count_more()
        assert [member.ask("protocols") for member in members] == [protocols] * 2
    assert len(fed) == len(lines)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_static_member_whose_place_a_namesake_takes_ends_and_says_why(
    application: Callable[..., Application], guarantee: str
) -> None:
    """A copied configuration, or a process that was considered dead.

    Otherwise both would take the name from each other forever.
    """
    app = application(processing_guarantee=guarantee, commit_interval_ms=100, session_timeout_ms=30_000)
    same = {"group.instance.id": "same"}
    first = app.start("first", config=same)
    app.await_shared(first)
    app.may_fail = True
    with steady_producer(app, spacing_s=0.02):  # so that commits meet it before heartbeats do
        second = app.start("second", config=same)
        app.until(lambda: first.state == "ERROR", "the first to end")
        app.until(lambda: second.running == app.all_tasks(), "the second to have everything")
    assert "give every instance its own" in first.error
    app.await_caught_up()
    assert second.state == "RUNNING"
