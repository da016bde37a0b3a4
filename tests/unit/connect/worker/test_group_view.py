"""The leader's view of jobs without a worker, and the metrics of a worker."""

from __future__ import annotations

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.jobs import Jobs
from streams_py.connect.assignment.leader import LeaderView
from streams_py.connect.assignment.modes import Mode
from streams_py.connect.stores.statuses import JobState
from streams_py.connect.worker.group_view import group_view
from streams_py.connect.worker.metrics import WorkerCounters

A0, A1 = TaskId("a", 0), TaskId("a", 1)
URLS = {"m1": "http://w1:1/", "m2": "http://w2:1/"}


def test_the_view_names_workers_by_their_addresses_and_marks_the_leader() -> None:
    led = LeaderView({"m2": Jobs(), "m1": Jobs.of(["a"])}, URLS, {"m1": None, "m2": Jobs.of(["z"])}, Jobs.of(["a"]))
    view = group_view(led, "m1", Mode.STATIC)
    assert [(w.worker_id, w.is_leader, w.owned, w.listed) for w in view.workers] == [
        ("w1:1", True, Jobs.of(["a"]), None),
        ("w2:1", False, Jobs(), Jobs.of(["z"])),
    ]
    assert view.unassigned == {}


def test_a_job_that_nobody_lists_in_an_all_static_group_has_no_candidates() -> None:
    listed = {"m1": Jobs(), "m2": Jobs.of(["a"], [A1])}
    led = LeaderView({"m1": Jobs(), "m2": Jobs.of(["a"])}, URLS, listed, Jobs.of(["a"], [A0, A1]))
    unassigned = group_view(led, "m1", Mode.STATIC).unassigned
    assert unassigned[A0].could_run == ()
    assert "add it to static.tasks" in unassigned[A0].reason
    assert unassigned[A1].could_run == ("w2:1",)
    assert "next round" in unassigned[A1].reason


def test_a_lost_job_waits_and_any_worker_without_lists_could_run_it() -> None:
    led = LeaderView({"m1": Jobs(), "m2": Jobs()}, URLS, {"m1": None, "m2": Jobs()}, Jobs.of(["a"]), delay_ms=5_000)
    unassigned = group_view(led, "m1", Mode.STATIC).unassigned["a"]
    assert unassigned.could_run == ("w1:1",)
    assert "5 s" in unassigned.reason


def test_rebalances_failures_and_unexpected_jobs_are_counted_once_each() -> None:
    counters = WorkerCounters()
    for generation in (1, 1, 2):  # the broker says the first one twice
        counters.completed(generation)
    assert counters.rebalances == 2
    counters.reported("a", JobState.FAILED)
    counters.reported(A0, JobState.FAILED)
    counters.reported(A0, JobState.RUNNING)
    assert (counters.failures("connector"), counters.failures("task")) == (1, 1)
    assert counters.note_unexpected(Jobs.of(["a"], [A0])) == Jobs.of(["a"], [A0])
    assert counters.note_unexpected(Jobs.of(["a"])) == Jobs()
    assert counters.note_unexpected(Jobs.of(["a", "b"])) == Jobs.of(["b"])
    assert counters.unexpected == 3
