"""The lag of a query on ``streams-kafka``, computed from Spark's progress of the query.

A Python data source cannot add metrics to the progress of a query. But the progress has the offsets at which each
micro-batch ended, and the end offsets of the topics after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams_protocol.types import TopicPartition
from streams_py.spark.kafka.stream_offsets import firsts_in, offsets_in, stream_partition
from streams_py.system.foreign_json import loads as loads_foreign


def records_behind(progress: Any) -> dict[TopicPartition, int]:
    """Return the number of offsets between the end of a micro-batch and the end of each partition at that time.

    The result has the partitions of all ``streams-kafka`` sources. If two sources read a partition, the slower one
    counts. Other sources are ignored. Transaction markers count as offsets.

    Args:
        progress: ``query.lastProgress``, one of ``query.recentProgress``, or the progress of a listener's event.
    """
    behind: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        latest, end = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
        for key, offset in latest.items():
            partition = stream_partition(key)
            behind[partition] = max(0, offset - end.get(key, 0), behind.get(partition, 0))
    return behind


def records_read(progress: Any, begun: Mapping[str, Any] | None = None) -> int:
    """Return the number of offsets that a micro-batch has read, of all ``streams-kafka`` sources.

    Transaction markers count as offsets. Spark's ``numInputRows`` counts rows again if the query uses its micro-batch
    twice.

    Args:
        progress: see :func:`records_behind`.
        begun: the offsets at which the query started. The progress of the first micro-batch does not contain them.
    """
    read = 0
    for source in progress["sources"]:
        end = _mapping(source["endOffset"])
        firsts, before = firsts_in(end), _offsets(source["startOffset"] or begun)
        read += sum(offset - before.get(key, firsts.get(key, 0)) for key, offset in _offsets(end).items())
    return read


def _offsets(given: Any) -> dict[str, int]:
    """Return offsets of this data source from Spark's text or mapping; empty for offsets of another source."""
    found = _mapping(given)
    return {key: offset for key, offset in offsets_in(found).items() if key.rpartition("/")[2].isdigit()}


def _mapping(given: Any) -> Mapping[str, Any]:
    try:
        found = loads_foreign(given) if isinstance(given, str) else given
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}
