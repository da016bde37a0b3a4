"""Global stores, filled from records."""

from __future__ import annotations

from pathlib import Path

from streams_protocol.types import TopicPartition
from streams_py.serdes import INT64, STRING
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.opening.stores import StoreDefaults
from streams_py.state.tasks.global_stores import GlobalStores
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.declare.stores import StoreBuilder, StoreKind
from streams_py.topology.physical.assembly import GlobalStore

PARTITIONS = [TopicPartition("g", 0), TopicPartition("g", 1)]

KEYS = 997


def opened(
    folder: Path | str, kind: StoreKind = StoreKind.TIMESTAMPED_KEY_VALUE
) -> tuple[GlobalStores, StateDirectory]:
    """Two tables of one topic."""
    directory = StateDirectory(str(folder), "app", warns_of_temporary=False)
    directory.open()
    builders = [StoreBuilder(name, kind, STRING, INT64, persistent=True, logging=False) for name in "st"]
    stores = GlobalStores(
        {builder.name: (GlobalStore("source", "processor", builder, is_table=True), "g") for builder in builders},
        application_id="app",
        directory=directory,
        defaults=StoreDefaults(),
    )
    stores.open()
    return stores, directory


def record(partition: TopicPartition, number: int) -> MemoryRecord:
    key = f"{partition.partition} {number * 577 % KEYS}".encode()
    return MemoryRecord(*partition, number, key, number.to_bytes(8, "big"), timestamp_ms=1)


def restore(stores: GlobalStores, partition: TopicPartition, count: int) -> None:
    first = max(0, stores.restore_position(partition))
    stores.restore(partition, [record(partition, number) for number in range(first, first + count)], in_bulk=True)
