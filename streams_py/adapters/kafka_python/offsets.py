"""Committed offsets of a member, in the types of the port. Coroutines of the network thread."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kafka.structs import OffsetAndMetadata as KafkaOffset
from kafka.structs import TopicPartition as KafkaPartition

from streams_protocol.types import TopicPartition
from streams_py.errors import TaskMigrated
from streams_py.ports import OffsetAndMetadata

__all__ = ["commit_owned", "fetch_committed"]


async def commit_owned(
    coordinator: Any,
    owned: Collection[TopicPartition],
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    timeout_ms: int,
) -> None:
    """Commit, or raise TaskMigrated when not all are owned; kafka-python's errors otherwise.

    The broker checks who commits, not for what: a commit for partitions of others would rewind them.
    """
    foreign = sorted(offsets.keys() - set(owned))
    if foreign:
        raise TaskMigrated(f"commit: {', '.join(map(str, foreign))} not owned by this member any more")
    wire = {KafkaPartition(*partition): KafkaOffset(at.offset, at.metadata, -1) for partition, at in offsets.items()}
    await coordinator._commit_offsets_sync_async(wire, timeout_ms=timeout_ms)


async def fetch_committed(
    coordinator: Any, partitions: Collection[TopicPartition], timeout_ms: int
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """Committed positions, None where there is none."""
    found = await coordinator.fetch_committed_offsets_async(
        {KafkaPartition(*partition) for partition in partitions}, timeout_ms=timeout_ms
    )
    result: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(partitions)
    for (topic, partition), at in found.items():
        result[TopicPartition(topic, partition)] = OffsetAndMetadata(at.offset, at.metadata or "")
    return result
