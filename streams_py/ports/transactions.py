"""Transactional producers, and transactions seen from outside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from streams_protocol.types import TopicPartition
from streams_py.ports.described_transactions import OpenTransaction, TransactionInfo
from streams_py.ports.offsets import GroupMetadata, OffsetAndMetadata
from streams_py.ports.records import RecordProducer


class TransactionalProducer(RecordProducer, Protocol):
    """A producer whose records become visible with :meth:`commit_transaction`, or never.

    The first record starts a transaction. ``reset`` abandons the transaction, which the broker aborts, and starts over.

    Every call may raise TaskMigratedError, because another producer has fenced this one. Or it may raise
    TaskCorruptedError without tasks: then all tasks that write with this producer return to their last commit, and the
    producer must be reset.
    """

    @property
    def is_ready(self) -> bool:
        """Whether :meth:`initialize` has succeeded."""

    @property
    def in_transaction(self) -> bool:
        """Whether records were sent since the last commit."""

    def initialize(self, timeout_ms: int) -> None:
        """Fence the previous producer with this transactional id, and end its transaction.

        Must be called before any record that the previous producer may have written is read.

        Raises:
            BrokerUnavailableError: No response in time. Call it again.
        """

    def commit_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupMetadata, timeout_ms: int
    ) -> None:
        """Commit the sent records together with the input offsets that they result from.

        The commit succeeds only if ``member`` is still in the group's current generation (KIP-447). Without a response
        in time the outcome is unknown, which raises TaskCorruptedError too.
        """


class TransactionAdmin(Protocol):
    """Requests about transactions. For one thread at a time.

    Methods raise BrokerUnavailableError, or StreamsError with the reason for a refusal.
    """

    def check_brokers(self) -> None:
        """Check that the brokers support fencing of transactions by a group's generation (KIP-447).

        Without it, brokers would accept transactions of a process that is no longer a member.

        Raises:
            UnsupportedOperationError: They do not support it.
        """

    def open_transactions(self, partitions: Collection[TopicPartition]) -> Sequence[OpenTransaction]:
        """Return the open transactions of partitions. Partitions whose leader cannot be queried are left out."""

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        """Return the known transactional ids by producer id."""

    def describe(self, transactional_id: str) -> TransactionInfo | None:
        """Return the state of a transactional id. None if the id was never used."""

    def take_over(self, transactional_id: str, transaction_timeout_ms: int) -> tuple[int, int]:
        """Fence the producer that uses the id, which ends its transaction. Returns producer id and new epoch."""

    def end(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        *,
        group: str | None,
        commit: bool,
    ) -> None:
        """End the open transaction in these partitions and in the offsets of ``group``, after :meth:`take_over`."""

    def close(self) -> None: ...
