"""Commit and fetch a member's offsets, with the types of the port. Coroutines run on the network thread.

If a response lacks a partition, kafka-python treats a commit as successful and a fetched offset as "never committed".
It also treats an unknown topic as "never committed". A task would then apply its reset policy instead of continuing at
its offset. So a response is valid only if it includes every requested partition without an error.

A broker handles one request per connection at a time, and keeps a JoinGroup until all members have joined. An
OffsetFetch on the coordinator's connection would wait behind it for seconds, so newly assigned tasks could not start
during a follow-up rebalance. So offsets are fetched over the connection for other requests to that broker.
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

_NOTHING_COMMITTED: Final = -1
_OFFSET_FETCH_VERSION_MAX: Final = 8


async def commit_owned(
    coordinator: Any,
    owned: Collection[TopicPartition],
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    timeout_ms: int,
) -> None:
    """Commit offsets of owned partitions.

    The broker checks the member but not the partitions, so a commit for another member's partitions would rewind them.

    Raises:
        TaskMigratedError: This member does not own all of the partitions.
        KafkaError: kafka-python's errors.
    """
    foreign = sorted(offsets.keys() - set(owned))
    if foreign:
        raise TaskMigratedError(f"commit: {', '.join(map(str, foreign))} no longer owned by this member")
    wire = {KafkaPartition(*partition): KafkaOffset(at.offset, at.metadata, -1) for partition, at in offsets.items()}
    await coordinator._commit_offsets_sync_async(wire, timeout_ms=timeout_ms)


async def fetch_committed(
    coordinator: Any, partitions: Collection[TopicPartition], timeout_ms: int
) -> CommittedOffsets:
    """Fetch committed offsets; None for a partition without one.

    Raises:
        BrokerUnavailableError: The response cannot be read or lacks a partition, or an open transaction has offsets of
            these partitions.
        KafkaError: kafka-python's other errors.
    """
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
            f"committed offsets: the response cannot be read ({named(unreadable)})"
        ) from unreadable
    result: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for partition in partitions:
        at = found.get(KafkaPartition(*partition))
        if at is None or at.offset < _NOTHING_COMMITTED:
            raise BrokerUnavailableError(
                f"committed offsets: the response of the group's coordinator does not include {partition}"
            )
        is_committed = at.offset != _NOTHING_COMMITTED
        result[partition] = OffsetAndMetadata(at.offset, at.metadata or "") if is_committed else None
    return result


def answered_offsets(response: Any, found: dict[Any, Any]) -> dict[Any, Any]:
    """Add -1 to ``found`` for each partition that an OffsetFetch response reports as uncommitted.

    kafka-python leaves such partitions out, so they could not be distinguished from partitions missing in the response.
    """
    for topic in _topics_of(response):
        for partition in topic.partitions:
            if partition.error_code == 0 and partition.committed_offset == _NOTHING_COMMITTED:
                found[KafkaPartition(topic.name, partition.partition_index)] = KafkaOffset(_NOTHING_COMMITTED, "", -1)
    return found


def check_topics_allowed(response: Any) -> None:
    """Raise TopicAuthorizationFailedError with the refused topics of an OffsetFetch response.

    kafka-python itself raises this error without the topics.
    """
    code = kafka_errors.TopicAuthorizationFailedError.errno
    refused = {topic.name for topic in _topics_of(response) if any(at.error_code == code for at in topic.partitions)}
    if refused:
        raise kafka_errors.TopicAuthorizationFailedError(sorted(refused))


def unstable_partitions(response: Any) -> list[TopicPartition]:
    """Return the partitions whose offsets are part of an open transaction, according to an OffsetFetch response."""
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
    """Raise kafka-python's RequestTimedOutError when an OffsetCommit response lacks some of ``offsets``."""
    answered = {KafkaPartition(name, number) for name, partitions in response.topics for number, _ in partitions}
    left_out = sorted(set(offsets) - answered)
    if left_out:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in left_out)
        raise kafka_errors.RequestTimedOutError(f"the response to a commit does not include {names}")


async def send_offset_fetch(coordinator: Any, partitions: Collection[KafkaPartition]) -> dict[KafkaPartition, Any]:
    """Send an OffsetFetch to the group's coordinator over a connection that JoinGroup does not use.

    The coordinator refuses offsets of open transactions (KIP-447). If the request fails on the coordinator's own
    connection, kafka-python's handling of failed requests is applied before the error is raised.
    """
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
