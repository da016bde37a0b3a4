"""Records with timestamp 0: librdkafka's produce call reads 0 as "now", so another client writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from streams_protocol.types import TopicPartition

__all__ = ["EpochRecordSender", "TransactionalRecordSender"]

_Headers = list[tuple[str, bytes | None]] | None


class EpochRecordSender(Protocol):
    """Another client that can write a record with timestamp 0 and waits for the acknowledgement."""

    def send(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int, headers: _Headers
    ) -> tuple[int, int]:
        """Partition and offset of the written record; ``partition`` -1 leaves the choice to the default rule."""

    def close(self) -> None: ...


class TransactionalRecordSender(Protocol):
    """Another client that can write records of a transactional producer, also with timestamp 0."""

    @property
    def partitions(self) -> Mapping[TopicPartition, int]:
        """Partitions that it has written to: all their records have to go this way."""

    def send(
        self,
        place: TopicPartition,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int,
        headers: Sequence[tuple[str, bytes | None]] | None,
    ) -> int:
        """Write one record to the ongoing transaction; its offset. ProductionError when it is refused."""

    def partition_of(self, key: bytes | None, count: int) -> int: ...
    def committed(self) -> None: ...
    def begin_again(self) -> None: ...
    def close(self) -> None: ...
