"""Committed offsets of a member, in the types of the port. Coroutines of the network thread.

kafka-python takes what an answer leaves out for done (commits) or for "never committed" (look-ups), and an unknown
topic for the latter too. A task would start at its reset policy instead of where it was: so every partition asked for
must be in the answer, without an error, or the answer does not count.

A broker works on one request per connection at a time, and a JoinGroup stays with it until everybody has joined. On
the coordinator's connection an OffsetFetch would wait behind it, seconds long: tasks that were just assigned could not
start while a follow-up rebalance runs. So offsets are fetched over the connection for everything else to that broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, Final

from kafka import errors as kafka_errors
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.structs import OffsetAndMetadata as KafkaOffset
from kafka.structs import TopicPartition as KafkaPartition

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError, StreamsError, TaskMigratedError
from streams_py.ports import CommittedOffsets, OffsetAndMetadata
from streams_py.system.printable import named

__all__ = [
    "answered_offsets",
    "check_all_committed",
    "check_topics_allowed",
    "commit_owned",
    "fetch_committed",
    "send_offset_fetch",
    "unstable_partitions",
]

_NOTHING_COMMITTED: Final = -1
_OFFSET_FETCH_VERSION_MAX: Final = 8


async def commit_owned(
    coordinator: Any,
    owned: Collection[TopicPartition],
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    timeout_ms: int,
) -> None:
    """Commit, or raise TaskMigratedError when not all are owned; kafka-python's errors otherwise.

    The broker checks who commits, not for what: a commit for partitions of others would rewind them.
    """
    foreign = sorted(offsets.keys() - set(owned))
    if foreign:
        raise TaskMigratedError(f"commit: {', '.join(map(str, foreign))} not owned by this member any more")
    wire = {KafkaPartition(*partition): KafkaOffset(at.offset, at.metadata, -1) for partition, at in offsets.items()}
    await coordinator._commit_offsets_sync_async(wire, timeout_ms=timeout_ms)


async def fetch_committed(
    coordinator: Any, partitions: Collection[TopicPartition], timeout_ms: int
) -> CommittedOffsets:
    """Committed positions, None where there is none. BrokerUnavailableError when the answer cannot be read or leaves
    out a partition, or when open transactions have offsets of some; kafka-python's errors otherwise."""
    coordinator.unstable = []
    try:
        found = await coordinator.fetch_committed_offsets_async(
            {KafkaPartition(*partition) for partition in partitions}, timeout_ms=timeout_ms
        )
    except kafka_errors.KafkaTimeoutError as error:
        if not coordinator.unstable:
            raise
        names = ", ".join(map(str, coordinator.unstable))
        raise BrokerUnavailableError(
            f"committed offsets: a transaction with offsets of {names} has not ended"
        ) from error
    except (kafka_errors.KafkaError, StreamsError):
        raise
    except Exception as unreadable:
        raise BrokerUnavailableError(
            f"committed offsets: the answer cannot be read ({named(unreadable)})"
        ) from unreadable
    result: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for partition in partitions:
        at = found.get(KafkaPartition(*partition))
        if at is None or at.offset < _NOTHING_COMMITTED:
            raise BrokerUnavailableError(
                f"committed offsets: the answer of the group's coordinator leaves out {partition}"
            )
        is_committed = at.offset != _NOTHING_COMMITTED
        result[partition] = OffsetAndMetadata(at.offset, at.metadata or "") if is_committed else None
    return result


def answered_offsets(response: Any, found: dict[Any, Any]) -> dict[Any, Any]:
    """What kafka-python ``found`` in an OffsetFetch answer, and -1 for partitions that the broker calls uncommitted:
    so that they can be told from those it says nothing about."""
    for topic in _topics_of(response):
        for partition in topic.partitions:
            if partition.error_code == 0 and partition.committed_offset == _NOTHING_COMMITTED:
                found[KafkaPartition(topic.name, partition.partition_index)] = KafkaOffset(_NOTHING_COMMITTED, "", -1)
    return found


def check_topics_allowed(response: Any) -> None:
    """Raise kafka-python's TopicAuthorizationFailedError with the topics of an OffsetFetch answer that may not be read:
    the library raises one that names none."""
    code = kafka_errors.TopicAuthorizationFailedError.errno
    refused = {topic.name for topic in _topics_of(response) if any(at.error_code == code for at in topic.partitions)}
    if refused:
        raise kafka_errors.TopicAuthorizationFailedError(sorted(refused))


def unstable_partitions(response: Any) -> list[TopicPartition]:
    """Those of which an OffsetFetch answer says that a transaction with their offsets is open."""
    code = kafka_errors.UnstableOffsetCommitError.errno
    return sorted(
        TopicPartition(topic.name, at.partition_index)
        for topic in _topics_of(response)
        for at in topic.partitions
        if at.error_code == code
    )


def _topics_of(response: Any) -> Any:
    return response.groups[0].topics if response.API_VERSION >= 8 else response.topics


def check_all_committed(offsets: Collection[Any], response: Any) -> None:
    """Raise kafka-python's RequestTimedOutError when an OffsetCommit answer leaves out some of ``offsets``."""
    answered = {KafkaPartition(name, number) for name, partitions in response.topics for number, _ in partitions}
    left_out = sorted(set(offsets) - answered)
    if left_out:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in left_out)
        raise kafka_errors.RequestTimedOutError(f"the answer to a commit leaves out {names}")


async def send_offset_fetch(coordinator: Any, partitions: Collection[KafkaPartition]) -> dict[KafkaPartition, Any]:
    """One OffsetFetch to the group's coordinator, over another connection than JoinGroup's. It waits for offsets of
    open transactions (KIP-447). Raises kafka-python's errors, after it noted what they say about the coordinator."""
    coordinator_id, node_id = coordinator.coordinator(), coordinator.other_connection()
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        by_topic[topic].append(partition)
    old, new = OffsetFetchRequest.OffsetFetchRequestTopic, OffsetFetchRequest.OffsetFetchRequestGroup
    request = OffsetFetchRequest(
        group_id=coordinator.group_id,
        topics=[old(name=topic, partition_indexes=numbers) for topic, numbers in by_topic.items()],
        groups=[
            new(
                group_id=coordinator.group_id,
                topics=[
                    new.OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
                    for topic, numbers in by_topic.items()
                ],
            )
        ],
        require_stable=True,
        max_version=_OFFSET_FETCH_VERSION_MAX,
    )
    try:
        response = await coordinator._manager.send(request, node_id=node_id)
    except kafka_errors.KafkaError as error:
        if node_id == coordinator_id:
            coordinator._failed_request(node_id, request, error)
        raise
    found: dict[KafkaPartition, Any] = coordinator._handle_offset_fetch_response(response)
    return found
