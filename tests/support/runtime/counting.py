"""One task that counts."""

from __future__ import annotations

from typing import Any

from streams_protocol.types import TopicPartition
from streams_py import serdes
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.declare.stores import key_value_store
from streams_py.topology.topology import Topology
from tests.support.runtime.task_kit import Kit

IN, COUNTS = TopicPartition("in", 0), TopicPartition("app-counts-changelog", 0)


class Counting(Processor[Any, Any, Any, Any]):
    closed = 0

    def init(self, context: Any) -> None:
        super().init(context)
        self.store = context.get_state_store("counts")

    def process(self, record: Record[Any, Any]) -> None:
        count = (self.store.get(record.key) or 0) + 1
        self.store.put(record.key, count)
        if record.value == "commit":
            self.context.commit()
        self.context.forward(record.with_value(count))

    def close(self) -> None:
        Counting.closed += 1


def counting() -> Topology:
    topology = Topology()
    topology.add_source("source", "in")
    topology.add_processor("count", Counting, "source")
    topology.add_state_store(key_value_store("counts", key=serdes.STRING, value=serdes.INT64), "count")
    topology.add_sink("sink", "out", "count", value=serdes.INT64)
    return topology


def counting_kit(**options: Any) -> Kit:
    kit = Kit(counting(), stores=["counts"], **options)
    kit.producer.track(["app-counts-changelog"])
    return kit
