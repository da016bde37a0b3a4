"""A member that was away for longer than its session comes back: what it still believes to own is not committed."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable

import pytest

from streams_protocol.types import TopicPartition

from .kit import Application, text, true_counts

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
