"""What one poll of a consumer gave, by partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from streams_protocol.types import TopicPartition
from streams_py.ports import RawRecord

__all__ = ["by_partition"]


def by_partition(
    records: Sequence[RawRecord], only_topic: str | None = None
) -> Mapping[TopicPartition, list[RawRecord]]:
    """Records of each partition, in their order. ``only_topic``: that of all of them, so that nobody has to look."""
    batches: dict[TopicPartition, list[RawRecord]] = {}
    if records:
        kind = type(records[0])  # its own functions, called without a line of Python for each record
        by_topic = groupby(records, kind.topic) if only_topic is None else ((only_topic, records),)
        for topic, of_topic in by_topic:
            for number, run in groupby(of_topic, kind.partition):
                batches.setdefault(TopicPartition(topic, number), []).extend(run)
    return batches
