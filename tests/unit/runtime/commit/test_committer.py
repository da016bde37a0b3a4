"""The order of the steps of a commit, and the effect of a broker that does not answer."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, ProductionError, TaskMigratedError, TimeoutExceededError
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.commit.blocked_time import BlockedTime
from streams_py.runtime.commit.committer import CommitLimits, Committer
from streams_py.runtime.commit.deadline import Deadline
from streams_py.runtime.commit.known_commits import KnownCommits
from streams_py.testing.memory_clients import ManualClock

IN, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)


class Diary:
    """A producer, a transport, a table and a clock that record their calls."""

    def __init__(self) -> None:
        self.entries: list[object] = []
        self.clock = ManualClock()
        self.unflushed: list[int] = []
        self.error: Exception | None = None
        self.send_error: Exception | None = None
        self.dead_letters = 0
        self.deadline = Deadline(self.clock)
        self.blocked = BlockedTime(self.clock)
        self.member = True

    def is_member(self) -> bool:
        return self.member

    def flush(self, timeout_ms: int) -> int:
        self.entries.append("flush")
        return self.unflushed.pop(0) if self.unflushed else 0

    def acked_offsets(self) -> Mapping[TopicPartition, int]:
        return {TopicPartition("log", 0): 7}

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        self.entries.append(("commit", {partition: at.offset for partition, at in offsets.items()}))
        if self.error is not None:
            raise self.error

    def check_sends(self, producer: object) -> bool:
        assert producer is self
        self.entries.append("check sends")
        if self.send_error is not None:
            raise self.send_error
        if self.dead_letters:
            self.dead_letters -= 1
            return True
        return False

    @contextlib.contextmanager
    def committing(self, *, although_rebalancing: bool) -> Iterator[None]:
        yield

    def committer(self) -> Committer:
        return Committer(
            self,  # type: ignore[arg-type]  # what a commit needs of a producer
            None,
            self,  # type: ignore[arg-type]  # and of a transport
            self,  # type: ignore[arg-type]  # and of a table
            self.clock,
            self.deadline,
            CommitLimits(task_timeout_ms=10_000, calls_max_ms=0),
            KnownCommits(),
        )


class FakeTask:
    """One task with an offset to commit."""

    def __init__(self, diary: Diary, name: str, offsets: Mapping[TopicPartition, int], *, needed: bool = True) -> None:
        self.id = TaskId(0, len(diary.entries))
        self.name = name
        self.topic_ids: dict[str, str] = {}
        self.commit_needed = needed
        self._diary = diary
        self._offsets = offsets
        self.positions = SimpleNamespace(committed=offsets)

    def flush_caches(self) -> None:
        self._diary.entries.append(f"{self.name}: caches")

    def committable_offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self._diary.entries.append(f"{self.name}: offsets")
        return {partition: OffsetAndMetadata(offset) for partition, offset in self._offsets.items()}

    def post_commit(self, *, enforce_checkpoint: bool, acked: Mapping[TopicPartition, int]) -> None:
        assert acked == {TopicPartition("log", 0): 7}
        self._diary.entries.append(f"{self.name}: checkpoint{' enforced' if enforce_checkpoint else ''}")


@pytest.fixture
def diary() -> Diary:
    return Diary()


def test_commit_goes_from_caches_over_the_producer_to_offsets_and_checkpoints(diary: Diary) -> None:
    tasks = [FakeTask(diary, "a", {IN: 3}), FakeTask(diary, "b", {OTHER: 5}), FakeTask(diary, "c", {}, needed=False)]
    assert diary.committer().commit(tasks) == 2
    assert diary.entries == [
        "a: caches",
        "b: caches",
        "flush",
        "check sends",
        "a: offsets",
        "b: offsets",
        ("commit", {IN: 3, OTHER: 5}),
        "a: checkpoint",
        "b: checkpoint",
    ]


def test_nothing_is_asked_of_anybody_when_no_task_needs_a_commit(diary: Diary) -> None:
    assert diary.committer().commit([FakeTask(diary, "a", {IN: 3}, needed=False)]) == 0
    assert diary.entries == []


def test_task_is_finished_without_a_request_when_it_has_no_offsets(diary: Diary) -> None:
    assert diary.committer().commit([FakeTask(diary, "a", {})]) == 1
    assert diary.entries == ["a: caches", "flush", "check sends", "a: offsets", "a: checkpoint"]


def test_offsets_are_not_committed_when_a_record_was_refused(diary: Diary) -> None:
    diary.send_error = ProductionError("too large", topic="out", partition=0)
    with pytest.raises(ProductionError, match="too large"):
        diary.committer().commit([FakeTask(diary, "a", {IN: 3})])
    assert diary.entries == ["a: caches", "flush", "check sends"]


def test_flush_continues_until_everything_is_acknowledged(diary: Diary) -> None:
    diary.unflushed = [5, 2]
    diary.committer().flush()
    assert diary.entries == ["flush", "check sends"] * 3


def test_dead_letters_for_refused_records_are_acknowledged_before_offsets_are_committed(diary: Diary) -> None:
    diary.dead_letters = 2
    diary.committer().commit([FakeTask(diary, "a", {IN: 3})])
    assert diary.entries[:9] == ["a: caches", *["flush", "check sends"] * 3, "a: offsets", ("commit", {IN: 3})]


def test_flush_is_given_up_when_a_shutdown_has_no_time_left(diary: Diary) -> None:
    diary.unflushed = [5, 2]
    diary.deadline.set(0)
    with pytest.raises(BrokerUnavailableError, match="5 records were not acknowledged"):
        diary.committer().flush()


def test_flush_says_what_it_waits_for_when_it_takes_long(diary: Diary, caplog: pytest.LogCaptureFixture) -> None:
    diary.unflushed = [3] * 21
    with caplog.at_level(logging.WARNING):
        diary.committer().flush()
    assert [record.getMessage() for record in caplog.records] == [
        "3 records are still not acknowledged after 10 s; waiting",
        "3 records are still not acknowledged after 20 s; waiting",
    ]


def test_commit_is_tried_again_until_the_task_timeout_when_the_broker_is_silent(
    diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    committer, task = diary.committer(), FakeTask(diary, "a", {IN: 3})
    diary.error = BrokerUnavailableError("no broker answers")
    with caplog.at_level(logging.WARNING):
        assert committer.commit([task]) == -1
        diary.clock.advance(4_999)
        assert committer.commit([task]) == -1
        assert caplog.text == ""
        diary.clock.advance(1)
        assert committer.commit([task]) == -1
        assert "offsets not committed for 5000 ms" in caplog.text
        for _ in range(3):
            diary.clock.advance(100)
            assert committer.commit([task]) == -1
        assert len(caplog.records) == 1, "one line per outage"
    diary.clock.advance(4_701)
    with pytest.raises(TimeoutExceededError, match=r"task\.timeout\.ms is 10000"):
        committer.commit([task])
    assert not any("checkpoint" in str(entry) for entry in diary.entries)


def test_timeout_starts_again_when_a_commit_came_through(diary: Diary) -> None:
    committer, task = diary.committer(), FakeTask(diary, "a", {IN: 3})
    diary.error = BrokerUnavailableError("no broker answers")
    assert committer.commit([task]) == -1
    diary.clock.advance(9_000)
    diary.error = None
    assert committer.commit([task]) == 1
    diary.clock.advance(9_000)
    diary.error = BrokerUnavailableError("no broker answers again")
    assert committer.commit([task]) == -1


def test_migration_is_raised_and_nothing_counts_as_committed(diary: Diary) -> None:
    diary.error = TaskMigratedError("not a member")
    with pytest.raises(TaskMigratedError):
        diary.committer().commit([FakeTask(diary, "a", {IN: 3})])
    assert not any("checkpoint" in str(entry) for entry in diary.entries)
