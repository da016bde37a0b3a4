"""Plans the offsets that a batch or a micro-batch reads. The driver makes the plan; it contains only plain numbers.

A range consists of the offsets of one partition from ``start`` to ``end``, exclusive. Ends are fixed when the plan is
made. So new records do not change a plan, and a repeated Spark task reads the same records again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from streams_protocol.types import TopicPartition
from streams_py.errors import ConfigError
from streams_py.ports import BEGINNING, END
from streams_py.spark.kafka.options import INT64_MAX, Position, PositionKind, ReaderOptions
from streams_py.spark.kafka.pushdown import Bounds


class OffsetRange(NamedTuple):
    """The offsets of one partition from ``start`` to ``end``, exclusive."""

    topic: str
    partition: int
    start: int
    end: int


class LogOffsets(Protocol):
    """The requests to the cluster that plans need (``streams_py.adapters.confluent.bulk.log_admin.LogAdmin``)."""

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
    """Return the partitions to read, ascending.

    A pattern never includes the cluster's own topics, whose names begin with two underscores.

    Raises:
        ConfigError: a topic or partition does not exist, or no topic matches the pattern.
    """
    counts = log.partition_counts()
    if options.pattern is not None:
        topics = [name for name in counts if not name.startswith("__") and re.fullmatch(options.pattern, name)]
        if not topics:
            raise ConfigError(
                f"no topic on {options.kafka['bootstrap.servers']} matches topics.pattern = {options.pattern!r}; "
                "the whole name has to match, and the user must be allowed to describe the topic",
                key="topics.pattern",
            )
        return sorted(TopicPartition(topic, number) for topic in topics for number in range(counts[topic]))
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
    """Return the offset of a ``starting`` or ``ending`` position for each partition."""
    if not partitions:
        return {}
    if position.kind == PositionKind.EARLIEST:
        return dict(log.log_starts(partitions))
    ends = log.log_ends(partitions, read_committed=read_committed)
    if position.kind == PositionKind.LATEST:
        return dict(ends)
    if position.kind == PositionKind.TIMESTAMP:
        found = _first_at(position, partitions, log, option)
        return {tp: ends[tp] if found[tp] < 0 else min(found[tp], ends[tp]) for tp in partitions}
    if position.kind == PositionKind.GROUP:
        committed = log.committed_offsets(position.group, partitions)
        starts = log.log_starts(partitions)
        return {tp: starts[tp] if (offset := committed[tp]) is None else offset for tp in partitions}
    return _given(position, partitions, log, ends, option)


def _first_at(
    position: Position, partitions: Sequence[TopicPartition], log: LogOffsets, option: str
) -> Mapping[TopicPartition, int]:
    """Return the first offsets at one timestamp, or at one for each partition; -1 where all records are older."""
    if not position.by_partition:
        return log.first_at(partitions, position.timestamp_ms)
    at: dict[int, list[TopicPartition]] = {}
    given = _named(position, partitions, option, "timestamp", "")
    for tp in partitions:
        at.setdefault(given[tp], []).append(tp)
    return {tp: offset for ms, of in at.items() for tp, offset in log.first_at(of, ms).items()}


def _given(
    position: Position,
    partitions: Sequence[TopicPartition],
    log: LogOffsets,
    ends: Mapping[TopicPartition, int],
    option: str,
) -> dict[TopicPartition, int]:
    starts: Mapping[TopicPartition, int] = {}
    given = _named(position, partitions, option, "offset", " (-2 = from the beginning)")
    found = {}
    for tp in partitions:
        offset = given[tp]
        if offset == BEGINNING:
            starts = starts or log.log_starts(partitions)
            offset = starts[tp]
        found[tp] = ends[tp] if offset == END else offset
    return found


def _named(
    position: Position, partitions: Sequence[TopicPartition], option: str, what: str, hint: str
) -> dict[TopicPartition, int]:
    """Return the number that the position has for each partition.

    Raises:
        ConfigError: a partition is missing, or a partition is named that is not read.
    """
    given = position.given()
    missing = [tp for tp in partitions if tp not in given]
    if missing:
        raise ConfigError(f"{option} has no {what} for partition {missing[0]}; name every partition{hint}", key=option)
    unread = sorted(given.keys() - set(partitions))
    if unread:
        raise ConfigError(
            f"{option} names partition {unread[0]}, which is not read or does not exist; remove it", key=option
        )
    return given


def whole_ranges(options: ReaderOptions, log: LogOffsets) -> list[OffsetRange]:
    """Plan a range for each partition that has offsets to read, by topic and partition.

    A range that would start after the last stable offset is empty: its records are in an open transaction.

    Raises:
        ConfigError: an explicit offset is after the end of the log, so its record does not exist, or no longer exists.
            Or a range would end after the last stable offset, or would start after its end.
    """
    partitions = partitions_of(options, log)
    committed = options.read_committed
    starts = positions(options.starting, partitions, log, read_committed=committed, option="starting")
    ends = positions(options.ending, partitions, log, read_committed=committed, option="ending")
    stable = log.log_ends(partitions, read_committed=committed)
    beyond = [tp for tp in partitions if max(starts[tp], ends[tp]) > stable[tp]]
    written = {**stable, **(log.log_ends(beyond, read_committed=False) if committed and beyond else {})}
    ranges = []
    for tp in partitions:
        for option, offset in (("starting", starts[tp]), ("ending", ends[tp])):
            if offset > written[tp]:
                raise ConfigError(
                    f"{option}: offset {offset} of {tp} is after the end of the log, {written[tp]}; was the topic "
                    "deleted and created again?",
                    key=option,
                )
        if ends[tp] > stable[tp]:
            raise ConfigError(
                f"ending: offset {ends[tp]} of {tp} is after the last stable offset, {stable[tp]}, because a "
                "transaction is open; wait until it has ended, or set isolation=read_uncommitted",
                key="ending",
            )
        if starts[tp] < ends[tp]:
            ranges.append(OffsetRange(*tp, starts[tp], ends[tp]))
        elif starts[tp] > ends[tp] and not (starts[tp] > stable[tp] and ends[tp] == stable[tp]):
            _check_all_gone(tp, starts[tp], ends[tp], log)
    return ranges


def clipped(ranges: Sequence[OffsetRange], bounds: Bounds, log: LogOffsets) -> list[OffsetRange]:
    """Reduce the ranges to the bounds of a filter.

    The result may contain records that do not match. Spark applies the filter again.
    """
    inside = [
        of._replace(start=max(of.start, bounds.offsets.low), end=min(of.end, bounds.offsets.high + 1))
        for of in ranges
        if bounds.takes(of.topic, of.partition)
    ]
    left = [of for of in inside if of.start < of.end]
    if bounds.timestamp_ms <= 0 or not left:
        return left
    if bounds.timestamp_ms > INT64_MAX:
        return []  # above the largest possible timestamp, which a request cannot contain
    # The log has an index by timestamp: all records before the first match are older. The end offsets were requested
    # before, so if the log has no match, the range has none.
    first = log.first_at([TopicPartition(of.topic, of.partition) for of in left], bounds.timestamp_ms)
    newer = [(of, first[TopicPartition(of.topic, of.partition)]) for of in left]
    return [of._replace(start=max(of.start, at)) for of, at in newer if 0 <= at < of.end]


def _check_all_gone(tp: TopicPartition, start: int, end: int, log: LogOffsets) -> None:
    """Raise ConfigError for a range that ends before it starts, unless retention has deleted all of its records."""
    if start != log.log_starts([tp])[tp]:
        raise ConfigError(
            f"starting is offset {start} of {tp}, which is after ending, offset {end}; swap them", key="starting"
        )


def split(ranges: Sequence[OffsetRange], options: ReaderOptions) -> list[OffsetRange]:
    """Split ranges into pieces of at most ``split.records`` offsets.

    If that gives fewer pieces than ``min.partitions``, split into that number of pieces of about the same size, as far
    as there are enough offsets.
    """
    records, least = options.split_records, options.min_partitions
    sizes = [whole.end - whole.start for whole in ranges]
    counts = [1 if records is None else -(-size // records) for size in sizes]
    if least is None or sum(counts) >= least:
        steps = [size if records is None else records for size in sizes]
        cuts = [[*range(of.start, of.end, step), of.end] for of, step in zip(ranges, steps, strict=True)]
    else:
        counts = _shared_out(sizes, counts, min(least, sum(sizes)))
        cuts = [
            [whole.start + size * number // count for number in range(count + 1)]
            for whole, size, count in zip(ranges, sizes, counts, strict=True)
        ]
    return [
        whole._replace(start=low, end=high)
        for whole, of in zip(ranges, cuts, strict=True)
        for low, high in pairwise(of)
    ]


def _shared_out(sizes: Sequence[int], counts: Sequence[int], wanted: int) -> list[int]:
    """Return the number of pieces of each range, by size: ``wanted`` or a few more in total, at least ``counts``."""
    shares = [min(size, max(count, size * wanted // sum(sizes))) for size, count in zip(sizes, counts, strict=True)]
    while sum(shares) < wanted:  # the remainder of the rounding goes to the largest pieces
        shares[max(range(len(sizes)), key=lambda number: sizes[number] / shares[number])] += 1
    return shares
