"""Validate librdkafka's answers to admin requests.

Where a broker's answer is missing, librdkafka and its binding fill in placeholder values and report success: offset
-1001 when the broker stopped during the request, metadata without brokers or topics, partitions with gaps in their
numbers. A caller that trusts them could restore an empty store. So every answer passes one of these functions. A value
that no broker sends becomes an AdminError of kind "timed out", so the caller requests it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from streams_py.ports import AdminError, AdminErrorKind, PartitionInfo, TopicCleanup

_NO_TOPIC_ID: Final = "A" * 22
"""A topic id of zeros in base64, which Kafka's protocol uses for "no id"."""

_CLEANUP: Final = ("cleanup.policy", "retention.ms", "retention.bytes")

NO_ANSWER: Final = AdminError(AdminErrorKind.TIMED_OUT, "the client library left this out of its answer")


def _unanswered(what: str) -> AdminError:
    return AdminError(AdminErrorKind.TIMED_OUT, f"the client library returned {what}, which is not a broker's answer")


def offset_of(found: Any) -> int | AdminError:
    """Return the offset of a ListOffsets result; never negative."""
    return _at_least(0, found)


def time_offset_of(found: Any) -> int | AdminError:
    """Return the offset of a lookup by time. -1 means that all records are older."""
    return _at_least(-1, found)


class NewestRecord(NamedTuple):
    """Offset and timestamp of a partition's record with the largest timestamp. Both are -1 without a record."""

    offset: int
    timestamp_ms: int


def newest_record_of(found: Any) -> NewestRecord | AdminError:
    """Return the record that a ListOffsets result names."""
    offset, timestamp_ms = _at_least(-1, found), _at_least(-1, found, "timestamp")
    if isinstance(offset, AdminError):
        return offset
    return timestamp_ms if isinstance(timestamp_ms, AdminError) else NewestRecord(offset, timestamp_ms)


def leader_epoch_of(found: Any) -> int | AdminError:
    """Return the leader epoch of a ListOffsets result; -1 from brokers that do not report it."""
    offset, epoch = offset_of(found), getattr(found, "leader_epoch", None)
    if isinstance(offset, AdminError):
        return offset
    return epoch if isinstance(epoch, int) and epoch >= 0 else -1


def _at_least(lowest: int, found: Any, name: str = "offset") -> int | AdminError:
    number: object = getattr(found, name, None)
    is_number = isinstance(number, int) and not isinstance(number, bool) and number >= lowest
    return number if is_number else _unanswered(f"{name} {number!r}")  # type: ignore[return-value]  # it is a number


def delete_retention_of(entries: Any) -> int | AdminError | None:
    """Return ``delete.retention.ms`` from a topic's configuration; None when the topic is not compacted."""
    found = dict(entries or {})
    policy, text = (str(getattr(found.get(key), "value", None)) for key in ("cleanup.policy", "delete.retention.ms"))
    if ("compact" not in policy and "delete" not in policy) or not text.isdecimal():
        return _unanswered(f"cleanup.policy {policy!r} and delete.retention.ms {text!r}")
    return int(text) if "compact" in policy else None


def cleanup_of(entries: Any) -> TopicCleanup | AdminError:
    """Return the cleanup policy and limits from a topic's configuration.

    Kafka 4 also accepts an empty policy, with which a topic keeps all records.
    """
    found = dict(entries or {})
    policy, *limits = (getattr(found.get(key), "value", None) for key in _CLEANUP)
    texts = [str(limit) for limit in limits]
    policies = frozenset(filter(None, policy.replace(" ", "").split(","))) if isinstance(policy, str) else None
    if policies is None or policies - {"compact", "delete"} or not all(t.removeprefix("-").isdecimal() for t in texts):
        return _unanswered(f"cleanup.policy {policy!r}, retention.ms {texts[0]!r} and retention.bytes {texts[1]!r}")
    return TopicCleanup(policies, *map(int, texts))


class TopicRetention(NamedTuple):
    """Retention limits of a topic: ``retention.ms``, and ``retention.bytes`` per partition; -1 = no limit."""

    ms: int
    bytes: int


def retention_of(entries: Any) -> TopicRetention | AdminError | None:
    """Return the retention limits from a topic's configuration; None when the topic never deletes by retention."""
    found = dict(entries or {})
    policy, *texts = (str(getattr(found.get(key), "value", None)) for key in _CLEANUP)
    if not all(text.removeprefix("-").isdecimal() for text in texts):
        return _unanswered(f"cleanup.policy {policy!r}, retention.ms {texts[0]!r} and retention.bytes {texts[1]!r}")
    kept = TopicRetention(*map(int, texts))
    return kept if "delete" in policy and max(kept) >= 0 else None


def topics_of(metadata: Any) -> Mapping[str, Any] | None:
    """Return the topics in a cluster's metadata; None without a broker in it, since each broker lists itself."""
    topics = getattr(metadata, "topics", None)
    return topics if getattr(metadata, "brokers", None) and isinstance(topics, Mapping) else None


def whole_partitions(topic: Any) -> int | None:
    """Return the partition count of a topic in a cluster's metadata.

    Returns:
        None when the topic has an error, or its partition numbers are not 0 to n-1.
    """
    numbers = sorted(getattr(topic, "partitions", None) or ())
    if not numbers or getattr(topic, "error", None) is not None or numbers != list(range(len(numbers))):
        return None
    return len(numbers)


def topic_id_of(described: Any) -> str | None:
    """Return the id in a TopicDescription; None from brokers that don't have topic ids."""
    found = getattr(described, "topic_id", None)
    return None if found is None or str(found) == _NO_TOPIC_ID else str(found)


def partitions_of(described: Any) -> tuple[PartitionInfo, ...] | AdminError:
    """Convert a TopicDescription to PartitionInfo tuples in ascending order. A partition without a leader has None.

    An answer that lacks some or all partitions is not valid.
    """
    topic_id = topic_id_of(described)
    infos = tuple(
        PartitionInfo(
            described.name,
            partition.id,
            partition.leader.id if partition.leader is not None and partition.leader.id >= 0 else None,
            tuple(node.id for node in partition.replicas),
            frozenset(node.rack for node in partition.replicas if node.rack),
            topic_id,
        )
        for partition in sorted(getattr(described, "partitions", None) or (), key=lambda partition: int(partition.id))
    )
    if not infos or [info.partition for info in infos] != list(range(len(infos))):
        return _unanswered(f"partitions {[info.partition for info in infos]}")
    return infos
