"""Administrative requests about topics and partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from streams_protocol.types import TopicPartition

__all__ = ["EMBEDDED_CLUSTER_ID", "Admin", "AdminError", "AdminErrorKind", "PartitionInfo", "TopicCleanup", "TopicSpec"]

EMBEDDED_CLUSTER_ID = "embedded-"
"""How the ids of embedded clusters begin: such a cluster never comes back once it has ended."""


class PartitionInfo(NamedTuple):
    """One partition in the cluster's metadata. ``racks`` has the racks of the replicas that have one."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    racks: frozenset[str]
    topic_id: str | None = None  # another one when a topic was deleted and created anew; None from old brokers


class AdminErrorKind(Enum):
    """Why an administrative request failed, as far as somebody reacts differently."""

    UNKNOWN_TOPIC = "unknown topic"
    LEADER_NOT_AVAILABLE = "leader not available"
    TIMED_OUT = "timed out"
    ALREADY_EXISTS = "already exists"
    UNSUPPORTED = "not supported by the broker"
    NOT_ALLOWED = "not allowed"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class AdminError:
    """A failure of one item of an administrative request."""

    kind: AdminErrorKind
    message: str


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create. ``replication_factor`` -1 = the broker's default."""

    name: str
    partitions: int
    replication_factor: int = -1
    config: Mapping[str, str] = field(default_factory=dict)


class TopicCleanup(NamedTuple):
    """What brokers remove from a topic."""

    policy: frozenset[str]
    """``cleanup.policy``: "compact", "delete", both or neither."""
    retention_ms: int
    """``retention.ms``; -1 = no limit."""
    retention_bytes: int
    """``retention.bytes`` of each partition; -1 = no limit."""


class Admin(Protocol):
    """Administrative requests. Thread-safe. A request that fails as a whole raises BrokerUnavailableError.

    Everything asked for is in the answer: with what a broker said, or with an AdminError. What a client library makes
    up when a broker dies (negative offsets, topics without partitions, nothing at all) is never passed on.
    """

    def cluster_id(self) -> str | None:
        """What the cluster calls itself; None when it has no name. Waits a few seconds at most."""

    def describe_topics(
        self, names: Collection[str] | None = None
    ) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        """Partitions of the named topics (None: all that exist), ascending by number."""

    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]: ...

    def list_offsets(
        self, partitions: Collection[TopicPartition], *, earliest: bool = False
    ) -> Mapping[TopicPartition, int | AdminError]:
        """End (or first) offsets, read uncommitted; never negative."""

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]: ...

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete everything below these offsets; failures are only logged."""

    def delete_retention_ms(self, topics: Collection[str]) -> Mapping[str, int | AdminError | None]:
        """How long topics keep a deletion at least after compaction has seen it (``delete.retention.ms``): who has read
        up to before it must read on by then. None for a topic that is not compacted."""

    def cleanup(self, topics: Collection[str]) -> Mapping[str, TopicCleanup | AdminError]:
        """What brokers remove from topics, in one request. An AdminError of the kind NOT_ALLOWED without the right
        DESCRIBE_CONFIGS."""

    def remove_member(self, group: str, instance_id: str, member_id: str) -> None: ...  # only this one, unless it is ""
    def close(self) -> None: ...
