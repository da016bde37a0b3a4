"""Checks whether topics would soon delete the records that a history writes to them.

Topics delete by age, and written records keep their old timestamps. If functions create the timestamps, the check
assumes that they are close to the timestamps of the input. Topics also delete by size. The size of outputs and state is
not known in advance, so the check assumes the size of the inputs. Both are estimates, so the user may overrule them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final, Protocol

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.answers import TopicRetention
from streams_py.errors import ConfigError
from streams_py.history.bootstrap import BootstrapPlan
from streams_py.ports.rights import CLUSTER, missing_right

_ACCEPT: Final = "or pass --accept-retention"


class RetentionCluster(Protocol):
    """The requests to the cluster that these checks need."""

    def partition_counts(self) -> Mapping[str, int]: ...
    def retentions(self, topics: Collection[str]) -> Mapping[str, TopicRetention]: ...
    def first_at(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]: ...
    def bytes_of(self, partitions: Collection[TopicPartition]) -> int | None: ...


def check_retention(
    cluster: RetentionCluster, sinks: Mapping[str, int], ranges: Collection[tuple[str, int, int, int]], now_ms: int
) -> None:
    """Raise ConfigError when an output topic deletes records of the inputs' age, or keeps fewer bytes than they have.

    Args:
        cluster: the cluster.
        sinks: output topic -> partitions.
        ranges: (topic, partition, first offset, end offset) of the inputs.
        now_ms: the current time.
    """
    kept = cluster.retentions(sinks)
    read = {TopicPartition(topic, p): start for topic, p, start, end in ranges if start < end}
    for topic, retention_ms in _shortest_first(kept):
        kept_from = cluster.first_at(list(read), now_ms - retention_ms) if now_ms > retention_ms else {}
        old = [at for at, offset in sorted(kept_from.items()) if offset < 0 or offset > read[at]]
        if old:
            raise _deleted_soon(topic, retention_ms, f"{old[0]} has older records")
    _check_sizes(cluster, {topic: (kept[topic].bytes, sinks[topic]) for topic in kept}, read)


def check_state_retention(cluster: RetentionCluster, plan: BootstrapPlan, now_ms: int) -> None:
    """Check the changelogs of a warm start in the same way.

    Changelogs of windows are expected to delete by age, like the windows, so only their size is checked. An existing
    changelog that deletes although it should only compact would lose state.
    """
    planned = {topic: config for topic, _, config in plan.topics if topic in plan.changelogs}
    deleting = {topic for topic, config in planned.items() if "delete" in config.get("cleanup.policy", "")}
    limits = {topic: (int(planned[topic].get("retention.bytes", -1)), plan.changelogs[topic]) for topic in deleting}
    if not plan.replace:  # with ``replace`` they are created again
        present = cluster.retentions(planned.keys() & cluster.partition_counts().keys())
        limits |= {topic: (present[topic].bytes, plan.changelogs[topic]) for topic in deleting & present.keys()}
        others = {topic: plan.changelogs[topic] for topic in present.keys() - deleting}
        check_retention(cluster, others, plan.ranges, now_ms)
    _check_sizes(cluster, limits, [TopicPartition(topic, p) for topic, p, start, end in plan.ranges if start < end])


def check_retention_of(
    kept: Mapping[str, TopicRetention], counts: Mapping[str, int], oldest_ms: Mapping[str, int], size: int, now_ms: int
) -> None:
    """Check outputs in the same way when the inputs are archives.

    Args:
        kept: retention of the output topics.
        counts: partition counts of the output topics.
        oldest_ms: archived topic -> oldest timestamp.
        size: bytes of all keys and values in the archives.
        now_ms: the current time.
    """
    for topic, retention_ms in _shortest_first(kept):
        old = sorted(name for name, oldest in oldest_ms.items() if oldest < now_ms - retention_ms)
        if old:
            raise _deleted_soon(topic, retention_ms, f"the archive of {old[0]} has older records")
    for topic, (most, count) in _limited({topic: (kept[topic].bytes, counts[topic]) for topic in kept}).items():
        if size > most * count:
            raise _too_large(topic, most, count, f"the archives have {size:,} bytes of keys and values")


def _check_sizes(
    cluster: RetentionCluster, limits: Mapping[str, tuple[int, int]], read: Collection[TopicPartition]
) -> None:
    """Compare the size of the inputs with ``limits``: topic -> (bytes that it keeps of a partition, partitions)."""
    limited = _limited(limits)
    size = cluster.bytes_of(read) if limited else 0
    for topic, (most, count) in limited.items():
        if size is None:
            unknown = f"the size of the input partitions is unknown: {missing_right('DESCRIBE', CLUSTER)}"
            raise _too_large(topic, most, count, unknown)
        if size > most * count:
            raise _too_large(topic, most, count, f"the input partitions take {size:,} bytes")


def _limited(limits: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    return {topic: limit for topic, limit in sorted(limits.items()) if limit[0] >= 0}


def _shortest_first(kept: Mapping[str, TopicRetention]) -> list[tuple[str, int]]:
    found = [(topic, retention.ms) for topic, retention in kept.items() if retention.ms >= 0]
    return sorted(found, key=lambda found: (found[1], found[0]))


def _deleted_soon(topic: str, retention_ms: int, where: str) -> ConfigError:
    return ConfigError(
        f"topic {topic} keeps records for {timedelta(milliseconds=retention_ms)} (its retention.ms = {retention_ms}), "
        f"but {where}: their outputs would be deleted soon; raise retention.ms until consumers have read them, "
        + _ACCEPT
    )


def _too_large(topic: str, most: int, count: int, size: str) -> ConfigError:
    return ConfigError(
        f"topic {topic} keeps {most:,} bytes of each of its {count} partitions (its retention.bytes = {most}), but "
        f"{size}: if the outputs are as large, the oldest are deleted soon; raise retention.bytes (-1 = no limit), "
        + _ACCEPT
    )
