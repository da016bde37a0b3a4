"""The clients of a Connect worker on librdkafka: the port ``ConnectClients``, without the coordinator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol, cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import Producer as NativeProducer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]  # exports unmarked

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.admin import ConfluentAdmin
from streams_py.adapters.confluent.broker_log import BrokerLog
from streams_py.adapters.confluent.bulk.bulk_settings import (
    bulk_admin_settings,
    bulk_consumer_settings,
    bulk_producer_settings,
)
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.adapters.confluent.failures import error_of, send_error
from streams_py.adapters.confluent.producer import EpochRecordSender
from streams_py.adapters.confluent.send_queue import waiting_records
from streams_py.adapters.confluent.settings import Settings, rejected_setting
from streams_py.adapters.security.settings import parse_security
from streams_py.errors import BrokerUnavailableError, ConfigError, IllegalStateError, ProductionError, StreamsError
from streams_py.ports import Headers, RawRecord
from streams_py.ports.record_headers import written_headers
from streams_py.ports.rights import GROUP, TOPIC, missing_right
from streams_py.system.printable import printable

_ADMIN_S: Final = 30.0
_EPOCH_S: Final = 60.0
_FULL_POLL_S: Final = 0.1
_TOPICS_MS: Final = 10_000
"""Metadata refresh interval of a sink's consumer, in ms. Its topics may be created after the sink was started."""
_SINK_FORCED: Final[Settings] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": False,
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
    "partition.assignment.strategy": "range",
}

_LONG_LIVED: Final = {"queued.min.messages": "20000", "fetch.wait.max.ms": "100"}
"""Settings of consumers that wait for records. They replace those for reading a range, which does not wait."""

_Delivered = Callable[[Exception | None, TopicPartition], None]
_error_of_message: Final = cast("Callable[[Message], KafkaError | None]", Message.error)


class _SinkListener(Protocol):
    def on_assigned(self, partitions: Collection[TopicPartition]) -> None: ...
    def on_revoked(self, partitions: Collection[TopicPartition]) -> None: ...
    def on_lost(self, partitions: Collection[TopicPartition]) -> None: ...


class ConfluentConnectClients:
    """Factory for the clients of a Connect worker.

    Args:
        producer: Kafka's dotted keys for producers, with ``bootstrap.servers``.
        consumer: Kafka's dotted keys for consumers, with ``bootstrap.servers``.
        admin: Kafka's dotted keys for admin clients, with ``bootstrap.servers``.
        client_id: Prefix of the client ids.
        group_id: The worker's group, on which the worker's user has READ. librdkafka requests the coordinator of its
            group even if the consumer never joins it.
    """

    def __init__(
        self,
        *,
        producer: Mapping[str, str],
        consumer: Mapping[str, str],
        admin: Mapping[str, str],
        client_id: str,
        group_id: str,
    ) -> None:
        self._producer, self._consumer, self._admin = producer, consumer, admin
        self._client_id, self._group_id = client_id, group_id

    def admin(self) -> ConfluentAdmin:
        """Create the worker's admin client."""
        return ConfluentAdmin(bulk_admin_settings(self._admin, client_id=f"{self._client_id}-admin"))

    def log_consumer(self, client_id: str) -> ConfluentConsumer:
        """Create a consumer for an internal topic of the worker."""
        settings = bulk_consumer_settings(_without_own(self._consumer), client_id=client_id, read_committed=True)
        return ConfluentConsumer({**settings, "group.id": self._group_id}, purpose="consumer of an internal topic")

    def producer(self, client_id: str, overrides: Mapping[str, str]) -> ConnectProducer:
        """Create a producer. ``overrides`` replace the worker's settings."""
        given = {**self._producer, **overrides}

        def epoch_sender() -> EpochRecordSender:
            # Loading kafka-python takes 0.2 s, and few connectors need it here.
            from streams_py.adapters.connection.librdkafka_gaps import KafkaPythonEpochSender, kafka_python_connection

            connection = kafka_python_connection(
                given["bootstrap.servers"], client_id, parse_security(given), embedded=False
            )
            return KafkaPythonEpochSender(connection, timeout_ms=int(_EPOCH_S * 1000))

        return ConnectProducer(bulk_producer_settings(given, client_id=client_id), epoch_sender)

    def sink_consumer(
        self,
        client_id: str,
        group: str,
        topics: Collection[str],
        pattern: str | None,
        listener: _SinkListener,
        overrides: Mapping[str, str],
    ) -> ConnectSinkConsumer:
        """Create the consumer of a sink, which joins ``group``.

        It subscribes to ``topics``, or to all topics whose whole name matches ``pattern``. ``overrides`` replace the
        worker's settings.
        """
        given = _without_own({**self._consumer, **overrides})
        settings = bulk_consumer_settings(given, client_id=client_id, read_committed=False)
        isolation = {**self._consumer, **overrides}.get("isolation.level", "read_uncommitted")
        if "metadata.max.age.ms" not in {**self._consumer, **overrides}:
            settings = {**settings, "topic.metadata.refresh.interval.ms": _TOPICS_MS}
        settings = {**settings, **_SINK_FORCED, "group.id": group, "isolation.level": isolation}
        names = [f"^({pattern})$"] if pattern is not None else sorted(topics)
        return ConnectSinkConsumer(settings, names, listener)

    def topic_cleanup_policy(self, topic: str) -> str:
        """Return ``cleanup.policy`` of a topic. Raises BrokerUnavailableError when it cannot be read."""
        client = self._native_admin()
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            found = client.describe_configs([resource], request_timeout=_ADMIN_S)[resource].result(_ADMIN_S)
        except (KafkaException, TimeoutError) as error:
            raise BrokerUnavailableError(f"the configuration of topic {topic} cannot be read: {error}") from None
        return str(found["cleanup.policy"].value)

    def _native_admin(self) -> AdminClient:
        settings = bulk_admin_settings(self._admin, client_id=f"{self._client_id}-topics")
        return AdminClient(settings, logger=BrokerLog(str(settings["client.id"]), str(settings["bootstrap.servers"])))


def _without_own(given: Mapping[str, str]) -> dict[str, str]:
    own = (*_SINK_FORCED, "group.id", "isolation.level")
    return _LONG_LIVED | {key: value for key, value in given.items() if key not in own}


class ConnectProducer:
    """A producer that reports the outcome of each record to the callback given with that record."""

    def __init__(self, settings: Settings, epoch_sender: Callable[[], EpochRecordSender]) -> None:
        self._make_epoch_sender = epoch_sender
        self._epoch_sender: EpochRecordSender | None = None
        self._bootstrap = str(settings["bootstrap.servers"])
        self._broker_log = BrokerLog(str(settings["client.id"]), self._bootstrap)
        all_settings = {"partitioner": "murmur2_random", **settings, "error_cb": self._broker_log.on_error}
        try:
            self._producer = NativeProducer(all_settings, logger=self._broker_log)
        except KafkaException as refused:
            error = error_of(refused)
            raise rejected_setting(error.str() if error else str(refused), settings, "producer") from None
        self._closed = False

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        on_delivery: _Delivered,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Queue a record, and wait while the queue is full. ``on_delivery`` gets the error, or None, and the partition.

        Raises:
            IllegalStateError: The producer is closed.
            ProductionError: The record is refused immediately.
        """

        def report(error: KafkaError | None, message: Message) -> None:
            number = message.partition()
            where = TopicPartition(topic, -1 if number is None else number)
            known = where.partition if where.partition >= 0 else partition
            on_delivery(None if error is None else send_error(error, topic, known), where)

        if self._closed:
            raise IllegalStateError(f"the producer for {topic} is closed")
        if timestamp_ms is not None and timestamp_ms <= 0:
            self._send_at_epoch(topic, key, value, on_delivery, partition, timestamp_ms, headers)
            return
        more: dict[str, Any] = {}
        if partition is not None:
            more["partition"] = partition
        if timestamp_ms is not None:
            more["timestamp"] = timestamp_ms
        if headers:
            more["headers"] = written_headers(topic, tuple(headers))
        while True:
            if self._closed:
                raise IllegalStateError(f"the producer for {topic} is closed")
            try:
                self._producer.produce(topic, value, key, on_delivery=report, **more)
            except BufferError:
                self._producer.poll(_FULL_POLL_S)
            except KafkaException as refused:
                error = error_of(refused)
                if error is None:
                    raise
                raise send_error(error, topic, partition) from None
            else:
                return

    def _send_at_epoch(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        on_delivery: _Delivered,
        partition: int | None,
        timestamp_ms: int,
        headers: Headers,
    ) -> None:
        """Write a record with timestamp 0 after all earlier records. librdkafka would use the current time instead."""
        if timestamp_ms < 0:
            raise ProductionError(
                f"a record for {topic} has the timestamp {timestamp_ms}; it must be 0 or more milliseconds since 1970",
                topic=topic,
                partition=partition,
            )
        left = self.flush(int(_EPOCH_S * 1000))
        if left:
            raise BrokerUnavailableError(
                f"{left} records before a record for {topic} were not written within {_EPOCH_S:.0f} s"
            )
        if self._epoch_sender is None:
            self._epoch_sender = self._make_epoch_sender()
        number = -1 if partition is None else partition
        written, _ = self._epoch_sender.send(topic, value, key, number, written_headers(topic, tuple(headers)))
        on_delivery(None, TopicPartition(topic, written))

    def poll(self, timeout_ms: int = 0) -> None:
        """Serve delivery reports. Raises StreamsError if the brokers refuse the login."""
        self._producer.poll(timeout_ms / 1000)
        self._broker_log.check()

    def flush(self, timeout_ms: int) -> int:
        """Wait for queued records, and return the number of records still queued after ``timeout_ms``."""
        self._producer.flush(timeout_ms / 1000)
        return waiting_records(self._producer)

    def close(self) -> None:
        """Drop queued records and close."""
        self._closed = True
        self._producer.purge()
        if self._epoch_sender is not None:
            self._epoch_sender.close()


class ConnectSinkConsumer:
    """The consumer of a sink, which subscribes when it is created. A lock lets another thread close it."""

    def __init__(self, settings: Settings, topics: Sequence[str], listener: _SinkListener) -> None:
        bootstrap = str(settings["bootstrap.servers"])
        self._broker_log = BrokerLog(str(settings["client.id"]), bootstrap)
        try:
            self._consumer = Consumer({**settings, "error_cb": self._broker_log.on_error}, logger=self._broker_log)
        except KafkaException as refused:
            error = error_of(refused)
            raise rejected_setting(error.str() if error else str(refused), settings, "sink's consumer") from None
        self._group = str(settings["group.id"])
        self._lock = threading.RLock()
        self._closed = False
        self._failure: Exception | None = None

        def notified(report: Callable[[Collection[TopicPartition]], None]) -> Callable[[Any, Any], None]:
            def callback(_consumer: Any, partitions: Any) -> None:
                try:
                    report([TopicPartition(one.topic, one.partition) for one in partitions])
                except Exception as error:  # `poll` raises it, outside of the library
                    self._failure = self._failure or error

            return callback

        try:
            self._consumer.subscribe(
                list(topics),
                on_assign=notified(listener.on_assigned),
                on_revoke=notified(listener.on_revoked),
                on_lost=notified(listener.on_lost),
            )
        except KafkaException as refused:
            self._consumer.close()
            error = error_of(refused)
            raise ConfigError(
                f"the client library cannot subscribe to {printable(', '.join(topics), 200)} "
                f"({error.str() if error else refused}); topics.regex must be a POSIX extended regular expression",
                key="topics.regex",
            ) from None

    def poll(self, max_records: int, timeout_ms: int) -> list[RawRecord]:
        """Return up to ``max_records`` records, and call the listener during rebalances.

        Raises:
            StreamsError: A right is missing, or another final error.
            Exception: The exception of the listener.
        """
        with self._lock:
            self._check()
            first = self._consumer.poll(timeout_ms / 1000)
            messages = [] if first is None else [first, *self._consumer.consume(max_records - 1, 0)]
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            self._broker_log.check()
            records: list[RawRecord] = []
            for message in messages:
                error = _error_of_message(message)
                if error is None:
                    records.append(cast("RawRecord", message))
                else:
                    self._on_error(error, message.topic())
            return records

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        with self._lock:
            self._check()
            return frozenset(TopicPartition(one.topic, one.partition) for one in self._consumer.assignment())

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop delivery of these partitions."""
        with self._lock:
            self._check()
            self._consumer.pause(_native(partitions))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Undo :meth:`pause`."""
        with self._lock:
            self._check()
            self._consumer.resume(_native(partitions))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at ``offset``. Raises BrokerUnavailableError when that fails."""
        with self._lock:
            self._check()
            try:
                self._consumer.seek(confluent_kafka.TopicPartition(partition.topic, partition.partition, offset))
            except KafkaException as error:
                raise BrokerUnavailableError(f"{partition} cannot be read from offset {offset}: {error}") from None

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets and wait for the response. Raises BrokerUnavailableError when that fails."""
        if not offsets:
            return
        with self._lock:
            self._check()
            native = [confluent_kafka.TopicPartition(tp.topic, tp.partition, at) for tp, at in offsets.items()]
            try:
                self._consumer.commit(offsets=native, asynchronous=False)
            except KafkaException as error:
                raise BrokerUnavailableError(f"offsets could not be committed: {error}") from None

    def close(self) -> None:
        """Leave the group and close. Idempotent."""
        with self._lock:
            if not self._closed:
                self._consumer.close()  # calls the listener, which may commit
                self._closed = True

    def _check(self) -> None:
        if self._closed:
            raise IllegalStateError("the sink's consumer is closed")

    def _on_error(self, error: KafkaError, topic: str | None) -> None:
        code = error.code()
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART or error.retriable():
            self._broker_log.warn(error.str())  # the topic may be created later, or the broker may return
            return
        why = error.str()
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            why = missing_right("READ", GROUP, [self._group])
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            why = missing_right("READ", TOPIC, [topic] if topic else ())
        raise StreamsError(f"a sink's topics cannot be read: {why}")


def _native(partitions: Collection[TopicPartition]) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(*partition) for partition in partitions]
