"""A member that was away for longer than its session comes back: what it still believes to own is not committed."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable

import pytest

from streams_protocol.types import TopicPartition

from .kit import Application

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
