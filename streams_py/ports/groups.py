"""Groups seen from outside."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from streams_protocol.types import TopicPartition
from streams_py.ports.described_groups import DescribedGroup, DescribedMember, DescribedStreamsGroup
from streams_py.ports.offsets import OffsetAndMetadata


class GroupAdmin(Protocol):
    """Requests of operators' tools about groups, without joining a group.

    Methods raise BrokerUnavailableError, or StreamsError with the reason for a refusal.
    """

    def list_groups(self) -> Mapping[str, str]:
        """Return group -> type (classic, consumer, streams, share), or its protocol type from old brokers."""

    def describe_group(self, group: str) -> DescribedGroup: ...
    def find_group(self, group: str) -> DescribedGroup | None: ...

    def describe_streams_group(self, group: str) -> DescribedStreamsGroup | None:
        """Return a group of the streams protocol. None if it does not exist, or brokers do not support the protocol."""

    def offsets_at(
        self, partitions: Collection[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int | None]:
        """Return the offset of the first record with this timestamp or a later one; None without such a record."""

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Commit offsets for a group without members, in one request."""

    def remove_members(self, group: str, members: Collection[DescribedMember]) -> None: ...
    def remove_dead_members(self, group: str, member_ids: Collection[str], reason: str) -> frozenset[str]:
        """Remove dynamic members whose process has ended, with one request. Return the ids that the group still had."""

    def delete_topics(self, topics: Collection[str]) -> None: ...
    def close(self) -> None: ...
