"""The times at which punctuators run."""

from __future__ import annotations

from functools import partial

import pytest

from streams_py.runtime.tasks.record.punctuation import PunctuationQueue, Schedule
from streams_py.serdes import STRING
from streams_py.testing import TopologyTestDriver
from streams_py.topology.declare.nodes import Punctuation
from streams_py.topology.declare.processor import Processor, ProcessorContext, Record
from streams_py.topology.dsl.builder import StreamsBuilder


@pytest.fixture
def queue() -> PunctuationQueue:
    return PunctuationQueue()


def test_fire_calls_back_with_the_time_of_the_clock(queue: PunctuationQueue) -> None:
    seen: list[int] = []
    queue.schedule(0, 10, seen.append)
    for now in (3, 5, 10, 12, 20):
        queue.fire(now)
    assert seen == [3, 10, 20]


def test_fire_skips_missed_firings(queue: PunctuationQueue) -> None:
    seen: list[int] = []
    queue.schedule(0, 10, seen.append)
    assert [queue.fire(now) for now in (0, 47, 49, 50, 59, 60)] == [1, 1, 0, 1, 0, 1]
    assert seen == [0, 47, 50, 60]


def test_fire_calls_each_schedule_once_in_order_of_due_time(queue: PunctuationQueue) -> None:
    seen: list[str] = []
    queue.schedule(5, 1, lambda now: seen.append("late"))
    queue.schedule(3, 100, lambda now: seen.append("early"))
    queue.schedule(3, 100, lambda now: seen.append("early too"))
    assert queue.fire(5) == 3
    assert seen == ["early", "early too", "late"]


def test_schedules_that_are_due_at_one_time_fire_in_the_order_of_javas_priority_queue(queue: PunctuationQueue) -> None:
    """Both expected texts were printed by a Java program."""
    seen: list[str] = []
    for name in "ABCDE":
        queue.schedule(0, 10, lambda now, name=name: seen.append(name))
    for now in (0, 10, 20):
        queue.fire(now)
    assert "".join(seen) == "AEBDCDCEABABCDE"
    queue.clear()
    seen.clear()
    for name, due_ms in zip("abcdefghi", (1, 2, 0, 1, 1, 1, 1, 2, 0), strict=True):
        queue.schedule(due_ms, 3 + ord(name) % 3, lambda now, name=name: seen.append(name))
    for now in range(0, 40, 4):
        queue.fire(now)
    assert "".join(seen) == "cideafgbhicgadicefbhdacigfebhgdfaciegbhadicfcdageifbhafdgebchigadicefhbiacdgfe"


def test_schedule_with_a_start_is_due_at_its_times_only(queue: PunctuationQueue) -> None:
    seen: list[tuple[str, int]] = []
    for name, start_ms in {"past": 3, "now": 25, "future": 42}.items():
        queue.schedule(start_ms, 10, lambda now, name=name: seen.append((name, now)), after_ms=25)
    for now in (25, 32, 33, 41, 42, 43):
        queue.fire(now)
    assert seen == [("now", 25), ("past", 33), ("now", 41), ("future", 42), ("past", 43)]


def test_cancel_inside_the_callback_ends_the_schedule(queue: PunctuationQueue) -> None:
    calls: list[int] = []

    def once(now: int) -> None:
        calls.append(now)
        schedule.cancel()

    schedule: Schedule = queue.schedule(0, 1, once)
    assert [queue.fire(now) for now in (1, 2, 3)] == [1, 0, 0]
    assert calls == [1]
    assert len(queue) == 0


def test_fire_keeps_the_schedule_when_the_callback_raises(queue: PunctuationQueue) -> None:
    def fail(now: int) -> None:
        raise ValueError("no")

    queue.schedule(0, 10, fail)
    with pytest.raises(ValueError, match="no"):
        queue.fire(1)
    assert not queue.is_due(9)
    assert queue.is_due(10)


def test_schedule_inside_a_callback_waits_for_its_own_time(queue: PunctuationQueue) -> None:
    seen: list[int] = []
    queue.schedule(0, 1_000, lambda now: queue.schedule(now + 5, 5, seen.append))
    queue.fire(10)
    assert seen == []
    queue.fire(15)
    assert seen == [15]


def test_schedule_refuses_an_interval_below_one_millisecond(queue: PunctuationQueue) -> None:
    with pytest.raises(ValueError, match="at least 1 ms, not 0"):
        queue.schedule(0, 0, lambda now: None)


class Anchored(Processor[str, str, str, str]):
    """Runs at 25, 35 and so on, of both clocks."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        for clock in Punctuation:
            tick = partial(self._tick, context, clock.name)
            context.schedule(10, clock, tick, start_ms=25)

    def _tick(self, context: ProcessorContext[str, str], clock: str, now_ms: int) -> None:
        context.forward(Record(clock, str(now_ms), now_ms))

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


def test_processor_chooses_the_times_of_its_punctuations() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.stream("in").process(Anchored).to("out")
    with TopologyTestDriver(builder.build(), wall_clock_ms=30) as driver:
        given = driver.input_topic("in", key=STRING, value=STRING)
        for timestamp_ms in (24, 27, 34, 35):
            given.send("k", "v", timestamp_ms=timestamp_ms)
        for advance_ms in (4, 1):
            driver.advance_wall_clock(advance_ms)
        pairs = driver.output_topic("out", key=STRING, value=STRING).read_pairs()
    assert pairs == [("STREAM_TIME", "27"), ("STREAM_TIME", "35"), ("WALL_CLOCK_TIME", "35")]
