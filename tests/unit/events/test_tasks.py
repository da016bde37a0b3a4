"""What is written about the tasks of a stream thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.events.draft import BodyDraft, Draft
from streams_py.events.model import Sample, TaskEvent
from streams_py.events.tasks import RestoreEvents, TaskEvents

TASK, OTHER = TaskId(0, 1), TaskId(0, 0)
LOG = "app-counts-changelog"


@dataclass
class Working:
    """An active task; ``process`` takes ``cost_us`` of the clock."""

    thread: Thread
    id: TaskId = TASK
    taken: int = 5
    cost_us: int = 700
    oldest_ms: int | None = None
    input_waits: bool = True

    @property
    def input_partitions(self) -> frozenset[TopicPartition]:
        return frozenset({TopicPartition("in", self.id.partition)})

    def oldest_waiting_ms(self) -> int | None:
        return self.oldest_ms

    def has_input(self) -> bool:
        return self.input_waits

    def process(self, max_records: int) -> int:
        self.oldest_ms = None  # it no longer waits
        self.thread.now_us += self.cost_us
        return min(self.taken, max_records)


@dataclass
class Thread:
    """Events of tasks with a clock, a generation, and what it has written."""

    now_us: int = 1_000_000
    generation: int = 7
    drafts: list[Draft] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tasks = TaskEvents(
            self.drafts.append,
            who=self.who,
            monotonic_us=lambda: self.now_us,
            wall_ms=lambda: 5_000 + self.now_us // 1_000,
            sample_interval_ms=1_000,
        )
        self.restores = RestoreEvents(
            self.drafts.append, who=self.who, monotonic_us=lambda: self.now_us, subtopology_of={LOG: 0, "app-b": 0}
        )

    def who(self) -> tuple[int, str]:
        return self.generation, "member"

    def work(self, task: Working, max_records: int) -> int:
        """Have a task process records, as the loop does."""
        began_us = self.tasks.processing(task)
        count = task.process(max_records)
        self.tasks.processed(task, count, began_us)
        return count

    @property
    def bodies(self) -> list[Any]:
        return [draft.body for draft in self.drafts if isinstance(draft, BodyDraft)]

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(body.event, body.role) for body in self.bodies if isinstance(body, TaskEvent)]

    def one(self, event: str) -> TaskEvent:
        (found,) = [body for body in self.bodies if isinstance(body, TaskEvent) and body.event == event]
        return found


@pytest.fixture
def thread() -> Thread:
    return Thread()


def test_first_record_after_an_assignment_says_how_long_that_took(thread: Thread) -> None:
    thread.tasks.assigned(TASK, is_active=True)
    thread.now_us += 400
    thread.tasks.changed("created", TASK, is_active=True, began_us=thread.now_us - 300)
    assert thread.work(Working(thread, taken=0), 10) == 0
    assert thread.work(Working(thread), 3) == 3
    thread.work(Working(thread), 3)
    assert thread.events == [("assigned", "active"), ("created", "active"), ("first_record", "active")]
    assert thread.one("created").took_us == 300
    first = thread.one("first_record")
    assert (first.since_assigned_us, first.last_mono_us) == (1_100, None)
    assert (first.task, first.member, first.generation) == (TASK, "member", 7)


@pytest.mark.parametrize(
    ("oldest_ms", "waited_ms"),
    [(None, None), (-1, None), (5_900, 100), (0, 6_000), (7_000, 0)],  # the last one comes from a clock that is ahead
)
def test_first_record_says_how_long_it_has_waited(thread: Thread, oldest_ms: int | None, waited_ms: int | None) -> None:
    thread.tasks.assigned(TASK, is_active=True)
    thread.work(Working(thread, oldest_ms=oldest_ms), 3)
    assert thread.one("first_record").waited_ms == waited_ms
    thread.tasks.rebalanced([TASK])
    thread.now_us += 1_000_000
    thread.work(Working(thread, oldest_ms=6_000), 3)
    last = thread.bodies[-1]
    assert (last.event, last.waited_ms) == ("first_record", 1_000)


def test_last_record_is_written_once_with_its_own_time(thread: Thread) -> None:
    thread.tasks.assigned(TASK, is_active=True)
    thread.work(Working(thread), 3)
    processed_us = thread.now_us
    thread.now_us += 90_000
    thread.tasks.ended("suspended", TASK, is_active=True)
    thread.tasks.ended("closed", TASK, is_active=True)
    assert [event for event, _ in thread.events[2:]] == ["suspended", "last_record", "closed"]
    assert thread.one("last_record").last_mono_us == processed_us


def test_task_that_never_processed_has_no_last_record(thread: Thread) -> None:
    thread.tasks.assigned(TASK, is_active=True)
    thread.tasks.ended("suspended", TASK, is_active=True)
    assert [event for event, _ in thread.events] == ["assigned", "suspended"]


def test_first_record_after_a_rebalance_that_left_the_task_says_when_the_one_before_was(thread: Thread) -> None:
    for task in (TASK, OTHER):
        thread.tasks.assigned(task, is_active=True)
    thread.work(Working(thread), 3)
    before_us = thread.now_us
    thread.tasks.rebalanced([TASK])
    thread.now_us += 5_000
    thread.generation = 8
    for _ in range(3):
        thread.work(Working(thread), 3)
    thread.work(Working(thread, OTHER), 3)  # came back without an assignment: starts again
    firsts = [body for body in thread.bodies if body.event == "first_record"]
    assert [(first.task, first.generation, first.last_mono_us) for first in firsts] == [
        (TASK, 7, None), (TASK, 8, before_us), (OTHER, 8, None),
    ]  # fmt: skip


def test_recycled_task_changes_its_role(thread: Thread) -> None:
    thread.tasks.assigned(TASK, is_active=False)
    thread.tasks.recycled(TASK, is_active=True)
    thread.work(Working(thread), 1)
    thread.tasks.recycled(TASK, is_active=False)
    assert thread.events == [
        ("assigned", "standby"), ("promoted", "active"), ("first_record", "active"), ("demoted", "standby"),
        ("last_record", "active"),
    ]  # fmt: skip


def test_sample_comes_when_it_is_due_and_counts_from_the_last(thread: Thread) -> None:
    tasks = [Working(thread), Working(thread, OTHER)]
    lags = {TopicPartition("in", 1): 12}
    thread.work(tasks[0], 5)
    thread.tasks.sample_if_due(tasks, lags.get, 30)
    assert not any(isinstance(body, Sample) for body in thread.bodies)
    for _ in range(2):
        thread.now_us += 1_000_000
        thread.tasks.sample_if_due(tasks, lags.get, 30)
    first, second = [body for body in thread.bodies if isinstance(body, Sample)]
    assert list(first.tasks) == [OTHER, TASK]
    assert (first.input_lag, first.records, first.busy_us) == ([None, 12], [None, 5], [None, 700])
    assert (second.records, second.busy_us, second.commit_age_ms) == ([None, 0], [None, 0], [30, 30])


def test_thread_without_tasks_writes_no_sample(thread: Thread) -> None:
    thread.now_us += 5_000_000
    thread.tasks.sample_if_due([], {}.get, 0)
    assert thread.drafts == []


# -- restorations ------------------------------------------------------------------------------------------------------


def test_task_of_two_stores_is_restored_once(thread: Thread) -> None:
    logs = [TopicPartition(LOG, 1), TopicPartition("app-b", 1)]
    for log, end in zip(logs, (100, 50), strict=True):
        thread.restores.started(log, "store", 10, end)
    for log, count in zip(logs, (90, 40), strict=True):
        thread.restores.advanced(log, count)
        thread.now_us += 1_000
        thread.restores.ended(log)
    assert [event for event, _ in thread.events] == ["restore_started", "restored"]
    restored = thread.one("restored")
    assert (restored.records, restored.took_us) == (130, 2_000)


def test_progress_is_written_every_ten_seconds_at_most(thread: Thread) -> None:
    log = TopicPartition(LOG, 1)
    thread.restores.started(log, "store", 0, 1_000)
    for _ in range(30):
        thread.now_us += 1_000_000
        thread.restores.advanced(log, 10)
    found = [body for body in thread.bodies if body.event == "restore_progress"]
    assert [(body.records_done, body.records_total) for body in found] == [(100, 1_000), (200, 1_000), (300, 1_000)]


def test_task_that_was_taken_away_before_its_first_record_begins_anew(thread: Thread) -> None:
    logs = [TopicPartition(LOG, 1), TopicPartition("app-b", 1)]
    for log in logs:
        thread.restores.started(log, "store", 0, 50)
    thread.now_us += 600_000_000  # taken away without a notification: nothing was restored
    for log in logs:
        thread.restores.started(log, "store", 0, 50)
    thread.now_us += 2_000
    for log in logs:
        thread.restores.advanced(log, 50)
        thread.restores.ended(log)
    assert [event for event, _ in thread.events] == ["restore_started", "restore_started", "restored"]
    restored = thread.one("restored")
    assert (restored.records, restored.took_us) == (100, 2_000)


def test_restoration_that_was_taken_away_does_not_end(thread: Thread) -> None:
    log = TopicPartition(LOG, 1)
    thread.restores.started(log, "store", 0, 1_000)
    thread.restores.suspended(log)
    thread.restores.advanced(log, 10)
    thread.restores.ended(log)
    assert [event for event, _ in thread.events] == ["restore_started"]


def test_standby_that_has_caught_up_says_how_long_that_took(thread: Thread) -> None:
    thread.restores.warm(TASK, 12, 1_500)
    warm = thread.one("warm")
    assert (warm.task, warm.role, warm.lag, warm.since_created_us) == (TASK, "standby", 12, 1_500_000)


def test_changelog_of_nobody_is_passed_over(thread: Thread) -> None:
    for call in (thread.restores.ended, thread.restores.suspended):
        call(TopicPartition("another", 0))
    thread.restores.started(TopicPartition("another", 0), "store", 0, 5)
    assert thread.drafts == []
