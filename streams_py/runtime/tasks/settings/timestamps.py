"""Built-in timestamp extractors, for a source or for ``default.timestamp.extractor`` (KIP-93).

A record's timestamp is *invalid* if it is negative: very old producers sent no timestamp.

===========================  ==============================================  ====================================
function                     name in a configuration file                    Kafka Streams' class
===========================  ==============================================  ====================================
fail_on_invalid_timestamp    ``fail_on_invalid`` (default)                   FailOnInvalidTimestamp
log_and_skip_invalid         ``log_and_skip``                                LogAndSkipOnInvalidTimestamp
partition_time_if_invalid    ``use_partition_time``                          UsePartitionTimeOnInvalidTimestamp
wall_clock_time              ``wall_clock``                                  WallclockTimestampExtractor
===========================  ==============================================  ====================================
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from streams_py.errors import StreamsError
from streams_py.topology.declare.nodes import TimestampExtractor

__all__ = [
    "EXTRACTORS",
    "fail_on_invalid_timestamp",
    "log_and_skip_invalid",
    "partition_time_if_invalid",
    "wall_clock_time",
]

_log = logging.getLogger(__name__)


def fail_on_invalid_timestamp(key: Any, value: Any, record_timestamp_ms: int, partition_time_ms: int) -> int:
    """Return the record's timestamp. An invalid timestamp is an error, which stops the stream thread."""
    if record_timestamp_ms < 0:
        raise StreamsError(
            f"the record has no valid timestamp ({record_timestamp_ms}); use another extractor to skip such records or "
            f"to assign them a time"
        )
    return record_timestamp_ms


def log_and_skip_invalid(key: Any, value: Any, record_timestamp_ms: int, partition_time_ms: int) -> int:
    """Return the record's timestamp. A record with an invalid timestamp is dropped."""
    if record_timestamp_ms < 0:
        _log.warning("skipping a record with invalid timestamp %d", record_timestamp_ms)
    return record_timestamp_ms


def partition_time_if_invalid(key: Any, value: Any, record_timestamp_ms: int, partition_time_ms: int) -> int:
    """Return the record's timestamp, or the partition time if it is invalid. An error while that is unknown, too."""
    if record_timestamp_ms >= 0:
        return record_timestamp_ms
    if partition_time_ms < 0:
        raise StreamsError(
            f"the first record of a partition has no valid timestamp ({record_timestamp_ms}), and it has no earlier "
            f"record to take the time from"
        )
    return partition_time_ms


def wall_clock_time(key: Any, value: Any, record_timestamp_ms: int, partition_time_ms: int) -> int:
    """Return the time of processing by this machine's clock."""
    return time.time_ns() // 1_000_000


EXTRACTORS: Final[Mapping[str, TimestampExtractor]] = {
    "fail_on_invalid": fail_on_invalid_timestamp,
    "log_and_skip": log_and_skip_invalid,
    "use_partition_time": partition_time_if_invalid,
    "wall_clock": wall_clock_time,
}
"""Extractors by the names for configuration files."""
