"""The order of records, compared with a model: random timestamps, batches and chunk sizes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streams_py.runtime.tasks.settings.handlers import log_and_continue
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.topology import Topology
from tests.support.runtime.task_kit import Kit, record

TOPICS = ("a", "b", "c")


class Seen(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        at = self.context.record_metadata
        assert at is not None
        text = f"{at.topic}@{at.offset} {self.context.current_stream_time_ms()}"
        self.context.forward(record.with_value(text))


def kit(topics: tuple[str, ...]) -> Kit:
    topology = Topology().add_source("source", topics).add_processor("seen", Seen, "source")
    topology.add_sink("sink", "out", "seen")
    return Kit(topology, inputs=topics, max_task_idle_ms=-1, deserialization_handler=log_and_continue)


# One arrival: topic, timestamp; negative = bytes that cannot be decoded. Or None: process some records now.
ARRIVALS = st.lists(st.none() | st.tuples(st.sampled_from(TOPICS), st.integers(-1, 12)), max_size=40)


@settings(max_examples=200, deadline=None)
@given(arrivals=ARRIVALS, chunk=st.integers(1, 4), topics=st.sampled_from([TOPICS[:1], TOPICS]))
def test_order_stream_time_and_offsets_are_those_of_the_model(
    arrivals: list[tuple[str, int] | None], chunk: int, topics: tuple[str, ...]
) -> None:
    task = kit(topics)
    queues: dict[str, list[tuple[int, int]]] = {topic: [] for topic in topics}
    taken: dict[str, int] = {}
    next_offset = dict.fromkeys(topics, 0)
    expected: list[str] = []
    stream_time = -1

    def pass_over_bad() -> None:
        for topic, queue in queues.items():
            while queue and queue[0][0] < 0:
                taken[topic] = queue.pop(0)[1]

    def run(limit: int) -> None:
        nonlocal stream_time
        for _ in range(limit):
            pass_over_bad()
            heads = [(queue[0][0], topic) for topic, queue in queues.items() if queue]
            if not heads:
                return
            at, topic = min(heads)
            taken[topic] = queues[topic].pop(0)[1]
            stream_time = max(stream_time, at)
            expected.append(f"{topic}@{taken[topic]} {stream_time}")

    for arrival in [*arrivals, None]:
        if arrival is None:
            if len(topics) == 1:  # bad records count as processed there: process all
                while task.task.process(chunk):
                    pass
                run(1_000)
            else:
                task.task.process(chunk)
                run(chunk)
            continue
        topic, at = arrival[0] if arrival[0] in topics else topics[0], arrival[1]
        offset = next_offset[topic]
        next_offset[topic] = offset + 1
        queues[topic].append((at, offset))
        if at < 0:
            task.add(record("x", topic=topic, offset=offset, raw_value=b"\xff"))
        else:
            task.add(record("x", topic=topic, offset=offset, at=at))
    while task.task.process(chunk):
        pass
    run(1_000)
    pass_over_bad()
    assert [value and value.decode() for _, value, _ in task.sent("out")] == expected
    offsets = {partition.topic: entry.offset for partition, entry in task.task.committable_offsets().items()}
    assert offsets == {topic: offset + 1 for topic, offset in taken.items()}
