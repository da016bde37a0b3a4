"""Writes a sequence of records exactly once, whoever begins it how often: a producer that knows how far it got.

The sequence must be the same each time. Its records go in transactions; each transaction also commits, in a group of
the sequence's own, how many of its records are written. A new attempt first takes the place of the one before
(``init_transactions`` ends that one's transaction and fences it), then reads the number, and leaves out so many
records. So a record is visible once to readers of committed records (``isolation.level=read_committed``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_admin_settings, bulk_producer_settings
from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.adapters.confluent.producer import EpochRecordSender
from streams_py.adapters.confluent.transactional_producer import ConfluentTransactionalProducer
from streams_py.errors import StreamsError
from streams_py.ports import GroupMetadata, OffsetAndMetadata

__all__ = ["OnceWriter"]

_NO_GENERATION: Final = -1


class OnceWriter:
    """One sequence of records, one thread. ``name`` is its transactional id, and the group that knows how far it is.

    ``place``: a partition that exists; the number of records is committed as its offset, and nothing else is done with
    it. ``kafka``: properties of clients. BrokerUnavailableError, or StreamsError with what was refused;
    TaskMigratedError when somebody else writes the same sequence by now.
    """

    def __init__(self, kafka: Mapping[str, str], name: str, place: TopicPartition, *, timeout_ms: int) -> None:
        self._name, self._place, self._timeout_ms = name, place, timeout_ms
        self._member = GroupMetadata(name, _NO_GENERATION, "", None)
        self._admin = LogAdmin(bulk_admin_settings(kafka, client_id=name), timeout_ms=timeout_ms)
        settings = {**bulk_producer_settings(kafka, client_id=name), "transactional.id": name}
        self._producer = ConfluentTransactionalProducer(settings, epoch_sender=_none)

    def begin(self) -> tuple[int, str]:
        """Fence whoever wrote this before; how many records are written already, and what that one has said of them."""
        self._producer.initialize(self._timeout_ms)
        found = self._admin.committed_position(self._name, self._place)
        return (0, "") if found is None else (found.offset, found.metadata)

    def write(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
    ) -> None:
        """Queue a record of the present transaction; None is the time of writing. StreamsError for timestamp 0."""
        if timestamp_ms == 0:
            raise StreamsError(
                f"a record for {TopicPartition(topic, partition)} has the timestamp 0, which cannot be written in a "
                "transaction; write outputs to files, or give the source a timestamp_extractor that makes another one"
            )
        stamp = -1 if timestamp_ms is None else timestamp_ms
        self._producer.produce(topic, value, key, partition, None, stamp, headers)

    def commit(self, written: int, said: str = "") -> None:
        """Everything that was queued becomes visible, and ``written`` is how many records of the sequence there are;
        ``said`` is for the next :meth:`begin`."""
        left = self._producer.flush(self._timeout_ms)
        self._producer.check()
        if left:
            raise StreamsError(f"{left} records of {self._name} were not acknowledged in {self._timeout_ms} ms")
        self._producer.commit_transaction(
            {self._place: OffsetAndMetadata(written, said)}, self._member, self._timeout_ms
        )

    def close(self) -> None:
        """Abort what is not committed, and close."""
        self._producer.close()
        self._admin.close()


def _none() -> EpochRecordSender:
    raise NotImplementedError("records of timestamp 0 are refused before")
