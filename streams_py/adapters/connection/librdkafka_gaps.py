"""Two requests that librdkafka does not support, on kafka-python. They are rare, so speed does not matter.

* Write a record with timestamp 0. librdkafka's produce call takes 0 for "now".
* Remove a static member from its group (KIP-345, ``close(leave_group=True)``).

Each opens a separate connection when it is first needed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from streams_py.adapters.connection import kafka_answers  # noqa: F401  # isort: skip  # loads the library, before there are threads
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import MemberToRemove
from kafka.errors import FencedInstanceIdError, KafkaError, UnknownMemberIdError
from kafka.partitioner import murmur2
from kafka.structs import TopicPartition

from streams_py.adapters.security.kafka_python import kafka_python_security
from streams_py.adapters.security.settings import SecuritySettings
from streams_py.errors import BrokerUnavailableError, ProductionError

_REQUEST_TIMEOUT_MS: Final = 30_000
_GONE: Final = (UnknownMemberIdError.errno, FencedInstanceIdError.errno)
"""Error codes that mean success: the member is unknown, or another member has replaced it."""
_PINNED_FOR_EMBEDDED: Final = (2, 3)
"""Broker version for librdkafka's mock cluster, because kafka-python's version negotiation with it fails."""


def kafka_python_connection(
    bootstrap: str, client_id: str, security: SecuritySettings, *, embedded: bool
) -> Mapping[str, object]:
    """Return the arguments that every kafka-python client needs to connect to the cluster."""
    settings = kafka_python_security(security) | {"bootstrap_servers": bootstrap.split(","), "client_id": client_id}
    if embedded:
        settings["api_version"] = _PINNED_FOR_EMBEDDED
    return settings


class _Headers(list[tuple[str, bytes | None]]):
    """Headers for kafka-python's batch builder, which supports null values.

    kafka-python's size estimate fails for null values, but skips headers that are falsy. So these are always falsy.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


class _Producer(KafkaProducer):  # type: ignore[misc]  # kafka-python has no type information
    """A producer for records that :meth:`KafkaProducer.send` refuses: null header values, null key and null value."""

    def send_any(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int, timestamp_ms: int, headers: _Headers
    ) -> Any:
        """Send a record without checks, and return a future of its metadata.

        This uses private methods, which the broker tests verify.
        """
        partitions = sorted(self._wait_on_metadata(topic, self.config["max_block_ms"]))
        if partition < 0 and key is None:
            partition = random.choice(partitions)
        elif partition < 0:
            partition = (murmur2(key) & 0x7FFFFFFF) % len(partitions)
        future, *_ = self._accumulator.append(TopicPartition(topic, partition), timestamp_ms, key, value, headers)
        self._sender.wakeup()
        return future


class KafkaPythonEpochSender:
    """Sender of records with timestamp 0. ``send`` returns when all in-sync replicas have the record.

    Args:
        connection: The result of :func:`kafka_python_connection`.
        timeout_ms: Time limit for one record.
    """

    def __init__(self, connection: Mapping[str, object], *, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        try:
            self._producer = _Producer(
                **connection,
                acks="all",
                # One request at a time keeps the order. Idempotence is off: the mock cluster's producer ids are for
                # librdkafka.
                enable_idempotence=False,
                max_in_flight_requests_per_connection=1,
                max_block_ms=timeout_ms,
                request_timeout_ms=min(timeout_ms, _REQUEST_TIMEOUT_MS),
                delivery_timeout_ms=timeout_ms,
            )
        except KafkaError as failed:
            raise BrokerUnavailableError(f"no connection to write a record with timestamp 0: {failed}") from failed

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: Sequence[tuple[str, bytes | None]] | None,
    ) -> tuple[int, int]:
        """Write a record and return its partition and offset.

        ``partition`` -1 means murmur2 of the key, or any partition for a null key.

        Raises:
            ProductionError: The record was not written. It is ``retriable`` if the broker did not answer.
        """
        try:
            sent = self._producer.send_any(topic, value, key, partition, 0, _Headers(headers or ()))
            written = sent.get(timeout=self._timeout_ms / 1000)
        except KafkaError as failed:
            retriable = bool(getattr(failed, "retriable", False))
            where = topic if partition < 0 else f"{topic}-{partition}"
            raise ProductionError(
                f"a record for {where} with timestamp 0 was not written: {failed}",
                topic=topic,
                partition=partition,
                retriable=retriable,
            ) from failed
        return int(written.partition), int(written.offset)

    def close(self) -> None:
        """Close the client. No record is queued, because each send waits for its response."""
        self._producer.close(timeout=1)


def remove_static_member(
    connection: Mapping[str, object], group: str, instance_id: str, member_id: str, *, timeout_ms: int
) -> None:
    """Remove a static member from its group immediately.

    A member with the same instance id that has replaced ``member_id`` is not removed. With an empty ``member_id``, any
    member with that instance id is removed.

    Args:
        connection: The result of :func:`kafka_python_connection`.
        group: The consumer group.
        instance_id: The instance id.
        member_id: The member id, or "".
        timeout_ms: Time limit for connecting to a broker, and for each request.

    Raises:
        BrokerUnavailableError: The coordinator has not confirmed it.
    """
    doing = f"static member {instance_id} of group {group} could not be removed"
    limits = {"bootstrap_timeout_ms": timeout_ms, "request_timeout_ms": min(timeout_ms, _REQUEST_TIMEOUT_MS)}
    try:
        admin: Any = KafkaAdminClient(**connection, **limits)
        try:
            answers = admin.remove_group_members(group, [MemberToRemove(member_id or None, instance_id)])
        finally:
            admin.close()
    except KafkaError as failed:
        raise BrokerUnavailableError(f"{doing}: {failed}") from failed
    if not answers:
        raise BrokerUnavailableError(f"{doing}: the response does not name a member")
    for error in answers.values():
        if getattr(error, "errno", 0) not in (0, *_GONE):
            raise BrokerUnavailableError(f"{doing}: {error()}")
