"""Offsets of a stream, as its checkpoint keeps them: ``{"topic/partition": next offset, "topic": "id of the topic"}``.

The id is the cluster's (KIP-516): a topic that was deleted and created again has another one, also when it has grown
past the old offsets meanwhile, and also when the query was not running at that time. Offsets without ids, from an
older release or of a cluster that gives none, are taken as they are. No topic's name has a slash in it.

A partition that appears while the query runs is read from its first offset. Where that is not 0, it is kept as well, as
text: ``"topic/partition/first": "1000"``. A micro-batch that is repeated thus begins at the same offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk import same_topic
from streams_py.errors import StreamsError

__all__ = [
    "StreamOffsets",
    "check_same_topics",
    "check_still_there",
    "firsts_in",
    "ids_in",
    "limited",
    "offsets_in",
    "stream_key",
    "stream_offsets",
    "stream_partition",
]

_FIRST: Final = "/first"
_ANEW: Final = "Start over with a new checkpoint folder (telemetry: with a new folder of tables)"

StreamOffsets: TypeAlias = dict[str, int | str]
"""As above; a plain dict, since Spark makes JSON of it."""


def stream_key(tp: TopicPartition) -> str:
    """A partition as a key of a stream's offsets."""
    return f"{tp.topic}/{tp.partition}"


def stream_partition(key: str) -> TopicPartition:
    """The partition of such a key."""
    topic, _, number = key.rpartition("/")
    return TopicPartition(topic, int(number))


def stream_offsets(
    offsets: Mapping[str, int], topic_ids: Mapping[str, str], firsts: Mapping[str, int] | None = None
) -> StreamOffsets:
    """Offsets by key, ids of their topics as far as they are known, and first offsets (``firsts``, by key) of
    partitions that are new to the query; equal ones are equal as JSON."""
    topics = {stream_partition(key).topic for key in offsets}
    began = {f"{key}{_FIRST}": str(first) for key, first in sorted((firsts or {}).items()) if first and key in offsets}
    ids = {topic: topic_ids[topic] for topic in sorted(topics & topic_ids.keys())}
    return dict(sorted(offsets.items())) | ids | began


def offsets_in(offsets: Mapping[str, int | str]) -> dict[str, int]:
    """The offsets alone."""
    return {key: offset for key, offset in offsets.items() if isinstance(offset, int)}


def ids_in(offsets: Mapping[str, int | str]) -> dict[str, str]:
    """The ids alone, by topic."""
    return {topic: found for topic, found in offsets.items() if isinstance(found, str) and "/" not in topic}


def firsts_in(offsets: Mapping[str, int | str]) -> dict[str, int]:
    """The first offsets of partitions that came to the query later, by key, where they are not 0."""
    return {
        key.removesuffix(_FIRST): int(found)
        for key, found in offsets.items()
        if isinstance(found, str) and key.endswith(_FIRST) and found.isdecimal()
    }


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


def check_same_topics(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """StreamsError when a topic has another id than before."""
    same_topic.check_same_topics(before, now, "this query has read", _ANEW)


def check_still_there(start: Mapping[str, int], ends: Mapping[str, int]) -> None:
    """StreamsError when a partition that was read is gone or shorter than before: it is another topic now."""
    for key, offset in start.items():
        if key not in ends:
            raise StreamsError(
                f"partition {key} that this query has read is gone; was the topic deleted, or created again with fewer "
                f"partitions? {_ANEW}"
            )
        if ends[key] < offset:
            raise StreamsError(
                f"partition {key} ends at {ends[key]}, but this query has read it up to {offset}; was the topic "
                f"deleted and created again? {_ANEW}"
            )
