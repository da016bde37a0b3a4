"""Output of a world."""

from __future__ import annotations

from streams_protocol.types import TopicPartition
from tests.support.runtime.world import World


def outputs(world: World) -> list[bytes | None]:
    return [record.value() for number in (0, 1) for record in world.records(TopicPartition("out", number))]


def offsets(world: World) -> dict[TopicPartition, int]:
    return {partition: at.offset for partition, at in world.committed.items()}
