"""Planned moves: an instance that drains hands its tasks over, with their state, before it goes."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Callable

import pytest

from tests.support.broker.kit import Application, steady_producer, text, true_counts
from tests.support.broker.ownership import check_in_order, check_single_owner
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.broker


def test_draining_instance_works_on_until_others_have_its_state_and_nothing_moves_when_it_goes(
    application: Callable[..., Application],
) -> None:
    app = application(acceptable_recovery_lag=0, probing_rebalance_interval_ms=600_000)
    lines = text(12_000)
    half = len(lines) // 2
    a = app.start("a")
    app.await_shared(a)
    app.feed(lines[:half])
    app.await_caught_up()
    b = app.start("b")
    app.until(lambda: b.standby or b.running, "the second member to take part")
    app.until(lambda: a.ask("probes") == {"alive": True, "ready": True}, "probes to be content")
    assert a.ask("drain", timeout=110)
    app.await_shared(b)
    assert a.ask("probes") == {"alive": True, "ready": False}
    assert not a.running
    restored = [one for one in b.ask("restored") if one["end"]]
    assert restored
    assert all(one["start"] == one["end"] for one in restored), "what became active there had all of its state"
    assert a.ask("close", leave=True, timeout=60)
    app.feed(lines[half:])
    app.await_caught_up()
    assert app.counts() == true_counts(lines)
    assert b.ask("store") == true_counts(lines)


def test_process_that_is_told_to_drain_ends_after_sigterm_when_others_have_its_tasks_and_state(
    application: Callable[..., Application],
) -> None:
    app = application(acceptable_recovery_lag=0, session_timeout_ms=45_000)
    lines = text(4_000)
    half = len(lines) // 2
    a = app.start("a", drain=PATIENCE_S)
    app.await_shared(a)
    app.feed(lines[:half])
    app.await_caught_up()
    b = app.start("b")
    app.await_shared(a, b)
    left = len([task for task in a.running if task.startswith("1_")])
    assert a.signal(signal.SIGTERM) == 0, a.tail()
    with contextlib.closing(app.clients.group_admin()) as groups:
        assert len(groups.describe_group(app.id).members) == 1, "it has left the group"
    app.await_shared(b)
    assert ": drained" in a.log_text
    assert "not drained" not in a.log_text
    restored = [one for one in b.ask("restored") if one["end"]]
    assert len(restored) >= left > 0
    assert all(one["start"] == one["end"] for one in restored), "what became active there had all of its state"
    app.feed(lines[half:])
    app.await_caught_up()
    assert app.counts() == true_counts(lines)
    assert b.ask("store") == true_counts(lines)


def test_copies_take_over_before_an_instance_that_closes_has_left_the_group(
    application: Callable[..., Application],
) -> None:
    app = application(num_standby_replicas=1, session_timeout_ms=45_000)
    lines = text(4_000)
    half = len(lines) // 2
    a, b = app.start("a"), app.start("b")
    app.await_shared(a, b)
    app.feed(lines[:half])
    app.await_caught_up()
    with_state = {task for task in a.running if task.startswith("1_")}
    assert with_state
    app.until(lambda: with_state <= b.standby, "copies at the other instance")
    restored, said = len(b.ask("restored")), len(b.log_text)
    assert a.ask("close", leave=True)
    app.await_shared(b)
    assert ": drained" in a.log_text
    # Its leaving starts a separate rebalance; members that get its tasks do not join a second time.
    leaving_after_gain = re.compile(r"gained \d.*joining group", re.DOTALL)
    app.until(lambda: leaving_after_gain.search(b.log_text[said:]), "the other one to have left with nothing")
    app.feed(lines[half:])
    app.await_caught_up()
    assert app.counts() == true_counts(lines)
    assert b.ask("store") == true_counts(lines)
    assert not [one for one in b.ask("restored")[restored:] if one["start"] != one["end"]], "copies had everything"


def test_records_flow_on_in_order_with_one_owner_while_an_instance_drains(
    application: Callable[..., Application],
) -> None:
    app = application(app="trace", partitions=6, num_stream_threads=2)
    a, b = app.start("a"), app.start("b")
    app.await_shared(a, b)
    with steady_producer(app, spacing_s=0.05):
        app.until(lambda: len(app.traces()) > 300, "records to flow")
        assert a.ask("drain", timeout=110)
        app.await_shared(b)
        assert a.ask("close", leave=True, timeout=60)
        seen = len(app.traces())
        app.until(lambda: len(app.traces()) > seen + 150, "records to flow on")
    app.await_caught_up()
    traces = app.traces()
    check_single_owner(traces)
    check_in_order(traces, set(range(6)))


def test_instance_that_nobody_can_follow_continues_and_says_so(application: Callable[..., Application]) -> None:
    app = application()
    alone = app.start("a")
    app.await_shared(alone)
    assert not alone.ask("drain", timeout=1)
    assert "not drained after" in alone.log_text
    lines = text(1_000)
    app.feed(lines)
    app.await_caught_up()
    assert app.counts() == true_counts(lines)
