"""Pauses of real tasks that a repartition topic connects: each task counts the time for which its own input waited."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from streams_protocol.types import TopicPartition
from streams_py.events.draft import BodyDraft, Draft
from streams_py.events.model import Event
from streams_py.events.tasks import TaskEvents
from streams_py.testing.memory_clients import MemoryProducer, MemoryRecord
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology
from tests.support.runtime.task_kit import Kit
from tests.support.telemetry.history import START_MS, History, fold, rows
from tests.support.telemetry.long_history import grown

REPARTITION = TopicPartition("app-r-repartition", 0)
INPUT = TopicPartition("in", 0)
MOVE_MS = 700
"""Time between the last record of the upstream task on its old owner and the first on its new owner."""


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").repartition(name="r").to("out")
    return builder.build()


@dataclass
class Member:
    """A stream thread of one process with its tasks; the history is its broker and its clock."""

    history: History
    process: int
    producer: MemoryProducer
    kits: dict[str, Kit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.events = TaskEvents(
            self._store,
            who=lambda: (self.history.recorder.generation - 1, f"m{self.process}"),
            monotonic_us=lambda: (self.history.now_ms - START_MS + 10_000_000 - self.history.delay_ms) * 1_000,
            wall_ms=lambda: self.history.now_ms,
            sample_interval_ms=1 << 40,
        )

    def _store(self, draft: Draft) -> None:
        assert isinstance(draft, BodyDraft)
        self.history.store(Event(self.history.envelope(self.process), draft.body))

    def start(self, subtopology: int, partition: TopicPartition) -> None:
        kit = Kit(topology(), inputs=(partition.topic,), subtopology=subtopology, producer=self.producer)
        self.kits[str(kit.task.id)] = kit
        self.events.assigned(kit.task.id, is_active=True)

    def rebalanced(self) -> None:
        self.events.rebalanced([kit.task.id for kit in self.kits.values()])

    def lose(self, task: str) -> None:
        self.events.ended("suspended", self.kits.pop(task).task.id, is_active=True)

    def turn(self, task: str, *records: MemoryRecord, poll_ms: int = 0, lag: int | None = 0) -> int:
        """Poll for ``poll_ms``, deliver records, and process them; ``lag`` is what the consumer knows afterwards."""
        kit = self.kits[task]
        (partition,) = kit.task.input_partitions
        began_us = self.events.now_us()
        self.history.later(poll_ms)
        self.events.polled(began_us)
        if lag is None:
            kit.positions.lags.pop(partition, None)
        else:
            kit.positions.lags[partition] = lag
        if records:
            kit.task.add_records(partition, records)
        began_us = self.events.processing(kit.task)
        count = kit.task.process(100)
        self.events.processed(kit.task, count, began_us)
        return count


class Group:
    """Two members: the upstream task 0_0 moves from the first to the second, the downstream task 1_0 stays."""

    def __init__(self) -> None:
        self.history = grown()
        self.producer = MemoryProducer()
        self.old, self.new = (Member(self.history, process, self.producer) for process in (1, 2))
        self.old.start(0, INPUT)
        self.old.start(1, REPARTITION)
        self.offset = 0

    def written(self, age_ms: int) -> MemoryRecord:
        """A record of the input topic that was written ``age_ms`` ago."""
        self.offset += 1
        at_ms = self.history.now_ms - age_ms
        return MemoryRecord("in", 0, self.offset, b"k", b"v", timestamp_ms=at_ms)

    def repartitioned(self) -> MemoryRecord:
        """The last record that the upstream task has written, as the downstream task reads it."""
        sent = [record for record in self.producer.sent if record.topic() == REPARTITION.topic]
        last = sent[-1]
        return MemoryRecord(last.topic(), 0, len(sent), last.key(), last.value(), timestamp_ms=last.timestamp()[1])

    def pauses(self) -> dict[str, tuple[str, int, int]]:
        return {
            row["task"]: (row["kind"], row["gap_ms"], row["paused_ms"])
            for row in rows(fold(self.history.records), "gap")
        }


def moved(*, idle_ms: int, age_ms: int, downstream_blocked_ms: int = 0) -> Group:
    """Both tasks process a record, then the upstream task moves for ``MOVE_MS``.

    ``idle_ms``: how long both tasks have no input before the move. ``age_ms``: the age of the next input record when
    the upstream task continues. ``downstream_blocked_ms``: how long the thread of the downstream task does other work
    between its last look at the broker and the processing of the record.
    """
    group = Group()
    assert group.old.turn("0_0", group.written(1)) == 1
    assert group.old.turn("1_0", group.repartitioned()) == 1
    for _ in range(idle_ms // 50):
        for task in ("0_0", "1_0"):
            group.old.turn(task, poll_ms=25)
    group.old.lose("0_0")
    group.old.rebalanced()
    group.new.start(0, INPUT)
    for _ in range(MOVE_MS // 50):
        group.new.turn("0_0", lag=None)  # the consumer does not know the broker's end yet
        group.old.turn("1_0", poll_ms=50)
    assert group.new.turn("0_0", group.written(age_ms)) == 1
    group.history.later(downstream_blocked_ms)
    assert group.old.turn("1_0", group.repartitioned(), poll_ms=0 if downstream_blocked_ms else 3) == 1
    return group


def test_a_task_that_stays_does_not_inherit_the_pause_of_the_task_that_writes_its_input() -> None:
    pauses = moved(idle_ms=0, age_ms=650).pauses()
    assert pauses["0_0"] == ("moved", MOVE_MS, 650)
    kind, gap_ms, paused_ms = pauses["1_0"]
    assert (kind, gap_ms) == ("untouched", MOVE_MS + 3)
    assert paused_ms == 0


def test_a_thread_that_is_blocked_while_input_may_wait_counts_as_a_pause() -> None:
    pauses = moved(idle_ms=0, age_ms=650, downstream_blocked_ms=120).pauses()
    assert pauses["1_0"] == ("untouched", MOVE_MS + 120, 120)


@pytest.mark.parametrize("age_ms", [0, 40, 9_000_000])
def test_old_timestamps_do_not_make_a_pause_of_the_time_without_input(age_ms: int) -> None:
    """The old owner saw that the task had no input, so only the time after that counts."""
    pauses = moved(idle_ms=5_000, age_ms=age_ms).pauses()
    kind, gap_ms, paused_ms = pauses["0_0"]
    assert (kind, gap_ms) == ("moved", 5_000 + MOVE_MS)
    assert paused_ms == min(age_ms, MOVE_MS + 25)  # the last look at this task was one poll before the move


def test_a_new_owner_that_sees_no_input_is_not_paused() -> None:
    group = Group()
    group.old.turn("0_0", group.written(1))
    group.old.lose("0_0")
    group.history.later(300)
    group.new.start(0, INPUT)
    group.new.turn("0_0", poll_ms=20, lag=None)
    group.new.turn("0_0", poll_ms=20)
    group.history.later(7)
    group.new.turn("0_0", group.written(1_000_000), poll_ms=400)
    assert group.pauses()["0_0"] == ("moved", 747, 7)


@pytest.mark.parametrize("lag", [None, 1])
def test_input_that_the_broker_has_or_may_have_waits(lag: int | None) -> None:
    group = Group()
    group.old.turn("0_0", group.written(1))
    group.old.rebalanced()
    for _ in range(10):
        group.old.turn("0_0", poll_ms=50, lag=lag)
    group.old.turn("0_0", group.written(450))
    assert group.pauses()["0_0"] == ("untouched", 500, 450)
