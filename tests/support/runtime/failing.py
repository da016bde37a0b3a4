"""Topologies in which a record fails, handlers that record their calls, producers that reject records."""

from __future__ import annotations

from typing import Any

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError, ProductionError
from streams_py.runtime.tasks.settings.handlers import Answer, ErrorContext
from streams_py.testing.memory_clients import MemoryProducer
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.topology import Topology

IN = TopicPartition("in", 0)


class Forwarding(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


class Picky(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        if record.value == "bad":
            raise ValueError("cannot stand it")
        self.context.forward(record)


def chain(**sink: Any) -> Topology:
    topology = Topology()
    topology.add_source("source", "in")
    topology.add_processor("outer", Forwarding, "source")
    topology.add_processor("inner", Picky, "outer")
    topology.add_sink("sink", "out", "inner", **sink)
    return topology


class Asked:
    """A handler that records its calls."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.calls: list[tuple[ErrorContext, Any, Exception]] = []

    def __call__(self, context: ErrorContext, record: Any, error: Exception) -> Answer:
        self.calls.append((context, record, error))
        return self.answer


class Unreachable(MemoryProducer):
    """A producer whose queue is full for some topics."""

    def __init__(self, *full: str) -> None:
        super().__init__()
        self.full = set(full)
        self.errors: list[ProductionError] = []
        take = self.produce

        def produce(topic: str, *rest: Any) -> None:
            if self.errors:
                raise self.errors.pop(0)
            if topic in self.full:
                raise BrokerUnavailableError("the queue is full")
            take(topic, *rest)

        self.produce = produce

    def check(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
