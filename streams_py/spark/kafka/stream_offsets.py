"""The offsets of a stream in its checkpoint: ``{"topic/partition": next offset, "topic": "id of the topic"}``.

The id is the cluster's topic id (KIP-516). A topic that was deleted and created again has another id, even if it is
longer than the old offsets by now, and even if the query was not running at that time. Offsets without ids (from an
older release, or from a cluster without ids) are accepted. Topic names cannot contain a slash.

A partition that is added while the query runs is read from its first offset. If that is not 0, it is saved as text:
``"topic/partition/first": "1000"``. So a repeated micro-batch starts at the same offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk import same_topic
from streams_py.errors import StreamsError

_FIRST: Final = "/first"
_REMEDY: Final = "Start over with a new checkpoint folder (telemetry: with a new folder of tables)"

StreamOffsets: TypeAlias = dict[str, int | str]
"""The offsets in the form described above. A plain dict, because Spark converts it to JSON."""


def stream_key(tp: TopicPartition) -> str:
    """Return the key of a partition in a stream's offsets."""
    return f"{tp.topic}/{tp.partition}"


def stream_partition(key: str) -> TopicPartition:
    """Return the partition of a key."""
    topic, _, number = key.rpartition("/")
    return TopicPartition(topic, int(number))


def stream_offsets(
    offsets: Mapping[str, int], topic_ids: Mapping[str, str], firsts: Mapping[str, int] | None = None
) -> StreamOffsets:
    """Create the offsets of a stream. Equal offsets have equal JSON.

    Args:
        offsets: next offsets, by key.
        topic_ids: ids of topics, if they are known.
        firsts: first offsets of partitions that are new to the query, by key.
    """
    topics = {stream_partition(key).topic for key in offsets}
    began = {f"{key}{_FIRST}": str(first) for key, first in sorted((firsts or {}).items()) if first and key in offsets}
    ids = {topic: topic_ids[topic] for topic in sorted(topics & topic_ids.keys())}
    return dict(sorted(offsets.items())) | ids | began


def offsets_in(offsets: Mapping[str, int | str]) -> dict[str, int]:
    """Return only the offsets, by key."""
    return {key: offset for key, offset in offsets.items() if isinstance(offset, int)}


def ids_in(offsets: Mapping[str, int | str]) -> dict[str, str]:
    """Return only the ids, by topic."""
    return {topic: found for topic, found in offsets.items() if isinstance(found, str) and "/" not in topic}


def firsts_in(offsets: Mapping[str, int | str]) -> dict[str, int]:
    """Return the first offsets of partitions that were added while the query ran, by key, if they are not 0."""
    return {
        key.removesuffix(_FIRST): int(found)
        for key, found in offsets.items()
        if isinstance(found, str) and key.endswith(_FIRST) and found.isdecimal()
    }


def limited(start: Mapping[str, int], ends: Mapping[str, int], rows: int | None) -> dict[str, int]:
    """Return the ends of a micro-batch: ``ends``, or ``rows`` offsets in total, distributed by lag.

    Every partition with a lag gets at least one offset, as long as ``rows`` suffices. The largest lags come first.
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
    for key in order:  # distribute the remainder of the rounding
        more = min(left, lags[key] - shares[key])
        shares[key] += more
        left -= more
    return {key: start.get(key, 0) + shares.get(key, 0) for key in ends}


def check_same_topics(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise StreamsError when a topic has another id than before."""
    same_topic.check_same_topics(before, now, "this query has read", _REMEDY)


def check_still_there(start: Mapping[str, int], ends: Mapping[str, int]) -> None:
    """Raise StreamsError when a partition that was read is missing, or shorter than before: it is another topic."""
    for key, offset in start.items():
        if key not in ends:
            raise StreamsError(
                f"partition {key}, which this query has read, does not exist; was the topic deleted, or created again "
                f"with fewer partitions? {_REMEDY}"
            )
        if ends[key] < offset:
            raise StreamsError(
                f"partition {key} ends at {ends[key]}, but this query has read it up to {offset}; was the topic "
                f"deleted and created again? {_REMEDY}"
            )
