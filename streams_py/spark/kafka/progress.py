"""How far a query on ``streams-kafka`` is behind its topics, read out of Spark's own progress.

A source in Python cannot add figures of its own to the progress of a query, but Spark keeps there where each
micro-batch ended and where the topics ended after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams_protocol.types import TopicPartition
from streams_py.spark.kafka.stream_offsets import firsts_in, offsets_in, stream_partition
from streams_py.system.foreign_json import loads as loads_foreign

__all__ = ["records_behind", "records_read"]


def records_behind(progress: Any) -> dict[TopicPartition, int]:
    """Offsets between the end of a micro-batch and the end of each partition at that time.

    ``progress`` is ``query.lastProgress``, one of ``query.recentProgress``, or that of a listener's event. Partitions
    of all sources of this kind are in it, one that is read twice as far behind as the slower of its readers; other
    sources are passed over. Transaction markers count, too.
    """
    behind: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        latest, end = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
        for key, offset in latest.items():
            partition = stream_partition(key)
            behind[partition] = max(0, offset - end.get(key, 0), behind.get(partition, 0))
    return behind


def records_read(progress: Any, begun: Mapping[str, Any] | None = None) -> int:
    """Offsets that a micro-batch has read, of all sources of this kind. Transaction markers count, too.

    ``numInputRows`` of Spark counts rows again when the query uses its micro-batch twice.

    Args:
        progress: as for :func:`records_behind`.
        begun: the offsets where the query has begun, which Spark does not name for the first micro-batch.
    """
    read = 0
    for source in progress["sources"]:
        end = _mapping(source["endOffset"])
        firsts, before = firsts_in(end), _offsets(source["startOffset"] or begun)
        read += sum(offset - before.get(key, firsts.get(key, 0)) for key, offset in _offsets(end).items())
    return read


def _offsets(given: Any) -> dict[str, int]:
    """Offsets of ours, as Spark hands them over: text, or what is in it; none for offsets of another source."""
    found = _mapping(given)
    return {key: offset for key, offset in offsets_in(found).items() if key.rpartition("/")[2].isdigit()}


def _mapping(given: Any) -> Mapping[str, Any]:
    try:
        found = loads_foreign(given) if isinstance(given, str) else given
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}
