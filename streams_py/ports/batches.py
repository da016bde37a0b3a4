"""Groups the records of one poll by partition."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby

from streams_protocol.types import TopicPartition
from streams_py.ports import RawRecord


def only_topic_of(partitions: Collection[TopicPartition]) -> str | None:
    """Return the topic of all partitions; None without partitions or with several topics.

    A consumer delivers only records of its assigned partitions. So with a single topic, the topic of each record need
    not be read.
    """
    topics = {partition.topic for partition in partitions}
    return topics.pop() if len(topics) == 1 else None


def runs_of(
    records: Sequence[RawRecord], only_topic: str | None = None
) -> Iterator[tuple[TopicPartition, Iterator[RawRecord]]]:
    """Yield runs of consecutive records of the same partition. Consume each run before requesting the next one.

    Args:
        only_topic: Topic of all records; None if there may be several topics.
    """
    if records:
        kind = type(records[0])  # unbound C methods, so that grouping runs no Python code per record
        by_topic = groupby(records, kind.topic) if only_topic is None else ((only_topic, records),)
        for topic, of_topic in by_topic:
            for number, run in groupby(of_topic, kind.partition):
                yield TopicPartition(topic, number), run


def by_partition(
    records: Sequence[RawRecord], only_topic: str | None = None
) -> Mapping[TopicPartition, list[RawRecord]]:
    """Return the records of each partition in their order; ``only_topic`` as for :func:`runs_of`."""
    batches: dict[TopicPartition, list[RawRecord]] = {}
    for partition, run in runs_of(records, only_topic):
        batches.setdefault(partition, []).extend(run)
    return batches
