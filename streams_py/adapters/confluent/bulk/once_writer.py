"""Writes a sequence of records exactly once, whoever begins it how often: a producer that knows how far it got.

The sequence must be the same each time. Its records go in transactions; each transaction also commits, in a group of
the sequence's own, how many of its records are written. A new attempt first takes the place of the one before
(``init_transactions`` ends that one's transaction and fences it), then reads the number, and leaves out so many
records. So a record is visible once to readers of committed records (``isolation.level=read_committed``).

Brokers forget what a group has committed after ``offsets.retention.minutes``, and then a sequence that is written would
look like one that is not. So it is announced before its first record: a commit says that nothing of it is written. From
then on there is a number, or it was forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NoReturn

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_admin_settings, bulk_producer_settings
from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.adapters.confluent.bulk.sent_records import ALONE, Sent, SentRecords
from streams_py.adapters.confluent.producer import EpochRecordSender
from streams_py.adapters.confluent.transactional_producer import ConfluentTransactionalProducer
from streams_py.errors import ProductionError, StreamsError
from streams_py.ports import GroupMetadata, OffsetAndMetadata

__all__ = ["OnceWriter", "known_position"]

_NO_GENERATION: Final = -1
_NOW: Final = -1
_PATIENCE_S: Final = 10.0
"""A coordinator that has just come back may answer before it has read all of its log (Kafka 4.3): with an older number,
or with none."""
_LOOK_S: Final = 0.2


def known_position(admin: LogAdmin, name: str, place: TopicPartition) -> OffsetAndMetadata:
    """How far a sequence is that was announced. StreamsError when brokers have forgotten that."""
    give_up_s = time.monotonic() + _PATIENCE_S
    while (found := admin.committed_position(name, place)) is None:
        if time.monotonic() >= give_up_s:
            raise StreamsError(
                f"brokers do not know any more how much {name} has written: they keep that for offsets.retention."
                "minutes, unless its group is deleted; all of it would be written again. Begin anew with another plan, "
                "which writes everything, to topics that are empty"
            )
        time.sleep(_LOOK_S)
    return found


class OnceWriter:
    """One sequence of records, one thread. ``name`` is its transactional id, and the group that knows how far it is.

    ``place``: a partition that exists; the number of records is committed as its offset, and nothing else is done with
    it. ``kafka``: properties of clients. BrokerUnavailableError, or StreamsError, which names a refused record by its
    number; TaskMigratedError when somebody else writes the same sequence by now.
    """

    _producer: ConfluentTransactionalProducer

    def __init__(self, kafka: Mapping[str, str], name: str, place: TopicPartition, *, timeout_ms: int) -> None:
        self._name, self._place, self._timeout_ms = name, place, timeout_ms
        self._member = GroupMetadata(name, _NO_GENERATION, "", None)
        self._admin = LogAdmin(bulk_admin_settings(kafka, client_id=name), timeout_ms=timeout_ms)
        settings = {**bulk_producer_settings(kafka, client_id=name), "transactional.id": name}

        def alone() -> ConfluentTransactionalProducer:
            """In a transaction that is never committed."""
            self._producer.close()
            self._producer = ConfluentTransactionalProducer({**settings, **ALONE}, epoch_sender=_none)
            return self._producer

        self._sent = SentRecords(name, alone, timeout_ms=timeout_ms)
        self._producer = ConfluentTransactionalProducer(settings, epoch_sender=_none, on_refusal=self._sent.on_refusal)

    def announce(self) -> None:
        """Fence whoever wrote this before, and let brokers know of it, unless they do already."""
        self._producer.initialize(self._timeout_ms)
        if self._admin.committed_position(self._name, self._place) is None:
            self.commit(0)

    def begin(self, *, is_repeated: bool = False) -> tuple[int, str]:
        """Fence whoever wrote this before; how many records are written already, and what that one has said of them.
        StreamsError when brokers have forgotten. ``is_repeated``: an attempt has just failed, so maybe a broker, and
        its answer must stay the same for a while to be believed."""
        self._producer.initialize(self._timeout_ms)
        before: OffsetAndMetadata | None = None
        found = known_position(self._admin, self._name, self._place)
        while is_repeated and found != before:
            time.sleep(_PATIENCE_S)
            before, found = found, known_position(self._admin, self._name, self._place)
        self._sent.begin_at(found.offset)
        return found.offset, found.metadata

    def keep(self, records: Callable[[], Iterable[Sent]]) -> None:
        """Keep what makes the records that :meth:`write` gets next, in this order: it names a refused one. StreamsError
        when an earlier record was refused."""
        self._sent.check()
        self._sent.keep(records)

    def write(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
    ) -> None:
        """Queue a record of the present transaction; None or a timestamp below 0 is the time of writing. StreamsError
        for timestamp 0, or when an earlier record was refused."""
        self._sent.number += 1
        if timestamp_ms is None or timestamp_ms < 0:
            timestamp_ms = _NOW
        elif timestamp_ms == 0:
            raise self._sent.of_last(
                StreamsError(
                    f"a record for {TopicPartition(topic, partition)} has the timestamp 0, which cannot be written in "
                    "a transaction; write outputs to files, or give the source a timestamp_extractor that makes "
                    "another one"
                )
            )
        if headers:
            self._sent.check_headers(topic, headers)
        try:
            self._producer.produce(topic, value, key, partition, None, timestamp_ms, headers)
        except StreamsError as error:
            self._explain(error)

    def _explain(self, error: StreamsError) -> NoReturn:
        """Raise the refusal of a record, if that is why the transaction has failed, else the error."""
        self._sent.check()
        raise (self._sent.named(error) if isinstance(error, ProductionError) else error) from error.__cause__

    def commit(self, written: int, said: str = "") -> None:
        """Everything that was queued becomes visible, and ``written`` is how many records of the sequence there are;
        ``said`` is for the next :meth:`begin`."""
        left = self._producer.flush(self._timeout_ms)
        self._sent.check()
        try:
            self._producer.check()
        except StreamsError as error:
            self._explain(error)
        if left:
            raise StreamsError(f"{left} records of {self._name} were not acknowledged in {self._timeout_ms} ms")
        text = f"{said}\0" if said else ""  # librdkafka gives it back as C's strings are, and without their end
        self._producer.commit_transaction(
            {self._place: OffsetAndMetadata(written, text)}, self._member, self._timeout_ms
        )
        self._sent.forget()

    def close(self) -> None:
        """Abort what is not committed, and close."""
        self._producer.close()
        self._admin.close()


def _none() -> EpochRecordSender:
    raise NotImplementedError("records of timestamp 0 are refused before")
