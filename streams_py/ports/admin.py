"""Administrative requests about topics and partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from streams_protocol.types import TopicPartition

EMBEDDED_CLUSTER_ID = "embedded-"
"""Prefix of the ids of embedded clusters. Such a cluster never comes back after it has stopped."""


class PartitionInfo(NamedTuple):
    """One partition in the cluster's metadata. ``racks`` are the racks of those replicas that have one."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    racks: frozenset[str]
    topic_id: str | None = None  # changes when a topic is deleted and created again; None from old brokers


class AdminErrorKind(Enum):
    """The reason why an administrative request failed, as far as callers distinguish it."""

    UNKNOWN_TOPIC = "unknown topic"
    LEADER_NOT_AVAILABLE = "leader not available"
    TIMED_OUT = "timed out"
    ALREADY_EXISTS = "already exists"
    UNSUPPORTED = "not supported by the broker"
    NOT_ALLOWED = "not allowed"
    OTHER = "other"
    """Any other reason. The message of the error has it."""


@dataclass(frozen=True, slots=True)
class AdminError:
    """The failure of one item of an administrative request."""

    kind: AdminErrorKind
    """The reason."""
    message: str
    """The reason in words."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create. ``replication_factor`` -1: the broker's default."""

    name: str
    """Name of the topic."""
    partitions: int
    """Number of partitions."""
    replication_factor: int = -1
    """Number of copies of each partition. -1: the broker's default."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Settings of the topic, such as ``retention.ms``."""


class TopicCleanup(NamedTuple):
    """The cleanup settings of a topic."""

    policy: frozenset[str]
    """``cleanup.policy``: "compact", "delete", both or neither."""
    retention_ms: int
    """``retention.ms``; -1: no limit."""
    retention_bytes: int
    """``retention.bytes`` of each partition; -1: no limit."""


class Admin(Protocol):
    """Administrative requests. Thread-safe. A request that fails as a whole raises BrokerUnavailableError.

    The result contains every requested item, either with the broker's response or with an AdminError. Values that a
    client library invents when a broker fails (negative offsets, topics without partitions, missing items) are never
    returned.
    """

    def cluster_id(self) -> str | None:
        """Return the id of the cluster; None if it has none. Waits for at most a few seconds."""

    def describe_topics(
        self, names: Collection[str] | None = None
    ) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        """Return the partitions of topics (None: all existing topics), in ascending order."""

    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]: ...

    def list_offsets(
        self, partitions: Collection[TopicPartition], *, earliest: bool = False
    ) -> Mapping[TopicPartition, int | AdminError]:
        """Return end offsets, or first offsets if ``earliest``. Read uncommitted, never negative."""

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]: ...

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete all records before these offsets. Failures are only logged."""

    def delete_retention_ms(self, topics: Collection[str]) -> Mapping[str, int | AdminError | None]:
        """Return ``delete.retention.ms`` of topics. None for a topic that is not compacted.

        It is the minimum time that a topic keeps a tombstone after compaction has processed it. A reader whose position
        is before the tombstone must read it within this time.
        """

    def cleanup(self, topics: Collection[str]) -> Mapping[str, TopicCleanup | AdminError]:
        """Return the cleanup settings of topics, in one request.

        Without the right DESCRIBE_CONFIGS, the result is an AdminError of the kind NOT_ALLOWED.
        """

    def remove_member(self, group: str, instance_id: str, member_id: str) -> None: ...  # member_id "": any member id
    def close(self) -> None: ...
