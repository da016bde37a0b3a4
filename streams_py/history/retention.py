"""Whether topics would delete what a history writes to them: its records have their old timestamps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from streams_protocol.types import TopicPartition
from streams_py.errors import ConfigError

__all__ = ["RetentionCluster", "check_retention", "check_retention_of"]


class RetentionCluster(Protocol):
    """What is asked of the cluster."""

    def retention_ms(self, topics: Collection[str]) -> Mapping[str, int]: ...
    def first_at(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]: ...


def check_retention(
    cluster: RetentionCluster, sinks: Collection[str], ranges: Collection[tuple[str, int, int, int]], now_ms: int
) -> None:
    """ConfigError when a topic of ``sinks`` deletes records that are as old as the oldest of ``ranges`` (topic,
    partition, first offset, end)."""
    read = {TopicPartition(topic, p): start for topic, p, start, end in ranges if start < end}
    for topic, retention_ms in _shortest_first(cluster.retention_ms(sinks)):
        kept_from = cluster.first_at(list(read), now_ms - retention_ms) if now_ms > retention_ms else {}
        old = [at for at, offset in sorted(kept_from.items()) if offset < 0 or offset > read[at]]
        if old:
            raise _deleted_soon(topic, retention_ms, f"{old[0]} has older ones")


def check_retention_of(retentions_ms: Mapping[str, int], oldest_ms: Mapping[str, int], now_ms: int) -> None:
    """The same for archives, whose oldest timestamps are known. ``retentions_ms``: of topics that are written."""
    for topic, retention_ms in _shortest_first(retentions_ms):
        old = sorted(name for name, oldest in oldest_ms.items() if oldest < now_ms - retention_ms)
        if old:
            raise _deleted_soon(topic, retention_ms, f"the archive of {old[0]} has older ones")


def _shortest_first(retentions_ms: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(retentions_ms.items(), key=lambda found: (found[1], found[0]))


def _deleted_soon(topic: str, retention_ms: int, where: str) -> ConfigError:
    return ConfigError(
        f"topic {topic} keeps records for {timedelta(milliseconds=retention_ms)} (its retention.ms), and {where}: what "
        "is written for them is deleted soon; raise retention.ms until readers have it, or pass --accept-retention"
    )
