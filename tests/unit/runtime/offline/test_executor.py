"""A task that the test runs: no thread, no broker, no clock."""

from __future__ import annotations

from streams_protocol.types import TaskId, TopicPartition
from streams_py import StreamsBuilder, serdes
from streams_py.runtime.offline.executor import TaskEnvironment, TaskExecutor, exact_topics
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.testing.memory_clients import ManualClock, MemoryProducer, MemoryRecord
from streams_py.topology.physical.subtopologies import Subtopology

ORDERS = TopicPartition("orders", 0)


def counting() -> Subtopology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("orders").group_by_key().count(store="counts").to_stream().to("counts", value=serdes.INT64)
    return builder.build().subtopology(0)


def executor_of(nodes: Subtopology, producer: MemoryProducer) -> TaskExecutor:
    environment = TaskEnvironment(
        settings=TaskSettings(application_id="app", default_key_serde=serdes.STRING),
        producer=producer,
        clock=ManualClock(),
        directory=StateDirectory("unused", "app", persistent=False),
    )
    return TaskExecutor(TaskId(0, 0), nodes, [ORDERS], environment)


def record(offset: int, key: bytes) -> MemoryRecord:
    return MemoryRecord("orders", 0, offset, key, b"x", timestamp_ms=offset)


def test_executor_processes_in_order_and_knows_what_to_commit() -> None:
    producer = MemoryProducer()
    executor = executor_of(counting(), producer)
    executor.start()
    executor.add(ORDERS, [record(5, b"a"), record(7, b"b"), record(9, b"a")])
    assert executor.step(100) == 3
    assert [(sent.topic(), sent.key(), sent.value()) for sent in producer.sent if sent.topic() == "counts"] == [
        ("counts", b"a", bytes(7) + b"\x01"),
        ("counts", b"b", bytes(7) + b"\x01"),
        ("counts", b"a", bytes(7) + b"\x02"),
    ]
    assert executor.task.committable_offsets()[ORDERS].offset == 10
    executor.commit()
    assert not executor.task.commit_needed
    assert executor.close() is None


def test_exact_topics_are_full_names() -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("lines").repartition(name="by-word").to("out")
    names = [exact_topics(sub.nodes, "app") for sub in builder.build().subtopologies()]
    assert sorted(names) == [["app-by-word-repartition"], ["lines"]]
