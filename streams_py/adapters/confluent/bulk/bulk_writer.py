"""Write many records to given partitions: a producer that finally returns the offsets written per partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from confluent_kafka import KafkaError, Message

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_admin_settings
from streams_py.adapters.confluent.bulk.sent_records import ALONE, Sent, SentRecords
from streams_py.adapters.confluent.failures import is_refusal, send_error
from streams_py.adapters.confluent.producer import ConfluentProducer, EpochRecordSender
from streams_py.adapters.confluent.settings import Settings
from streams_py.adapters.confluent.topic_limits import TopicLimits
from streams_py.adapters.security.settings import is_security_key, parse_security
from streams_py.errors import BrokerUnavailableError, ProductionError, StreamsError

_NOW = -1
_ALONE_MS = 60_000


class BulkWriter:
    """A producer for many records. Not thread-safe.

    Args:
        kafka: The keys from which ``settings`` were built.
        settings: librdkafka settings.
        name: Name of the sequence of records, for errors such as "record 7 of <name>".
    """

    _producer: ConfluentProducer

    def __init__(self, kafka: Mapping[str, str], settings: Settings, *, name: str) -> None:
        self._bootstrap = str(settings["bootstrap.servers"])

        def epoch_sender() -> EpochRecordSender:
            from streams_py.adapters.connection.librdkafka_gaps import KafkaPythonEpochSender, kafka_python_connection

            security = parse_security({key: value for key, value in kafka.items() if is_security_key(key)})
            client_id = str(settings["client.id"])
            connection = kafka_python_connection(self._bootstrap, client_id, security, embedded=False)
            return KafkaPythonEpochSender(connection, timeout_ms=60_000)

        limits = TopicLimits(bulk_admin_settings(kafka, client_id=str(settings["client.id"])))

        def alone() -> ConfluentProducer:
            self._producer.close()
            self._producer = ConfluentProducer({**settings, **ALONE}, epoch_sender=epoch_sender)
            return self._producer

        self._sent = SentRecords(name, alone, timeout_ms=_ALONE_MS)
        self._producer = ConfluentProducer(
            settings,
            epoch_sender=epoch_sender,
            batch_bytes_max=limits.batch_bytes_max,
            on_refusal=self._sent.on_refusal,
        )
        self._tracked: set[str] = set()
        self._first: dict[TopicPartition, int] = {}
        self._begun: set[tuple[str, int]] = set()
        self._failed: StreamsError | None = None

    def keep(self, records: Callable[[], Iterable[Sent]]) -> None:
        """Keep a function that returns the records of the next :meth:`write` calls in order, to name a refused one."""
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
        """Queue a record. Raises the error of an earlier record, or StreamsError for an invalid header."""
        stamp = _NOW if timestamp_ms is None else timestamp_ms
        self._sent.number += 1
        if headers:
            self._sent.check_headers(topic, headers)
        try:
            if (topic, partition) in self._begun:
                self._producer.produce(topic, value, key, partition, None, stamp, headers)
            else:
                self._write_first(topic, partition, value, key, stamp, headers)
        except ProductionError as error:
            raise self._sent.named(error) from error

    def _write_first(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None,
        stamp: int,
        headers: Sequence[tuple[str, bytes | None]] | None,
    ) -> None:
        place = TopicPartition(topic, partition)
        self._begun.add(place)
        if topic not in self._tracked:
            self._tracked.add(topic)
            self._producer.track([topic])
        if stamp == 0:  # another client writes it, without a delivery report
            self._producer.produce(topic, value, key, partition, None, stamp, headers)
            self._producer.check()
            self._first[place] = self._producer.acked_offsets()[place]
        else:
            self._producer.produce(topic, value, key, partition, self._on_first, stamp, headers)

    def _on_first(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._first[TopicPartition(message.topic() or "?", message.partition() or 0)] = message.offset() or 0
        elif is_refusal(error):
            self._sent.on_refusal(error, message)
        else:
            self._failed = self._failed or send_error(error, message.topic() or "?", message.partition())

    def check(self) -> None:
        """Serve reports; raise the first failure."""
        self._producer.poll()
        self._raise()
        self._sent.forget(but=self._producer.waiting())

    def _raise(self) -> None:
        self._sent.check()
        try:
            self._producer.check()
        except ProductionError as error:
            raise self._sent.named(error) from error
        if self._failed is not None:
            raise self._failed

    def finish(self, timeout_ms: int) -> Mapping[TopicPartition, tuple[int, int]]:
        """Wait until all records are acknowledged, and return the first and last offset of each partition.

        Raises:
            BrokerUnavailableError: Records are not acknowledged within ``timeout_ms``.
            StreamsError: The first failure.
        """
        left = self._producer.flush(timeout_ms)
        self._raise()
        if left:
            raise BrokerUnavailableError(
                f"{left} records were not acknowledged by {self._bootstrap} within {timeout_ms} ms; check the brokers"
            )
        last = self._producer.acked_offsets()
        return {tp: (first, max(first, last.get(tp, first))) for tp, first in sorted(self._first.items())}

    def close(self) -> None:
        """Close the producer. Drops records that are not acknowledged within a few seconds."""
        self._producer.close()
