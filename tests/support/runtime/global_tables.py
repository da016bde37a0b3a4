"""Clients with global tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streams_py.errors import BrokerUnavailableError
from streams_py.runtime.client.kafka_streams import KafkaStreams
from streams_py.serdes import STRING
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.declare.stores import key_value_store
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology
from tests.support.runtime.world import World


class Upper(Processor[str, str, None, None]):
    """Stores values in capitals."""

    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("names").put(record.key, record.value.upper())


class Waiting(Upper):
    """Requires an unavailable service until the test releases it."""

    is_away = True
    tries = 0

    def process(self, record: Record[str, str]) -> None:
        if self.is_away and record.value == "three":
            Waiting.tries += 1
            raise BrokerUnavailableError("the registry is away")
        super().process(record)


def table() -> Topology:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.global_table("g", store="names")
    return builder.build()


def custom(processor: type[Upper] = Upper) -> Topology:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.add_global_store(key_value_store("names", logging=False), "g", processor)
    return builder.build()


def client(world: World, topology: Topology, path: Path, **more: Any) -> KafkaStreams:
    config: dict[str, Any] = {
        "application.id": "app",
        "bootstrap.servers": "localhost:1",
        "state.dir": str(path),
        "task.timeout.ms": 1000,
        "dsl.store.suppliers.class": "rocksdb",
    }
    listeners = {name: more.pop(name, None) for name in ("restore_listener", "on_state")}
    return KafkaStreams(topology, config | more, clients=world, **listeners)
