"""A member that is slow to join holds the whole group up, for longer than a transaction may last."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable

import pytest

from streams_protocol.types import TopicPartition
from tests.support.broker.kit import Application

pytestmark = pytest.mark.broker

TRANSACTION_S = 3.0


@pytest.mark.weekly
@pytest.mark.timeout(600)
def test_member_commits_transactions_on_and_on_while_the_group_waits_for_another_one(
    application: Callable[..., Application],
) -> None:
    app = application(
        app="trace",
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=100,
        session_timeout_ms=60_000,
        producer_transaction_timeout_ms=int(TRANSACTION_S * 1000),
    )
    a, b = app.start("a"), app.start("b")
    app.await_shared(a, b)
    written = 0

    def feed(count: int) -> None:
        nonlocal written
        app.feed([str(number) for number in range(written, written + count)])
        written += count

    def done(partitions: list[TopicPartition]) -> bool:
        committed = app.admin.committed_offsets(app.id, partitions)
        return all(committed[at] == end for at, end in app.admin.list_offsets(partitions).items())

    feed(400)
    app.await_caught_up()
    held = [TopicPartition(app.input, int(task.rpartition("_")[2])) for task in sorted(a.running)]
    generations, joins = a.status["generations"], a.log_text.count("joining group")
    b.process.send_signal(signal.SIGSTOP)
    try:
        c = app.start("c")
        app.until(lambda: a.log_text.count("joining group") > joins, "a rebalance that waits for b")
        until_s = time.monotonic() + 3 * TRANSACTION_S
        while time.monotonic() < until_s:
            feed(400)
            app.until(lambda: done(held), "a to commit what it has processed", timeout_s=30)
        # All of it in the one rebalance, which still waits; and nothing was done twice.
        assert a.status["generations"] == generations
        assert not c.running
        assert "go back to the last commit" not in a.log_text
        assert "tasks migrated" not in a.log_text
    finally:
        b.process.send_signal(signal.SIGCONT)
    app.await_shared(a, b, c)
    feed(400)
    app.await_caught_up()
    times = Counter(int(record.value() or b"") for record in app.read())
    assert [number for number in range(written) if number not in times] == [], "lost"
    assert {number: count for number, count in times.items() if count > 1} == {}, "repeated"
    assert a.close() == b.close() == c.close() == 0
