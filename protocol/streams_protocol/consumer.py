"""Kafka's consumer protocol: Subscription and Assignment, versions 0 to 3.

These are the blobs in JoinGroup and SyncGroup that contain the Streams messages as ``userData``. Later versions only
append fields. A reader treats any newer version as the newest one that it supports, so a newer version never fails.

Source: Kafka's ``ConsumerProtocol`` and its generated ``ConsumerProtocolSubscription`` / ``ConsumerProtocolAssignment``
(KIP-429 owned partitions, KIP-792 generation, KIP-881 rack).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from .buffer import Reader, Writer
from .constants import CONSUMER_PROTOCOL_VERSION
from .errors import InvalidVersionDecodeError, InvalidVersionEncodeError
from .limits import PARTITIONS_MAX
from .types import TopicPartition

__all__ = [
    "Assignment",
    "Subscription",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
]

_VERSION_OWNED: Final = 1
_VERSION_GENERATION: Final = 2
_VERSION_RACK: Final = 3
_NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's subscription. A negative generation and an empty rack are None, as in Kafka."""

    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int | None = None
    """Generation in which the owned partitions were owned; None without a generation."""
    rack_id: str | None = None

    def __post_init__(self) -> None:
        if self.generation_id is not None and self.generation_id < 0:
            object.__setattr__(self, "generation_id", None)
        if self.rack_id == "":
            object.__setattr__(self, "rack_id", None)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A member's assignment. ``partitions`` are in the encoded order, grouped by topic."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


def decode_subscription(data: bytes | bytearray | memoryview) -> Subscription:
    """Decode a member's subscription with its version prefix; trailing bytes are ignored.

    Raises:
        DecodeError: the bytes are not a valid subscription. Do not depend on the subclass.
    """
    reader = Reader(data, "Subscription")
    version = _read_version(reader)
    topics = [reader.string("topic") for _ in range(reader.count("topics", row_bytes_min=2, most=PARTITIONS_MAX))]
    user_data = reader.nullable_blob("userData")
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int | None = None
    rack_id: str | None = None
    if version >= _VERSION_OWNED:
        owned = _read_partitions(reader, "ownedPartitions")
    if version >= _VERSION_GENERATION:
        generation_id = reader.int32("generationId")
    if version >= _VERSION_RACK:
        rack_id = reader.nullable_string("rackId")
    return Subscription(tuple(topics), user_data, owned, generation_id, rack_id)


def decode_assignment(data: bytes | bytearray | memoryview) -> Assignment:
    """Decode a member's assignment with its version prefix; trailing bytes are ignored.

    Raises:
        DecodeError: the bytes are not a valid assignment. Empty bytes are not valid: they mean that the leader forgot
            this member, which differs from an assignment without partitions.
    """
    reader = Reader(data, "Assignment")
    _read_version(reader)
    partitions = _read_partitions(reader, "assignedPartitions")
    return Assignment(partitions, reader.nullable_blob("userData"))


def _read_version(reader: Reader) -> int:
    version = reader.int16("version")
    if version < 0:
        raise InvalidVersionDecodeError(
            f"consumer protocol version {version} does not exist", offset=0, remedy="check which program wrote it"
        )
    return version


def _read_partitions(reader: Reader, name: str) -> tuple[TopicPartition, ...]:
    partitions: list[TopicPartition] = []
    for _ in range(reader.count(name, row_bytes_min=6, most=PARTITIONS_MAX)):
        topic = reader.string("topic")
        count = reader.count(f"partitions of {name}", row_bytes_min=4, most=PARTITIONS_MAX)
        (numbers,) = reader.columns("i", count, f"partitions of {name}")
        partitions.extend(map(tuple.__new__, repeat(TopicPartition), zip(repeat(topic), numbers)))
    return tuple(partitions)


def encode_subscription(subscription: Subscription, version: int = CONSUMER_PROTOCOL_VERSION) -> bytes:
    """Encode ``subscription``; an older ``version`` omits the fields that it does not have.

    Topics and owned partitions are in ascending order.

    Raises:
        EncodeError: the version is not 0 to 3, or a value does not fit its field.
    """
    writer = _versioned_writer("Subscription", version)
    writer.count(len(subscription.topics), "topics", most=PARTITIONS_MAX)
    for topic in sorted(subscription.topics):
        writer.string(topic, "topic")
    writer.nullable_blob(subscription.user_data, "userData")
    if version >= _VERSION_OWNED:
        _write_partitions(writer, "ownedPartitions", sorted(subscription.owned_partitions))
    if version >= _VERSION_GENERATION:
        generation_id = subscription.generation_id
        writer.int32(_NO_GENERATION if generation_id is None else generation_id, "generationId")
    if version >= _VERSION_RACK:
        writer.nullable_string(subscription.rack_id, "rackId")
    return writer.finish()


def encode_assignment(assignment: Assignment, version: int = CONSUMER_PROTOCOL_VERSION) -> bytes:
    """Encode ``assignment``.

    Topics are in the order of their first partition, partitions of a topic in list order.

    Raises:
        EncodeError: the version is not 0 to 3, or a value does not fit its field.
    """
    writer = _versioned_writer("Assignment", version)
    _write_partitions(writer, "assignedPartitions", assignment.partitions)
    writer.nullable_blob(assignment.user_data, "userData")
    return writer.finish()


def _versioned_writer(message: str, version: int) -> Writer:
    if not 0 <= version <= CONSUMER_PROTOCOL_VERSION:
        raise InvalidVersionEncodeError(
            f"{message}: version {version} cannot be written",
            remedy=f"use a version from 0 to {CONSUMER_PROTOCOL_VERSION}",
        )
    writer = Writer(message)
    writer.int16(version, "version")
    return writer


def _write_partitions(writer: Writer, name: str, partitions: Iterable[TopicPartition]) -> None:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    writer.count(len(by_topic), name, most=PARTITIONS_MAX)
    for topic, numbers in by_topic.items():
        writer.string(topic, "topic")
        writer.count(len(numbers), f"partitions of {name}", most=PARTITIONS_MAX)
        writer.columns("i", (numbers,), len(numbers), f"partitions of {name}")
