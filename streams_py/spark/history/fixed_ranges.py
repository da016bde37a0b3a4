"""Where inputs from Kafka begin and end, fixed once: whoever reads them again reads the same records."""

from __future__ import annotations

import json
from collections.abc import Mapping

from streams_py.adapters.confluent.bulk.bulk_settings import bulk_admin_settings
from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.spark.kafka.options import PositionKind, ReaderOptions, for_reader, reader_options
from streams_py.spark.kafka.pushdown import EVERYTHING, Bounds
from streams_py.spark.kafka.ranges import OffsetRange, partitions_of, plan_ranges, positions

__all__ = ["count_partitions", "fixed_options", "newest_ms", "ranges_in", "ranges_of"]


def fixed_options(topic: str, given: Mapping[str, str]) -> dict[str, str]:
    """Options of ``streams-kafka`` for one topic, by our names, with offsets for ``starting`` and ``ending``.
    ConfigError when the topic does not exist."""
    options = reader_options({**given, "topics": topic}, streaming=False)
    admin = LogAdmin(bulk_admin_settings(options.resolved(), client_id="streams-history"))
    try:
        partitions = partitions_of(options, admin)
        found = {
            option: positions(position, partitions, admin, read_committed=options.read_committed, option=option)
            for option, position in (("starting", options.starting), ("ending", options.ending))
        }
    finally:
        admin.close()
    text = {
        option: json.dumps({topic: {str(at.partition): offset for at, offset in sorted(offsets.items())}})
        for option, offsets in found.items()
    }
    return {**for_reader(given), **text}


def newest_ms(topic: str, given: Mapping[str, str]) -> int | None:
    """The largest timestamp of a topic that is read to its end, as the cluster knows it; None when it is empty, or when
    it is read to somewhere else."""
    options = reader_options({**given, "topics": topic}, streaming=False)
    if options.ending.kind is not PositionKind.LATEST:
        return None
    admin = LogAdmin(bulk_admin_settings(options.resolved(), client_id="streams-history"))
    try:
        found = max(admin.newest_ms(partitions_of(options, admin)).values(), default=-1)
    finally:
        admin.close()
    return None if found < 0 else found


def count_partitions(topic: str, given: Mapping[str, str]) -> int:
    """Partitions of a topic that a stream will read. ConfigError when it does not exist."""
    options = reader_options({**given, "topics": topic}, streaming=True)
    admin = LogAdmin(bulk_admin_settings(options.resolved(), client_id="streams-history"))
    try:
        return len(partitions_of(options, admin))
    finally:
        admin.close()


def ranges_of(topic: str, options: Mapping[str, str]) -> list[tuple[str, int, int, int]]:
    """What such options say: topic, partition, first offset, end."""
    starts, ends = (json.loads(options[key])[topic] for key in ("starting", "ending"))
    return [(topic, int(partition), start, ends[partition]) for partition, start in starts.items()]


def ranges_in(topic: str, given: Mapping[str, str], since_ms: int | None) -> tuple[ReaderOptions, list[OffsetRange]]:
    """How to read a topic with fixed offsets, and its ranges, without those that are empty or older than ``since_ms``.
    ConfigError when they do not exist (any more)."""
    options = reader_options({**given, "topics": topic}, streaming=False)
    bounds = EVERYTHING if since_ms is None else Bounds(timestamp_ms=since_ms)
    admin = LogAdmin(bulk_admin_settings(options.resolved(), client_id="streams-history"))
    try:
        return options, plan_ranges(options, admin, bounds)
    finally:
        admin.close()
