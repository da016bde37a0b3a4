"""Writes many records to places that are given: a producer that says in the end what was written where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, Message

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_admin_settings
from streams_py.adapters.confluent.failures import send_error
from streams_py.adapters.confluent.producer import ConfluentProducer, EpochRecordSender
from streams_py.adapters.confluent.settings import Settings
from streams_py.adapters.confluent.topic_limits import TopicLimits
from streams_py.adapters.security import is_security_key, parse_security
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.record_headers import check_header_names

__all__ = ["BulkWriter"]

_NOW = -1


class BulkWriter:
    """One thread only. ``kafka`` are the keys that ``settings`` were made of."""

    def __init__(self, kafka: Mapping[str, str], settings: Settings) -> None:
        self._bootstrap = str(settings["bootstrap.servers"])

        def epoch_sender() -> EpochRecordSender:
            from streams_py.adapters.librdkafka_gaps import KafkaPythonEpochSender, kafka_python_connection

            security = parse_security({key: value for key, value in kafka.items() if is_security_key(key)})
            client_id = str(settings["client.id"])
            connection = kafka_python_connection(self._bootstrap, client_id, security, embedded=False)
            return KafkaPythonEpochSender(connection, timeout_ms=60_000)

        limits = TopicLimits(bulk_admin_settings(kafka, client_id=str(settings["client.id"])))
        self._producer = ConfluentProducer(settings, epoch_sender=epoch_sender, batch_bytes_max=limits.batch_bytes_max)
        self._tracked: set[str] = set()
        self._first: dict[TopicPartition, int] = {}
        self._begun: set[tuple[str, int]] = set()
        self._failed: StreamsError | None = None

    def write(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
    ) -> None:
        """Queue a record. Raises what an earlier one failed with; StreamsError for a header that cannot be written."""
        if headers:
            check_header_names(topic, headers)
        stamp = _NOW if timestamp_ms is None else timestamp_ms
        place = (topic, partition)
        if place in self._begun:
            self._producer.produce(topic, value, key, partition, None, stamp, headers)
            return
        self._begun.add(place)
        if topic not in self._tracked:
            self._tracked.add(topic)
            self._producer.track([topic])
        if stamp == 0:  # written through another client, which gives no report; the next record tells where it begins
            self._producer.produce(topic, value, key, partition, None, stamp, headers)
            self._first[TopicPartition(*place)] = self._producer.acked_offsets()[TopicPartition(*place)]
        else:
            self._producer.produce(topic, value, key, partition, self._on_first, stamp, headers)

    def _on_first(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = self._failed or send_error(error, message.topic() or "?", message.partition())
            return
        self._first[TopicPartition(message.topic() or "?", message.partition() or 0)] = message.offset() or 0

    def check(self) -> None:
        """Serve reports; raise the first failure."""
        self._producer.poll()
        self._raise()

    def _raise(self) -> None:
        self._producer.check()
        if self._failed is not None:
            raise self._failed

    def finish(self, timeout_ms: int) -> Mapping[TopicPartition, tuple[int, int]]:
        """Wait until everything is acknowledged; first and last offset of each partition written to.

        Raises the first failure, BrokerUnavailableError when time is up first.
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
        """Drop what is not acknowledged, and close."""
        self._producer.close()
