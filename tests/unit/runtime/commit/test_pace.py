"""When a thread commits, and how many records its tasks may process until then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streams_py.runtime.commit.committer import WAITS
from streams_py.runtime.commit.pace import CommitPace, PaceSettings
from streams_py.runtime.tasks.latency import Latency
from streams_py.testing.memory_clients import ManualClock


class FakeTask:
    """A running task."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.commit_needed = True
        self.commit_requested = False
        self.calls = SimpleNamespace(are_drained=False)
        self.stores = SimpleNamespace(uncommitted_bytes=0)

    def __repr__(self) -> str:
        return self.name


class Thread:
    """The parts of a thread that its commit pace uses."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.tasks = [FakeTask("a"), FakeTask("b"), FakeTask("c")]
        self.rebalancing = self.is_transactional = False
        self.member = self.has_room = True
        self.commits: list[tuple[list[FakeTask], bool]] = []
        self.results: list[int] = []
        self.made_room = 0
        self.cache_room = 10**9
        self.purges = 0
        self.latency = Latency()
        here: Any = self
        self.pace = CommitPace(
            here,
            here,
            here,
            here,
            here,
            self.clock,
            self.latency,
            PaceSettings(
                commit_interval_ms=1_000, rebalance_commit_interval_ms=6_000, uncommitted_max_bytes=100, flush_max_ms=50
            ),
        )

    def running(self) -> list[FakeTask]:
        return self.tasks

    def is_member(self) -> bool:
        return self.member

    def commit(self, tasks: list[FakeTask], *, in_rebalance: bool) -> int:
        self.commits.append((tasks, in_rebalance))
        return self.results.pop(0) if self.results else len(tasks)

    def make_room(self, tasks: list[FakeTask]) -> bool:
        self.made_room += 1
        return self.has_room

    def room(self, within_ms: int) -> int:
        assert within_ms == 50
        return self.cache_room

    def purge_if_due(self, tasks: list[FakeTask]) -> None:
        self.purges += 1


@pytest.fixture
def thread() -> Thread:
    return Thread()


def test_commit_waits_for_the_interval(thread: Thread) -> None:
    thread.clock.advance(1_000)
    assert thread.pace.commit_if_due() == 0
    thread.clock.advance(1)
    assert thread.pace.commit_if_due() == 3
    assert thread.commits == [(thread.tasks, False)]
    assert thread.pace.last_commit_ms == thread.clock.monotonic_ms()
    assert thread.purges == 1
    assert thread.pace.commit_if_due() == 0


def test_requested_commit_does_not_move_the_interval(thread: Thread) -> None:
    thread.clock.advance(900)
    thread.tasks[1].commit_requested = True
    before_ms = thread.pace.last_commit_ms
    assert thread.pace.commit_if_due() == 3
    assert thread.pace.last_commit_ms == before_ms
    assert thread.purges == 1


@pytest.mark.parametrize("is_transactional", [False, True])
def test_drained_tasks_are_committed_alone_unless_a_transaction_has_all(thread: Thread, is_transactional: bool) -> None:
    thread.is_transactional = is_transactional
    thread.tasks[1].calls.are_drained = True
    thread.pace.commit_if_due()
    assert thread.commits == [(thread.tasks if is_transactional else [thread.tasks[1]], False)]


@pytest.mark.parametrize(("bytes_", "room"), [(101, 1), (100, 0)])
def test_commit_is_early_when_memory_or_caches_are_full(thread: Thread, bytes_: int, room: int) -> None:
    thread.tasks[0].stores.uncommitted_bytes, thread.cache_room = bytes_, room
    assert thread.pace.commit_if_due() == 3


def test_failed_commit_is_tried_again_after_a_pause_and_a_waiting_one_at_the_next_turn(thread: Thread) -> None:
    thread.clock.advance(1_001)
    thread.results = [WAITS, -1]
    assert thread.pace.commit_if_due() == 0
    assert thread.pace.commit_if_due() == 0
    assert len(thread.commits) == 2
    thread.clock.advance(99)
    assert thread.pace.commit_if_due() == 0
    assert len(thread.commits) == 2
    thread.clock.advance(1)
    assert thread.pace.commit_if_due() == 3
    assert thread.purges == 1


def test_offsets_wait_for_the_end_of_a_rebalance_and_memory_is_freed(thread: Thread) -> None:
    thread.rebalancing = True
    thread.clock.advance(60_000)
    assert thread.pace.commit_if_due() == -1
    assert thread.made_room == 0
    thread.tasks[0].stores.uncommitted_bytes, thread.has_room = 101, False
    for _ in range(2):  # a failed attempt is followed by a pause
        assert thread.pace.commit_if_due() == -1
    assert thread.made_room == 1
    thread.clock.advance(100)
    assert thread.pace.commit_if_due() == -1
    assert thread.made_room == 2
    assert thread.commits == []


def test_transactions_are_committed_at_longer_intervals_in_a_rebalance(thread: Thread) -> None:
    thread.rebalancing = thread.is_transactional = True
    thread.clock.advance(6_000)
    assert thread.pace.commit_if_due() == -1
    thread.clock.advance(1)
    assert thread.pace.commit_if_due() == 3
    assert thread.commits == [(thread.tasks, True)]


def test_unconfirmed_member_commits_nothing_in_a_rebalance(thread: Thread) -> None:
    thread.rebalancing = thread.is_transactional = True
    thread.member = False
    thread.clock.advance(60_000)
    assert thread.pace.commit_if_due() == -1
    assert thread.commits == []


def test_processing_waits_when_twice_the_memory_is_in_use(thread: Thread) -> None:
    thread.tasks[0].stores.uncommitted_bytes, thread.tasks[1].stores.uncommitted_bytes = 150, 50
    assert not thread.pace.is_full
    thread.tasks[2].stores.uncommitted_bytes = 1
    assert thread.pace.is_full


def shares(thread: Thread, n: int) -> tuple[str, int]:
    tasks: Any = thread.tasks
    chosen, records = thread.pace.shares(tasks, n)
    return "".join(map(repr, chosen)), records


def test_tasks_share_the_room_in_the_caches_and_take_turns_if_it_is_too_small(thread: Thread) -> None:
    thread.cache_room = 30
    assert shares(thread, 10) == ("abc", 10)
    thread.cache_room = 29
    assert shares(thread, 10) == ("abc", 9)
    thread.cache_room = 2
    assert [shares(thread, 10) for _ in range(3)] == [("ab", 1), ("ca", 1), ("bc", 1)]


def test_one_record_has_room_when_no_task_needs_a_commit(thread: Thread) -> None:
    thread.cache_room = 0
    assert shares(thread, 10) == ("", 1)
    for task in thread.tasks:
        task.commit_needed = False
    assert shares(thread, 10) == ("a", 1)
