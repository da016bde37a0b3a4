"""The offsets between which inputs are read from Kafka. They are fixed once, so every read has the same records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_consumer_settings
from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.adapters.confluent.bulk.range_reader import ReadLimits, read_messages
from streams_py.adapters.confluent.bulk.same_topic import believed, check_same_topics
from streams_py.spark.kafka.options import PositionKind, ReaderOptions, for_reader, reader_options
from streams_py.spark.kafka.planning import REMEDY, RangePlan, ids_option, log_admin, plan_of
from streams_py.spark.kafka.pushdown import EVERYTHING, Bounds
from streams_py.spark.kafka.ranges import OffsetRange, clipped, partitions_of, positions

_CLIENT_ID: Final = "streams-history"
_TAIL: Final = 10_000
"""Number of offsets at the end of a partition that are read to find the newest committed record."""


def fixed_options(topic: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return options of ``streams-kafka`` for one topic, with fixed offsets as ``starting`` and ``ending``, and its id.

    Raises:
        ConfigError: the topic does not exist.
        StreamsError: the topic was created again since the given options were fixed.
    """
    options = reader_options({**given, "topics": topic}, streaming=False)
    admin = log_admin(options, _CLIENT_ID)

    def look() -> dict[str, str]:
        ids = admin.topic_ids([topic])
        check_same_topics(options.topic_ids, ids, "was planned to be read", REMEDY)
        partitions = partitions_of(options, admin)
        starts, ends = (
            positions(position, partitions, admin, read_committed=options.read_committed, option=option)
            for option, position in (("starting", options.starting), ("ending", options.ending))
        )
        if options.read_committed and options.ending.kind is PositionKind.LATEST:
            # A position after the last stable offset is in an open transaction, so it has no records to read yet.
            behind = [at for at in partitions if starts[at] > ends[at]]
            written = admin.log_ends(behind, read_committed=False)
            starts |= {at: ends[at] for at in behind if starts[at] <= written[at]}
        text = {
            option: json.dumps({topic: {str(at.partition): offset for at, offset in sorted(offsets.items())}})
            for option, offsets in (("starting", starts), ("ending", ends))
        }
        return text | ids_option(topic, {**ids, **options.topic_ids})

    try:
        found = believed(look, admin)
    finally:
        admin.close()
    return {**for_reader(given), **found}


def newest_ms(topic: str, given: Mapping[str, str], fixed: Mapping[str, str] | None = None) -> int | None:
    """Find the largest timestamp of a topic that is read to its end, without reading the whole topic.

    The cluster reports the newest record of each partition, but it may belong to an open or aborted transaction. So
    this function reads that record, or the end of the partition, as a reader sees it.

    Args:
        topic: name of the topic.
        given: options of ``streams-kafka`` that the user has passed.
        fixed: the same options with the offsets that :func:`fixed_options` has fixed.

    Returns:
        The timestamp in ms. None when the topic is empty, when it is not read to its end, or when the timestamp cannot
        be found without reading the whole topic.
    """
    options = reader_options({**given, "topics": topic}, streaming=False)
    if options.ending.kind is not PositionKind.LATEST:
        return None
    options, (ranges, *_) = ranges_in(topic, fixed or fixed_options(topic, given), None)
    admin = log_admin(options, _CLIENT_ID)
    newest: int | None = None
    try:
        named = admin.newest_records([TopicPartition(of.topic, of.partition) for of in ranges])
        for of in sorted(ranges, key=lambda of: -named[TopicPartition(*of[:2])].timestamp_ms):
            record = named[TopicPartition(*of[:2])]
            if newest is not None and record.timestamp_ms <= newest:
                break
            found = None
            if of.start <= record.offset < of.end:
                found = max(_timestamps(options, of._replace(start=record.offset, end=record.offset + 1)), default=None)
            if found is None and record.timestamp_ms >= 0:
                tail = of._replace(start=max(of.start, of.end - _TAIL))
                found = max((-1 if newest is None else newest, *_timestamps(options, tail)))
                if tail.start > of.start and 0 <= _first_after(admin, of, found) < tail.start:
                    return None
            newest = max((each for each in (newest, found) if each is not None and each >= 0), default=None)
    finally:
        admin.close()
    return newest


def _first_after(admin: LogAdmin, of: OffsetRange, timestamp_ms: int) -> int:
    """Return the first offset whose record is newer; -1 without a newer record."""
    at = TopicPartition(of.topic, of.partition)
    return admin.first_at([at], timestamp_ms + 1)[at]


def _timestamps(options: ReaderOptions, of: OffsetRange) -> Iterable[int]:
    settings = bulk_consumer_settings(options.resolved(), client_id=_CLIENT_ID, read_committed=options.read_committed)
    limits = ReadLimits(patience_ms=options.poll_timeout_ms, skip_gone=options.skip_gone)
    for records in read_messages(settings, of.topic, of.partition, of.start, of.end, limits):
        yield from (record.timestamp()[1] for record in records)


def count_partitions(topic: str, given: Mapping[str, str]) -> int:
    """Return the partition count of a topic that a stream will read. Raises ConfigError when it does not exist."""
    options = reader_options({**given, "topics": topic}, streaming=True)
    admin = log_admin(options, _CLIENT_ID)
    try:
        return len(believed(lambda: partitions_of(options, admin), admin))
    finally:
        admin.close()


def ranges_of(topic: str, options: Mapping[str, str]) -> list[tuple[str, int, int, int]]:
    """Return the ranges in options of :func:`fixed_options`: topic, partition, first offset, end offset."""
    starts, ends = (json.loads(options[key])[topic] for key in ("starting", "ending"))
    return [(topic, int(partition), start, ends[partition]) for partition, start in starts.items()]


def ranges_in(topic: str, given: Mapping[str, str], since_ms: int | None) -> tuple[ReaderOptions, RangePlan]:
    """Return the options to read a topic with fixed offsets, and its ranges.

    Ranges that are empty or older than ``since_ms`` are left out.

    Raises:
        ConfigError: the topic or its offsets do not exist, or no longer exist.
    """
    options = reader_options({**given, "topics": topic}, streaming=False)
    bounds = EVERYTHING if since_ms is None else Bounds(timestamp_ms=since_ms)
    admin = log_admin(options, _CLIENT_ID)
    try:
        plan = plan_of(options, admin)
        return options, plan._replace(ranges=clipped(plan.ranges, bounds, admin))
    finally:
        admin.close()
