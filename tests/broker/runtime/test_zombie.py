"""A member returns after its session has expired: partitions that it still believes to own are not committed."""

from __future__ import annotations

import itertools
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from streams_protocol.types import TopicPartition
from streams_py.testing.broker import Broker
from tests.support.broker.kit import Application, steady_producer, text, true_counts

pytestmark = pytest.mark.broker


def test_committed_offsets_never_go_back_and_nothing_is_lost_when_a_frozen_process_wakes_up(
    application: Callable[..., Application],
) -> None:
    app = application(app="trace", session_timeout_ms=2000, commit_interval_ms=50)
    partitions = [TopicPartition(app.input, number) for number in range(app.partitions)]
    history: list[dict[TopicPartition, int]] = []

    def look() -> None:
        committed = app.admin.committed_offsets(app.id, partitions)
        history.append({partition: at or 0 for partition, at in committed.items()})

    a, b = app.start("a", delay_s=0.002), app.start("b", delay_s=0.002)
    app.await_shared(a, b)
    app.feed([f"{number}" for number in range(2000)])
    app.until(lambda: len(app.traces()) > 200, "both to work")
    b.process.send_signal(signal.SIGSTOP)
    frozen = time.monotonic()
    try:
        app.await_shared(a)
        app.feed([f"{number}" for number in range(2000, 3000)])
        app.until(lambda: (look(), app.caught_up())[1], "a to do everything")
    finally:
        b.process.send_signal(signal.SIGCONT)
    assert time.monotonic() - frozen > 2.0
    app.until(lambda: (look(), app.shared(a, b))[1], "b to be a member again")
    app.feed([f"{number}" for number in range(3000, 3500)])
    app.until(lambda: (look(), app.caught_up())[1], "everything to be processed")
    look()
    for before, after in itertools.pairwise(history):
        assert all(after[partition] >= before[partition] for partition in partitions)
    assert {record.value() for record in app.read()} == {b"%d" % number for number in range(3500)}
    assert a.close() == b.close() == 0


def test_frozen_process_writes_none_of_its_cached_counts_when_it_wakes_up_after_its_session(
    application: Callable[..., Application],
) -> None:
    app = application(session_timeout_ms=2000, commit_interval_ms=4000)
    lines = text(12_000, vocabulary=40)
    third = len(lines) // 3
    a, b = app.start("a"), app.start("b")
    app.await_shared(a, b)
    app.feed(lines[:third])
    app.await_caught_up()  # the next commit is four seconds away
    before = sum(b.ask("store").values())
    app.feed(lines[third : 2 * third])
    app.until(lambda: sum(b.ask("store").values()) > before, "b to count what it has not committed")
    b.process.send_signal(signal.SIGSTOP)
    frozen = time.monotonic()
    try:
        app.await_shared(a)
        app.feed(lines[2 * third :])
        app.await_caught_up()
        app.until(lambda: time.monotonic() - frozen > 6, "a commit of b to be overdue")
    finally:
        b.process.send_signal(signal.SIGCONT)
    app.await_shared(a, b)
    assert a.close() == b.close() == 0
    expected = true_counts(lines)
    for topic in (app.output, f"{app.id}-counts-changelog"):
        counted = app.counts(topic)
        assert {word: count for word, count in expected.items() if counted[word] < count} == {}, topic


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_frozen_static_member_does_not_take_its_place_back_from_the_process_that_has_it_now(
    application: Callable[..., Application], guarantee: str
) -> None:
    """It was believed dead, and another one was started in its place, within the session. Under exactly-once the broker
    has aborted its transaction meanwhile, which is all that it hears at first."""
    app = application(
        processing_guarantee=guarantee,
        commit_interval_ms=100,
        session_timeout_ms=60_000,
        heartbeat_interval_ms=15_000,
        producer_transaction_timeout_ms=6_000,
    )
    same = {"group.instance.id": "same"}
    first = app.start("first", config=same)
    app.await_shared(first)
    app.may_fail = True
    with steady_producer(app, spacing_s=0.02):
        app.until(app.counts, "it to count")
        first.process.send_signal(signal.SIGSTOP)
        frozen = time.monotonic()
        try:
            second = app.start("second", config=same)
            app.until(lambda: second.running == app.all_tasks(), "the second to have everything")
            app.until(lambda: time.monotonic() - frozen > 8, "the transaction of the first to be aborted")
        finally:
            first.process.send_signal(signal.SIGCONT)
        app.until(lambda: first.state == "ERROR", "the first to end")
        app.until(lambda: second.running == app.all_tasks(), "the second to have everything still")
    assert "give every instance its own" in first.error
    app.await_caught_up()
    assert second.state == "RUNNING"


@pytest.mark.weekly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("asleep_s", [1.0, 12.0], ids=["within the session", "past the session"])
def test_process_that_is_frozen_while_its_coordinator_dies_and_comes_back_loses_and_repeats_nothing(
    own_broker: Broker, tmp_path: Path, asleep_s: float
) -> None:
    """It is frozen during its transactions, and resumes with a broker that has loaded its group again."""
    app = Application(
        own_broker,
        tmp_path,
        app="trace",
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=100,
        session_timeout_ms=6000,
    )
    try:
        a, b = app.start("a", delay_s=0.001), app.start("b", delay_s=0.001)
        app.await_shared(a, b)
        written = 0
        for _ in range(3):
            app.feed([str(number) for number in range(written, written + 4_000)])
            written += 4_000
            app.until(lambda: len(app.traces()) > written - 3_000, "both to work", timeout_s=120)  # noqa: B023
            b.process.send_signal(signal.SIGSTOP)
            try:
                own_broker.kill_node(1)
                time.sleep(asleep_s / 2)
                own_broker.start_node(1)
                time.sleep(asleep_s / 2)
            finally:
                b.process.send_signal(signal.SIGCONT)
            app.until(app.caught_up, "everything to be processed", timeout_s=180)
        times = Counter(int(record.value() or b"") for record in app.read())
        assert [number for number in range(written) if number not in times] == [], "lost"
        assert {number: count for number, count in times.items() if count > 1} == {}, "repeated"
        assert a.close() == b.close() == 0
    finally:
        app.close()
