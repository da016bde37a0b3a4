"""Write a sequence of records exactly once, even if several attempts or processes write it.

The sequence must be the same in each attempt. Its records are written in transactions. Each transaction also commits
the number of records written so far, in a consumer group that belongs to this sequence. A new attempt first fences the
previous one (``init_transactions`` also ends its transaction). It then reads the committed number, and skips that many
records. So readers of committed records (``isolation.level=read_committed``) see each record once.

Brokers delete the committed offsets of a group after ``offsets.retention.minutes``. Without them, a sequence that is
already written would look like a new one. So each sequence is announced before its first record: a commit states that
0 records are written. If an announced sequence has no committed number, brokers have deleted it.
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

_NO_GENERATION: Final = -1
_NOW: Final = -1
_PATIENCE_S: Final = 10.0
"""Time for a coordinator to load its log, in seconds. After a restart it may answer earlier (Kafka 4.3), with an
outdated number or with none."""
_RETRY_S: Final = 0.2


def known_position(admin: LogAdmin, name: str, place: TopicPartition) -> OffsetAndMetadata:
    """Return the committed position of an announced sequence.

    Raises:
        StreamsError: Brokers have deleted it.
    """
    give_up_s = time.monotonic() + _PATIENCE_S
    while (found := admin.committed_position(name, place)) is None:
        if time.monotonic() >= give_up_s:
            raise StreamsError(
                f"brokers have no committed position of {name}: they delete it after offsets.retention.minutes, or "
                "with the group. Continuing would write all its records again. Start over with a new plan, which "
                "writes all records, and with empty topics"
            )
        time.sleep(_RETRY_S)
    return found


class OnceWriter:
    """The writer of one sequence of records. Not thread-safe.

    Args:
        kafka: Properties of Kafka clients.
        name: The transactional id, and the group that commits the number of written records.
        place: Any existing partition. The number of records is committed as its offset; it is not used otherwise.
        timeout_ms: Time limit of a request.

    Raises:
        BrokerUnavailableError: From any method; no broker answers.
        TaskMigratedError: From any method; another writer of the same sequence has fenced this one.
        StreamsError: From any method; the error of a refused record names the record by its number.
    """

    _producer: ConfluentTransactionalProducer

    def __init__(self, kafka: Mapping[str, str], name: str, place: TopicPartition, *, timeout_ms: int) -> None:
        self._name, self._place, self._timeout_ms = name, place, timeout_ms
        self._member = GroupMetadata(name, _NO_GENERATION, "", None)
        self._admin = LogAdmin(bulk_admin_settings(kafka, client_id=name), timeout_ms=timeout_ms)
        settings = {**bulk_producer_settings(kafka, client_id=name), "transactional.id": name}

        def alone() -> ConfluentTransactionalProducer:
            """Create a producer whose transaction is never committed."""
            self._producer.close()
            self._producer = ConfluentTransactionalProducer({**settings, **ALONE}, epoch_sender=_none)
            return self._producer

        self._sent = SentRecords(name, alone, timeout_ms=timeout_ms)
        self._producer = ConfluentTransactionalProducer(settings, epoch_sender=_none, on_refusal=self._sent.on_refusal)

    def announce(self) -> None:
        """Fence earlier writers of this sequence, and commit 0 written records if the group has no number yet."""
        self._producer.initialize(self._timeout_ms)
        if self._admin.committed_position(self._name, self._place) is None:
            self.commit(0)

    def begin(self, *, is_repeated: bool = False) -> tuple[int, str]:
        """Fence earlier writers of this sequence, and read how far they got.

        Args:
            is_repeated: Whether an attempt has just failed. A broker may have failed too, so its answer must stay the
                same for a while.

        Returns:
            The number of records already written, and the text of the last :meth:`commit`.

        Raises:
            StreamsError: Brokers have deleted the number.
        """
        self._producer.initialize(self._timeout_ms)
        before: OffsetAndMetadata | None = None
        found = known_position(self._admin, self._name, self._place)
        while is_repeated and found != before:
            time.sleep(_PATIENCE_S)
            before, found = found, known_position(self._admin, self._name, self._place)
        self._sent.begin_at(found.offset)
        return found.offset, found.metadata

    def keep(self, records: Callable[[], Iterable[Sent]]) -> None:
        """Keep a function that returns the records of the next :meth:`write` calls in order, to name a refused one.

        Raises:
            StreamsError: An earlier record was refused.
        """
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
        """Queue a record of the current transaction. A timestamp of None or below 0 means the time of writing.

        Raises:
            StreamsError: The timestamp is 0, or an earlier record was refused.
        """
        self._sent.number += 1
        if timestamp_ms is None or timestamp_ms < 0:
            timestamp_ms = _NOW
        elif timestamp_ms == 0:
            raise self._sent.of_last(
                StreamsError(
                    f"a record for {TopicPartition(topic, partition)} has the timestamp 0, which cannot be written in "
                    "a transaction; write outputs to files, or give the source a timestamp_extractor that "
                    "returns another timestamp"
                )
            )
        if headers:
            self._sent.check_headers(topic, headers)
        try:
            self._producer.produce(topic, value, key, partition, None, timestamp_ms, headers)
        except StreamsError as error:
            self._explain(error)

    def _explain(self, error: StreamsError) -> NoReturn:
        """Raise the refusal of a record if that made the transaction fail, otherwise ``error``."""
        self._sent.check()
        raise (self._sent.named(error) if isinstance(error, ProductionError) else error) from error.__cause__

    def commit(self, written: int, said: str = "") -> None:
        """Commit the queued records.

        Args:
            written: Number of records of the sequence written so far.
            said: Text that the next :meth:`begin` returns.
        """
        left = self._producer.flush(self._timeout_ms)
        self._sent.check()
        try:
            self._producer.check()
        except StreamsError as error:
            self._explain(error)
        if left:
            raise StreamsError(f"{left} records of {self._name} were not acknowledged in {self._timeout_ms} ms")
        text = f"{said}\0" if said else ""  # the binding reads it back as a C string, which ends before the NUL
        self._producer.commit_transaction(
            {self._place: OffsetAndMetadata(written, text)}, self._member, self._timeout_ms
        )
        self._sent.forget()

    def close(self) -> None:
        """Abort the open transaction and close."""
        self._producer.close()
        self._admin.close()


def _none() -> EpochRecordSender:
    raise NotImplementedError("records with timestamp 0 are refused earlier")
