"""Groups seen from outside."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from streams_protocol.types import TopicPartition
from streams_py.ports.described_groups import DescribedGroup, DescribedMember, DescribedStreamsGroup
from streams_py.ports.offsets import OffsetAndMetadata

__all__ = ["GroupAdmin"]


class GroupAdmin(Protocol):
    """What operators' tools ask for, without joining a group. BrokerUnavailableError, or StreamsError with what was
    refused."""

    def list_groups(self) -> Mapping[str, str]:
        """Group -> its type (classic, consumer, streams, share), or its protocol type on brokers that know no types."""

    def describe_group(self, group: str) -> DescribedGroup: ...
    def find_group(self, group: str) -> DescribedGroup | None: ...

    def describe_streams_group(self, group: str) -> DescribedStreamsGroup | None:
        """A group of the streams protocol; None when there is none of that name, or brokers know no such groups."""

    def offsets_at(
        self, partitions: Collection[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int | None]:
        """Offset of the first record with this timestamp or a later one; None where there is none."""

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Commit positions for a group without members, in one request."""

    def remove_members(self, group: str, members: Collection[DescribedMember]) -> None: ...
    def delete_topics(self, topics: Collection[str]) -> None: ...
    def close(self) -> None: ...
