"""What one poll of a consumer gave, by partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streams_protocol.types import TopicPartition
from streams_py.ports import RawRecord

__all__ = ["by_partition"]


def by_partition(records: Sequence[RawRecord]) -> Mapping[TopicPartition, list[RawRecord]]:
    """Records of each partition, in their order."""
    batches: dict[TopicPartition, list[RawRecord]] = {}
    for record in records:
        batches.setdefault(TopicPartition(record.topic(), record.partition()), []).append(record)
    return batches
