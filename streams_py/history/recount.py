"""Whether a run has read its inputs whole: a second client counts them, and the two counts are compared.

What a run has read is known from the run alone, so comparing its results with each other cannot show what it has not
read. Offsets do not tell either: markers of transactions, aborted records and compaction leave gaps. The second count
is that of :mod:`streams_py.adapters.confluent.bulk.plain_count`, which shares no code with the readers.

The cluster may delete or compact records between the two counts. Then the second count may be the smaller one. It is
never larger than what was read, unless the run has left out records.
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

__all__ = ["InputRange", "RecountClients", "Recounted", "recount", "sample_of"]

InputRange: TypeAlias = "tuple[str, int, int, int]"
"""Topic, partition, first offset, end."""

_ALL_OFFSETS_MAX: Final = 1_000_000
"""Up to this many offsets are counted whole, which takes seconds."""
_AT_ONCE: Final = 4


class RecountClients(NamedTuple):
    """Settings of the clients that count."""

    consumer: Settings
    admin: Settings
    patience_ms: int


class Recounted(NamedTuple):
    """What a second client has counted. ``partitions`` of ``of_partitions`` that have offsets to read."""

    records: int
    partitions: int
    of_partitions: int

    def __str__(self) -> str:
        return (
            f"a second client has counted {self.records:,} records in {self.partitions:,} of {self.of_partitions:,} "
            "input partitions, and as many were read"
        )


def sample_of(ranges: Sequence[InputRange], seed: str, *, whole: bool) -> list[InputRange]:
    """The ranges to count: all of them with ``whole``, or when they are small; else one of each topic. ``seed`` decides
    which one."""
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
    """Count inputs again and compare.

    Args:
        clients: settings of the clients that count.
        ranges: what the run was to read.
        read: records that the run has read, by partition. A partition that is missing had none.
        topic_ids: ids of the topics that the ranges are of.
        seed: decides which partitions of large inputs are counted.
        whole: count all partitions.
        before_ms: only records with an earlier timestamp were read.
        from_ms: only records with this timestamp or a later one were read.

    Raises:
        StreamsError: the run has left out records, or has read some twice.
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
                f"{partition} has {found.records:,} records from offset {found.first:,} to {of[3]:,}, and {ours:,} "
                "were read of it, so the results are wrong: do not use them, `bootstrap abort` a warm start, and "
                "please report this with the topic's configuration, and whether it is written in transactions"
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
    """Topics whose records may become fewer between two offsets: compacted ones, and those that may not be asked."""
    return {topic for topic, found in admin.delete_retention_ms(topics).items() if found is not None}
