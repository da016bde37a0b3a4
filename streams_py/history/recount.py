"""Checks that a run has read its inputs completely: a second client counts the records, and the counts are compared.

Only the run itself knows which records it has read, so its results cannot show a missing record. Offsets cannot show it
either: transaction markers, aborted records and compaction leave gaps. The second count comes from
:mod:`streams_py.adapters.confluent.bulk.plain_count`, which shares no code with the readers.

The cluster may delete or compact records between the two counts, so the second count may be smaller. A larger second
count means that the run has missed records.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final, NamedTuple, TypeAlias

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.adapters.confluent.bulk.plain_count import PlainCount, count_records
from streams_py.adapters.confluent.bulk.same_topic import SameTopic
from streams_py.adapters.confluent.settings import Settings
from streams_py.errors import StreamsError

InputRange: TypeAlias = "tuple[str, int, int, int]"
"""Topic, partition, first offset, end offset (exclusive)."""

_ALL_OFFSETS_MAX: Final = 1_000_000
"""Largest number of offsets for which all partitions are counted. That takes seconds."""
_AT_ONCE: Final = 4


class RecountClients(NamedTuple):
    """Settings of the clients that count."""

    consumer: Settings
    admin: Settings
    patience_ms: int


class Recounted(NamedTuple):
    """The result of the second count: records in ``partitions`` of the ``of_partitions`` non-empty input partitions."""

    records: int
    partitions: int
    of_partitions: int

    def __str__(self) -> str:
        return (
            f"a second client counted {self.records:,} records in {self.partitions:,} of {self.of_partitions:,} input "
            "partitions, which matches the records read"
        )


def sample_of(ranges: Sequence[InputRange], seed: str, *, whole: bool) -> list[InputRange]:
    """Choose the ranges to count: all with ``whole`` or if they are small, otherwise one per topic by ``seed``."""
    filled = [of for of in ranges if of[2] < of[3]]
    if whole or sum(end - start for _, _, start, end in filled) <= _ALL_OFFSETS_MAX:
        return filled
    chosen = random.Random(seed)
    by_topic = {topic: [of for of in filled if of[0] == topic] for topic in sorted({of[0] for of in filled})}
    return [chosen.choice(of_topic) for of_topic in by_topic.values()]


def recount(
    clients: RecountClients,
    ranges: Sequence[InputRange],
    read: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
    seed: str,
    *,
    whole: bool = False,
    before_ms: int | None = None,
    from_ms: int | None = None,
) -> Recounted:
    """Count the inputs again and compare the counts.

    Args:
        clients: settings of the clients that count.
        ranges: the ranges that the run had to read.
        read: partition -> number of records that the run has read; 0 for a missing partition.
        topic_ids: ids of the topics.
        seed: decides which partitions of large inputs are counted.
        whole: count all partitions.
        before_ms: the run read only records with an earlier timestamp.
        from_ms: the run read only records with this timestamp or a later one.

    Raises:
        StreamsError: the run has missed records, or has read records twice.
    """
    counted = sample_of(ranges, seed, whole=whole)
    with closing(LogAdmin(clients.admin, timeout_ms=clients.patience_ms)) as admin:
        shrinking = _shrinking(admin, {topic for topic, *_ in counted})

    def check(of: InputRange) -> int:
        partition = TopicPartition(of[0], of[1])
        found = _count(clients, of, topic_ids.get(of[0]), before_ms, from_ms)
        ours = read.get(partition, 0)
        may_be_less = of[0] in shrinking or found.first > of[2]
        if found.records > ours or (found.records < ours and not may_be_less):
            raise StreamsError(
                f"{partition} has {found.records:,} records from offset {found.first:,} to {of[3]:,}, but the run read "
                f"{ours:,}, so the results are wrong: do not use them, run `bootstrap abort` for a warm start, and "
                "please report this with the topic's configuration, and whether producers use transactions"
            )
        return found.records

    with ThreadPoolExecutor(_AT_ONCE) as several:
        records = sum(several.map(check, counted))
    return Recounted(records, len(counted), sum(start < end for _, _, start, end in ranges))


def _count(
    clients: RecountClients, of: InputRange, topic_id: str | None, before_ms: int | None, from_ms: int | None
) -> PlainCount:
    topic, partition, start, end = of
    with SameTopic(clients.admin, topic, topic_id, timeout_ms=clients.patience_ms) as same:
        found = count_records(
            clients.consumer,
            TopicPartition(topic, partition),
            start,
            end,
            before_ms=before_ms,
            from_ms=from_ms,
            patience_ms=clients.patience_ms,
        )
        same.check_now()
    return found


def _shrinking(admin: LogAdmin, topics: Collection[str]) -> set[str]:
    """Return topics that may lose records between two offsets: compacted topics, and topics with unknown settings."""
    return {topic for topic, found in admin.delete_retention_ms(topics).items() if found is not None}
