"""Transactions as described by brokers: the results of the port ``TransactionAdmin``."""

from __future__ import annotations

from typing import NamedTuple

from streams_protocol.types import TopicPartition


class OpenTransaction(NamedTuple):
    """A transaction that is open according to the leader of a partition, from the offset ``start`` on."""

    partition: TopicPartition
    producer_id: int
    epoch: int
    start: int


class TransactionInfo(NamedTuple):
    """A transactional id as described by its coordinator.

    ``state`` is Empty, Ongoing, PrepareCommit, PrepareAbort, PrepareEpochFence, CompleteCommit, CompleteAbort or Dead.
    ``partitions`` are the partitions of the ongoing transaction.
    """

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]
