"""Cooperative rebalancing, seen from the records: what stays is never interrupted, what moves has one owner."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import pytest

from tests.support.broker.kit import Application, Instance, steady_producer
from tests.support.broker.ownership import Trace, check_in_order, check_single_owner

pytestmark = pytest.mark.broker

SPACING_S = 0.05


def gaps(traces: Sequence[Trace], partition: int) -> list[tuple[float, float]]:
    """(start, length) of the time between records of a partition."""
    times = [trace[0] for trace in traces if trace[4] == partition]
    return [(early, late - early) for early, late in itertools.pairwise(times)]


def longest(found: Sequence[tuple[float, float]], since: float, until: float) -> float:
    """The longest gap that overlaps the time between."""
    return max(length for start, length in found if start + length >= since and start <= until)


def owners(traces: Sequence[Trace]) -> dict[int, set[int]]:
    """Processes that read each partition."""
    found: dict[int, set[int]] = defaultdict(set)
    for _, pid, _, _, partition, _ in traces:
        found[partition].add(pid)
    return found


def test_untouched_partitions_flow_on_and_each_record_has_one_owner_when_a_member_joins(
    application: Callable[..., Application],
) -> None:
    app = application(app="trace", partitions=6)
    a = app.start("a")
    app.await_shared(a)
    with steady_producer(app, spacing_s=SPACING_S):
        app.until(lambda: len(app.traces()) > 300, "records to flow")
        joining = time.time()
        b = app.start("b")
        app.await_shared(a, b)
        shared = time.time()
        app.until(lambda: len([t for t in app.traces() if t[0] > shared]) > 150, "records to flow again")
    traces = app.traces()
    by_partition = owners(traces)
    kept = {partition for partition, pids in by_partition.items() if pids == {a.process.pid}}
    moved = {partition for partition, pids in by_partition.items() if len(pids) == 2}
    assert len(kept) == len(moved) == 3
    normal = max(longest(gaps(traces, partition), 0, joining) for partition in kept)
    during = max(longest(gaps(traces, partition), joining, shared) for partition in kept)
    print(f"longest gap {normal * 1000:.0f} ms before, {during * 1000:.0f} ms while the other joined")
    assert during <= 2 * normal + 0.3, f"gap of {during:.3f} s while the other joined, {normal:.3f} s before"
    check_single_owner(traces)
    check_in_order(traces, moved | kept)


def test_no_partition_has_two_owners_in_one_generation_while_members_come_and_go(
    application: Callable[..., Application],
) -> None:
    app = application(app="trace", partitions=6, num_stream_threads=2)
    a = app.start("a")
    app.await_shared(a)
    with steady_producer(app, spacing_s=SPACING_S):
        b = app.start("b")
        app.await_shared(a, b)
        c = app.start("c")
        app.await_shared(a, b, c)
        assert b.ask("close", leave=True, timeout=60)
        app.await_shared(a, c)
        stop_at = time.time()
        app.until(lambda: any(t[0] > stop_at + 1 for t in app.traces()), "records to flow")
    app.await_caught_up()
    traces = app.traces()
    check_single_owner(traces)
    check_in_order(traces, set(range(6)))


def test_static_members_keep_tasks_and_generation_when_one_restarts_within_its_session(
    application: Callable[..., Application],
) -> None:
    app = application(app="trace", partitions=4, session_timeout_ms=240_000)  # a busy machine starts b late

    def start(name: str) -> Instance:
        return app.start(name, config={"group.instance.id": name})

    a, b = start("a"), start("b")
    app.await_shared(a, b)
    tasks, generations = b.running, set(b.status["generations"].values())
    held, closing = sorted(a.running), time.time()
    assert b.close() == 0
    b = start("b")
    app.until(lambda: b.state == "RUNNING" and b.running == tasks, "the tasks to be there again")
    assert set(b.status["generations"].values()) == generations == set(a.status["generations"].values())
    assert all(status["running"] == held and status["state"] == "RUNNING" for at, status in a.history if at > closing)
    app.feed(["x"] * 40)
    app.await_caught_up()
