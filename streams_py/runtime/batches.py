"""What one poll of a consumer gave, by partition."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby

from streams_protocol.types import TopicPartition
from streams_py.ports import RawRecord

__all__ = ["by_partition", "only_topic_of", "runs_of"]


def only_topic_of(partitions: Collection[TopicPartition]) -> str | None:
    """The topic of all of them. A consumer delivers what it reads and nothing else, so nobody has to look at each
    record's; None when there are several, or none."""
    topics = {partition.topic for partition in partitions}
    return topics.pop() if len(topics) == 1 else None


def runs_of(
    records: Sequence[RawRecord], only_topic: str | None = None
) -> Iterator[tuple[TopicPartition, Iterator[RawRecord]]]:
    """Records in a row that are of one partition; each run is to be taken before the next. ``only_topic``: that of all
    records."""
    if records:
        kind = type(records[0])  # its own functions, called without a line of Python for each record
        by_topic = groupby(records, kind.topic) if only_topic is None else ((only_topic, records),)
        for topic, of_topic in by_topic:
            for number, run in groupby(of_topic, kind.partition):
                yield TopicPartition(topic, number), run


def by_partition(
    records: Sequence[RawRecord], only_topic: str | None = None
) -> Mapping[TopicPartition, list[RawRecord]]:
    """Records of each partition, in their order; ``only_topic`` as above."""
    batches: dict[TopicPartition, list[RawRecord]] = {}
    for partition, run in runs_of(records, only_topic):
        batches.setdefault(partition, []).extend(run)
    return batches
