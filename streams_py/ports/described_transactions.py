"""Transactions as brokers describe them: what the port ``TransactionAdmin`` answers with."""

from __future__ import annotations

from typing import NamedTuple

from streams_protocol.types import TopicPartition

__all__ = ["OpenTransaction", "TransactionInfo"]


class OpenTransaction(NamedTuple):
    """A transaction that a partition's leader takes for open, from the offset ``start`` on."""

    partition: TopicPartition
    producer_id: int
    epoch: int
    start: int


class TransactionInfo(NamedTuple):
    """What a coordinator knows of a transactional id. ``state``: Empty, Ongoing, PrepareCommit, PrepareAbort,
    PrepareEpochFence, CompleteCommit, CompleteAbort or Dead; ``partitions``: those of the ongoing transaction."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]
