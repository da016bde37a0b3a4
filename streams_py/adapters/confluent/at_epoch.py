"""Senders of records with timestamp 0. librdkafka takes 0 for "now", so another client writes these records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from streams_protocol.types import TopicPartition

_Headers = list[tuple[str, bytes | None]] | None


class EpochRecordSender(Protocol):
    """A client that can write a record with timestamp 0 and waits for the acknowledgement."""

    def send(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int, headers: _Headers
    ) -> tuple[int, int]:
        """Write a record and return its partition and offset. ``partition`` -1 means the default partitioner."""

    def close(self) -> None:
        """Close the client."""


class TransactionalRecordSender(Protocol):
    """A client that writes records for a transactional producer, including records with timestamp 0."""

    @property
    def partitions(self) -> Mapping[TopicPartition, int]:
        """Partitions that this client has written to. All further records for them must be sent with it too."""

    def send(
        self,
        place: TopicPartition,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int,
        headers: Sequence[tuple[str, bytes | None]] | None,
    ) -> int:
        """Write one record to the ongoing transaction and return its offset.

        Raises:
            ProductionError: The broker refused the record.
        """

    def partition_of(self, key: bytes | None, count: int) -> int:
        """Choose the partition of a record in the same way as the default partitioner."""

    def committed(self) -> None:
        """Note that the transaction has ended."""

    def reset(self) -> None:
        """Forget the producer and its sequence numbers, because a new client replaces it."""

    def close(self) -> None:
        """Close the client."""
