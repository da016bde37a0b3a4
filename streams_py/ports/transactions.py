"""Transactional producers, and transactions seen from outside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from streams_protocol.types import TopicPartition
from streams_py.ports.described_transactions import OpenTransaction, TransactionInfo
from streams_py.ports.offsets import GroupMetadata, OffsetAndMetadata
from streams_py.ports.records import RecordProducer

__all__ = ["TransactionAdmin", "TransactionalProducer"]


class TransactionalProducer(RecordProducer, Protocol):
    """Writes records that become visible with :meth:`commit_transaction`, or never. The first record begins the
    transaction. ``reset`` leaves it to the broker, and starts over.
    Every call may raise TaskMigratedError (another producer has taken its place), or TaskCorruptedError that names no
    task: all tasks that write with it go back to the last commit, and it is to be reset."""

    @property
    def is_ready(self) -> bool:
        """True when :meth:`initialize` is done."""

    @property
    def in_transaction(self) -> bool:
        """True when something was sent since the last commit."""

    def initialize(self, timeout_ms: int) -> None:
        """Take the place of whoever had the transactional id, and end its transaction: before anything that it may
        have written is read. BrokerUnavailableError when that has to be asked for again."""

    def commit_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupMetadata, timeout_ms: int
    ) -> None:
        """Commit what was sent and the input offsets it was made from, all or nothing, provided that ``member`` is
        still in the group's generation (KIP-447). Without an answer in time the outcome is unknown, and that is a
        TaskCorruptedError, too."""


class TransactionAdmin(Protocol):
    """Transactions seen from outside. One thread at a time. BrokerUnavailableError, or StreamsError with what was
    refused."""

    def check_brokers(self) -> None:
        """UnsupportedOperationError when the brokers do not know transactions that are fenced by a group's generation
        (KIP-447): such a transaction would be taken from a member that is none any more."""

    def open_transactions(self, partitions: Collection[TopicPartition]) -> Sequence[OpenTransaction]:
        """Those of partitions that cannot be asked are left out."""

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        """By producer id, as far as they are known."""

    def describe(self, transactional_id: str) -> TransactionInfo | None:
        """None for an id that nobody has used."""

    def take_over(self, transactional_id: str, transaction_timeout_ms: int) -> tuple[int, int]:
        """Fence whoever uses the id, which ends its ongoing transaction; producer id and new epoch."""

    def end(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        *,
        group: str | None,
        commit: bool,
    ) -> None:
        """End what is open in these partitions and in the offsets of ``group``, as the producer that took over."""

    def close(self) -> None: ...
