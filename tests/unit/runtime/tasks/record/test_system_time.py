"""The clock of processors: read once for the current records or punctuation, as in Kafka Streams."""

from __future__ import annotations

from typing import Any

from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.serdes import STRING
from streams_py.testing.in_process import InProcessTasks
from streams_py.testing.memory_clients import ManualClock
from streams_py.topology.declare.nodes import Punctuation
from streams_py.topology.declare.processor import Processor
from streams_py.topology.declare.windows import JoinWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from tests.support.topology.whole_topology import WholeTopology


class Reads(Processor[Any, Any, Any, Any]):
    """Records the system time that it gets, and advances the clock meanwhile."""

    def __init__(self, clock: ManualClock, times: list[Any]) -> None:
        self.clock, self.times = clock, times

    def init(self, context: Any) -> None:
        self.context = context
        self.times.append(("init", context.current_system_time_ms()))
        context.schedule(100, Punctuation.WALL_CLOCK_TIME, self.punctuate)

    def punctuate(self, now_ms: int) -> None:
        self.clock.advance(1)
        self.times.append(("punctuator", self.context.current_system_time_ms()))

    def process(self, record: Any) -> None:
        self.clock.advance(5)
        self.times.append((record.value, self.context.current_system_time_ms()))


def tasks_of(builder: StreamsBuilder[Any, Any], clock: ManualClock, sent: list[Any], **settings: Any) -> InProcessTasks:
    return InProcessTasks(
        WholeTopology.units_of(builder.build()),
        TaskSettings(application_id="app", default_key_serde=STRING, default_value_serde=STRING, **settings),
        clock=clock,
        cache_max_bytes=1_000_000,
        on_sent=lambda record: sent.append((record.topic(), record.value())),
    )


def test_time_stays_during_a_record_and_is_read_again_for_a_punctuation() -> None:
    clock, times = ManualClock(1000), list[Any]()
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.stream("in").process(lambda: Reads(clock, times))
    tasks = tasks_of(builder, clock, [])
    assert times == [("init", 1000)]
    tasks.write("in", b"k", b"a", 0, None, 0)
    tasks.drain(commit=False)
    tasks.write("in", b"k", b"b", 0, None, 0)
    tasks.drain(commit=False)
    assert times[1:] == [("a", 1000), ("b", 1005)]
    tasks.advance(200)
    assert times[3:] == [("punctuator", 1210)]


def test_flush_of_a_cache_emits_no_earlier_than_the_last_record() -> None:
    """The throttle of an outer join below a cached table uses the time of the last record, even if the clock has
    advanced until the commit.
    """
    clock, sent = ManualClock(1000), list[Any]()
    builder = StreamsBuilder(key=STRING, value=STRING)
    left = builder.table("l", store="t").to_stream()
    left.outer_join(builder.stream("r"), lambda one, other: f"{one}+{other}", JoinWindows.of(10)).to("out")
    tasks = tasks_of(builder, clock, sent, emit_interval_ms=1000)

    def write(topic: str, key: bytes, timestamp_ms: int) -> None:
        tasks.write(topic, key, topic.encode(), timestamp_ms, None, 0)
        tasks.drain(commit=False)

    write("r", b"a", 0)
    write("r", b"b", 20)  # closes the window of `a`: the operator sends the result, and checks again at 2000
    write("l", b"d", 100)  # waits in the cache
    clock.advance(5000)
    tasks.commit()
    assert [value for topic, value in sent if topic == "out"] == [b"None+r"]
    write("r", b"e", 200)
    assert [value for topic, value in sent if topic == "out"] == [b"None+r", b"None+r", b"l+None"]
