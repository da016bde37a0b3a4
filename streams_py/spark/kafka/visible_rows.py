"""Finds the first record of a micro-batch, so that offsets without records do not count as rows.

A stream with ``rows.per.trigger`` plans in offsets. After an aborted transaction, or after compaction, possibly none of
the offsets has a record, but an empty micro-batch takes as long as a full one. So the stream looks up the first record
after its position and counts from there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from streams_py.adapters.confluent.bulk.bulk_settings import bulk_consumer_settings
from streams_py.adapters.confluent.bulk.range_reader import ReadLimits, first_record
from streams_py.errors import StreamsError
from streams_py.spark.kafka.options import ReaderOptions
from streams_py.spark.kafka.stream_offsets import stream_partition

_log = logging.getLogger(__name__)

_CLIENT_ID: Final = "streams-kafka-planner"
_PARTITIONS_MAX: Final = 16
"""Partitions that are checked for one micro-batch. A check takes some milliseconds."""
_PATIENCE_MS: Final = 10_000


def first_rows(
    options: ReaderOptions, begins: Mapping[str, int], ends: Mapping[str, int], max_rows: int
) -> dict[str, int]:
    """Return the offset of the first record of each partition, or its end if it has no record.

    Partitions that are not looked up keep their position.

    Args:
        options: Options of the stream.
        begins: Position of each partition, by key.
        ends: End of each partition. Records after it are not considered.
        max_rows: Rows of the micro-batch. If all partitions together have fewer offsets, nothing is looked up.
    """
    found = dict(begins)
    lags = {key: end - begins[key] for key, end in ends.items() if end > begins[key]}
    if sum(lags.values()) <= max_rows:
        return found
    settings = bulk_consumer_settings(options.resolved(), client_id=_CLIENT_ID, read_committed=options.read_committed)
    limits = ReadLimits(patience_ms=min(_PATIENCE_MS, options.poll_timeout_ms), skip_gone=options.skip_gone)
    for key in sorted(lags, key=lambda key: (-lags[key], key))[:_PARTITIONS_MAX]:
        try:
            found[key] = first_record(settings, *stream_partition(key), begins[key], ends[key], limits)
        except StreamsError as error:  # the worker that reads the range reports it
            _log.debug("%s: finding the first record after offset %d failed: %s", key, begins[key], error)
    return found
