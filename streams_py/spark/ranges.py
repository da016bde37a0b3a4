"""Which offsets a batch or a micro-batch reads: plans, made on the driver, of plain numbers.

A range is one partition's offsets from ``start`` to ``end``, exclusive. Ends are fixed once, when the plan is made: a
topic that grows meanwhile changes nothing, and a repeated Spark task reads the same records again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from streams_protocol.types import TopicPartition
from streams_py.errors import ConfigError, StreamsError
from streams_py.ports import BEGINNING, END
from streams_py.spark.options import Position, PositionKind, ReaderOptions

__all__ = [
    "LogOffsets",
    "OffsetRange",
    "check_still_there",
    "limited",
    "partitions_of",
    "plan_ranges",
    "positions",
    "stream_key",
    "stream_partition",
]


class OffsetRange(NamedTuple):
    """Offsets ``start`` up to, not including, ``end`` of one partition."""

    topic: str
    partition: int
    start: int
    end: int


class LogOffsets(Protocol):
    """What is asked of the cluster (``streams_py.adapters.confluent.bulk.log_admin.LogAdmin``)."""

    def partition_counts(self) -> Mapping[str, int]: ...
    def log_starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def log_ends(
        self, partitions: Sequence[TopicPartition], *, read_committed: bool
    ) -> Mapping[TopicPartition, int]: ...
    def first_at(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]: ...
    def committed_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]: ...


def partitions_of(options: ReaderOptions, log: LogOffsets) -> list[TopicPartition]:
    """The partitions to read, ascending. ConfigError when a topic or one of its partitions does not exist."""
    counts = log.partition_counts()
    missing = sorted(options.assigned.keys() - counts.keys())
    if missing:
        servers = options.kafka["bootstrap.servers"]
        raise ConfigError(
            f"topic{'s' if len(missing) > 1 else ''} {', '.join(missing)} not found on {servers}; create it, or check "
            "the name and whether the user may describe it",
            key="topics",
        )
    found = []
    for topic, numbers in options.assigned.items():
        beyond = [number for number in numbers if number >= counts[topic]]
        if beyond:
            raise ConfigError(
                f"assign: {topic} has no partition {beyond[0]}, only 0 to {counts[topic] - 1}", key="assign"
            )
        found += [TopicPartition(topic, number) for number in numbers or range(counts[topic])]
    return sorted(found)


def positions(
    position: Position, partitions: Sequence[TopicPartition], log: LogOffsets, *, read_committed: bool, option: str
) -> dict[TopicPartition, int]:
    """The offset that a ``starting`` or ``ending`` means for each partition."""
    if not partitions:
        return {}
    if position.kind == PositionKind.EARLIEST:
        return dict(log.log_starts(partitions))
    ends = log.log_ends(partitions, read_committed=read_committed)
    if position.kind == PositionKind.LATEST:
        return dict(ends)
    if position.kind == PositionKind.TIMESTAMP:
        found = log.first_at(partitions, position.timestamp_ms)
        return {tp: ends[tp] if found[tp] < 0 else min(found[tp], ends[tp]) for tp in partitions}
    if position.kind == PositionKind.GROUP:
        committed = log.committed_offsets(position.group, partitions)
        starts = log.log_starts(partitions)
        return {tp: starts[tp] if (offset := committed[tp]) is None else offset for tp in partitions}
    return _given(position, partitions, log, ends, option)


def _given(
    position: Position,
    partitions: Sequence[TopicPartition],
    log: LogOffsets,
    ends: Mapping[TopicPartition, int],
    option: str,
) -> dict[TopicPartition, int]:
    starts: Mapping[TopicPartition, int] = {}
    found = {}
    for tp in partitions:
        offset = position.offset_of(*tp)
        if offset is None:
            raise ConfigError(
                f"{option} has no offset for partition {tp}; name every one (-2 = from the beginning)", key=option
            )
        if offset == BEGINNING:
            starts = starts or log.log_starts(partitions)
            offset = starts[tp]
        found[tp] = ends[tp] if offset == END else offset
    return found


def plan_ranges(options: ReaderOptions, log: LogOffsets) -> list[OffsetRange]:
    """The ranges of a batch, by topic, partition and offset; empty ones are left out.

    ConfigError when an explicit offset lies beyond the end of the log: those records do not exist (yet, or any more).
    """
    partitions = partitions_of(options, log)
    committed = options.read_committed
    starts = positions(options.starting, partitions, log, read_committed=committed, option="starting")
    ends = positions(options.ending, partitions, log, read_committed=committed, option="ending")
    log_ends = log.log_ends(partitions, read_committed=committed)
    ranges = []
    for tp in partitions:
        for option, offset in (("starting", starts[tp]), ("ending", ends[tp])):
            if offset > log_ends[tp]:
                raise ConfigError(
                    f"{option}: offset {offset} of {tp} is beyond the end of the log, {log_ends[tp]}; was the topic "
                    "deleted and created again?",
                    key=option,
                )
        ranges += _split(OffsetRange(*tp, starts[tp], ends[tp]), options.split_records)
    return ranges


def _split(whole: OffsetRange, records: int | None) -> list[OffsetRange]:
    if whole.start >= whole.end:
        return []
    if records is None:
        return [whole]
    starts = range(whole.start, whole.end, records)
    return [whole._replace(start=start, end=min(start + records, whole.end)) for start in starts]


# -- streams -----------------------------------------------------------------------------------------------------------


def stream_key(tp: TopicPartition) -> str:
    """A partition as a key of a stream's offsets."""
    return f"{tp.topic}/{tp.partition}"


def stream_partition(key: str) -> TopicPartition:
    """The partition of such a key."""
    topic, _, number = key.rpartition("/")
    return TopicPartition(topic, int(number))


def limited(start: Mapping[str, int], ends: Mapping[str, int], rows: int | None) -> dict[str, int]:
    """How far a micro-batch goes: to ``ends``, or ``rows`` offsets in all, shared out by lag.

    Every partition that lags gets at least one offset as long as there are enough, the largest lags first.
    """
    lags = {key: max(0, end - start.get(key, 0)) for key, end in ends.items()}
    if rows is None or sum(lags.values()) <= rows:
        return dict(ends)
    order = sorted((key for key, lag in lags.items() if lag), key=lambda key: (-lags[key], key))[:rows]
    shares = dict.fromkeys(order, 1)
    waiting = sum(lags[key] - 1 for key in order)
    left = rows - len(order)
    for key in order:
        more = (lags[key] - 1) * (rows - len(order)) // waiting if waiting else 0
        shares[key] += more
        left -= more
    for key in order:  # what rounding has left
        more = min(left, lags[key] - shares[key])
        shares[key] += more
        left -= more
    return {key: start.get(key, 0) + shares.get(key, 0) for key in ends}


def check_still_there(start: Mapping[str, int], ends: Mapping[str, int]) -> None:
    """StreamsError when a partition that was read is gone or shorter than before: it is another topic now."""
    for key, offset in start.items():
        if key not in ends:
            raise StreamsError(
                f"partition {key} that this query has read is gone; was the topic deleted, or created again with fewer "
                "partitions? Start over with a new checkpoint folder"
            )
        if ends[key] < offset:
            raise StreamsError(
                f"partition {key} ends at {ends[key]}, but this query has read it up to {offset}; was the topic "
                "deleted and created again? Start over with a new checkpoint folder"
            )
