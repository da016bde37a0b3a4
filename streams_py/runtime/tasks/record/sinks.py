"""Sinks: the functions that write a task's results (Kafka Streams' ``SinkNode``).

A sink is one closure per topic with everything it needs in local variables. It calls the client library's ``produce``
directly, with positional arguments; special cases go through the producer. Partition -1 leaves the choice to the
producer: murmur2 of the serialized key, as in every Kafka client for the JVM. So equal keys are in the same partition,
whichever client wrote them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from streams_py.errors import (
    BrokerUnavailableError,
    ConfigError,
    ProductionError,
    RegistryError,
    SerializationError,
    StreamsError,
    TopologyError,
)
from streams_py.ports.record_headers import written_headers
from streams_py.runtime.tasks.record.collector import NO_DIRECT_SEND, RecordCollector
from streams_py.runtime.tasks.record.measuring import SentRecords
from streams_py.runtime.tasks.settings.handlers import Answer, ErrorContext, Origin, OutgoingRecord, ask
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.serdes import Serde, SerdeDefaults, serde_or_default
from streams_py.serdes.reasons import cause_of, reason_of
from streams_py.serdes.windowed import WindowedSerde
from streams_py.topology.declare.names import topic_on_broker
from streams_py.topology.declare.nodes import Partitioner, Process, RecordContext, SinkNode, TopicChooser
from streams_py.topology.partitioning import partition_for

ContextOf: TypeAlias = Callable[[str], ErrorContext]
"""Returns the error context of a node (by name) for the record in process."""

Failed: TypeAlias = Callable[[str, Exception, Any, Any, int], None]
"""failed(node, error, key, value, timestamp_ms): the user's code raised. Returns if the record is to be dropped."""

_Encode: TypeAlias = Callable[[Any], bytes]


def known_serde(given: Serde[Any] | None, settings: TaskSettings, node: str, *, is_key: bool) -> Serde[Any]:
    """Return ``given``, else the configured default. ConfigError with the node's name if there is neither."""
    defaults = SerdeDefaults(settings.default_key_serde, settings.default_value_serde)
    serde = serde_or_default(given, defaults, is_key=is_key)
    if serde is None:
        part = "key" if is_key else "value"
        raise ConfigError(
            f"node {node} has no {part} serde: pass one to the operation, or set default.{part}.serde",
            key=f"default.{part}.serde",
        )
    return serde


def bind_sink(
    node: SinkNode,
    collector: RecordCollector,
    record: RecordContext,
    context_of: ContextOf,
    failed: Failed,
    dropped: Callable[[str, str], None],
    sent: SentRecords | None = None,
) -> Process:
    """Return the function of a sink node in the task of ``collector``.

    Args:
        record: The record context of the task.
        failed: Calls the processing exception handler.
        dropped: ``dropped(node, reason)`` counts records that are not written.
        sent: Counts records that are written.
    """
    sink = _Sink(node, collector, record, context_of, failed, dropped, sent)
    if node.chooser is not None:
        return sink.choosing(node.chooser)
    if node.topic is None:
        raise TopologyError(f"sink {node.name} has neither a topic nor a topic chooser")
    return sink.writer(topic_on_broker(collector.settings.application_id, node.topic, is_internal=node.is_internal))


class _Sink:
    def __init__(
        self,
        node: SinkNode,
        collector: RecordCollector,
        record: RecordContext,
        context_of: ContextOf,
        failed: Failed,
        dropped: Callable[[str, str], None],
        sent: SentRecords | None,
    ) -> None:
        settings = collector.settings
        self._node = node
        self._collector = collector
        self._record = record
        self._context_of = context_of
        self._failed = failed
        self._count_dropped = dropped
        self._sent = sent
        self._key_serde = known_serde(node.key_serde, settings, node.name, is_key=True)
        self._value_serde = known_serde(node.value_serde, settings, node.name, is_key=False)

    def writer(self, topic: str) -> Process:
        """Return the function that writes to ``topic``."""
        if self._node.partitioner is None:
            serde = self._node.key_serde
            if self._node.by_inner_key and isinstance(serde, WindowedSerde):
                return self._windowed_writer(topic, serde.window_bytes)
            return self._plain_writer(topic)
        return self._partitioned_writer(topic, self._node.partitioner)

    def choosing(self, chooser: TopicChooser) -> Process:
        """Return the function that writes each record to the topic that ``chooser`` returns."""
        record, failed = self._record, self._failed
        writers: dict[str, Process] = {}
        name = self._node.name

        def sink(key: Any, value: Any, timestamp_ms: int) -> None:
            record.timestamp = timestamp_ms
            try:
                topic = chooser(key, value, record)
                writer = writers.get(topic)
                if writer is None and (not topic or topic.__class__ is not str):
                    raise TopologyError(
                        f"the topic chooser of sink {name} returned {topic!r}, which is not a topic name"
                    )
            except Exception as error:
                failed(name, error, key, value, timestamp_ms)
                return
            if writer is None:
                writer = writers[topic] = self.writer(topic)
            writer(key, value, timestamp_ms)

        return sink

    def _plain_writer(self, topic: str) -> Process:
        record = self._record
        encode_key, encode_value = self._encoders(topic)
        not_serializable = self._not_serializable
        produce = self._checked_produce(topic)
        send, report, failures = self._collector.producer.direct(topic) or NO_DIRECT_SEND
        send = self._counted(send)

        def sink(key: Any, value: Any, timestamp_ms: int) -> None:
            try:
                key_bytes = None if key is None else encode_key(key)
                value_bytes = None if value is None else encode_value(value)
            except Exception as error:
                return not_serializable(topic, encode_key, key, value, timestamp_ms, error)
            headers: Any = None
            told = report
            if record.headers:
                headers = written_headers(topic, record.headers)
                if report is not None:
                    told = partial(report, known=(timestamp_ms, headers))
            if timestamp_ms <= 0 or failures:
                return produce(value_bytes, key_bytes, timestamp_ms, headers)
            try:
                send(topic, value_bytes, key_bytes, -1, told, None, timestamp_ms, headers)
            except Exception:
                produce(value_bytes, key_bytes, timestamp_ms, headers)
            return None

        return sink

    def _checked_produce(self, topic: str) -> Callable[..., None]:
        """Return the function for records that cannot be sent directly."""
        send_after = self._send_after

        def produce(value: bytes | None, key: bytes | None, timestamp_ms: int, headers: Any) -> None:
            if timestamp_ms < 0:
                raise _negative(topic, timestamp_ms)
            try:
                self._counted(self._collector.producer.produce)(topic, value, key, -1, None, timestamp_ms, headers)
            except ProductionError as error:
                send_after(error, topic, value, key, -1, None, timestamp_ms, headers)

        return produce

    def _windowed_writer(self, topic: str, window_bytes: int) -> Process:
        """Return a function that writes all windows of a key to the key's partition.

        Kafka Streams' ``WindowedStreamPartitioner``, which is only used where the DSL writes to a topic of the user.
        """
        record = self._record
        encode_key, encode_value = self._encoders(topic)
        produce = self._counted(self._collector.producer.produce)
        partitions_for = self._collector.producer.partitions_for
        send_after = self._send_after

        def sink(key: Any, value: Any, timestamp_ms: int) -> None:
            try:
                key_bytes = None if key is None else encode_key(key)
                value_bytes = None if value is None else encode_value(value)
            except Exception as error:
                return self._not_serializable(topic, encode_key, key, value, timestamp_ms, error)
            if timestamp_ms < 0:
                raise _negative(topic, timestamp_ms)
            partition = -1
            if key_bytes is not None:
                partition = partition_for(key_bytes[:-window_bytes], partitions_for(topic))
            headers = written_headers(topic, record.headers)
            try:
                produce(topic, value_bytes, key_bytes, partition, None, timestamp_ms, headers)
            except ProductionError as error:
                send_after(error, topic, value_bytes, key_bytes, partition, None, timestamp_ms, headers)
            return None

        return sink

    def _partitioned_writer(self, topic: str, partitioner: Partitioner) -> Process:
        record = self._record
        encode_key, encode_value = self._encoders(topic)
        produce = self._counted(self._collector.producer.produce)
        partitions_for = self._collector.producer.partitions_for
        send_after, failed = self._send_after, self._failed
        name = self._node.name

        def chosen_partitions(key: Any, value: Any, count: int) -> tuple[int, ...]:
            chosen = partitioner(topic, key, value, count)
            if chosen is None:
                return (-1,)
            partitions = (chosen,) if isinstance(chosen, int) else tuple(chosen)
            for partition in partitions:
                if not 0 <= partition < count:
                    raise TopologyError(
                        f"the partitioner of sink {name} chose partition {partition} of {topic}, which has {count}"
                    )
            return partitions

        def sink(key: Any, value: Any, timestamp_ms: int) -> None:
            try:
                key_bytes = None if key is None else encode_key(key)
                value_bytes = None if value is None else encode_value(value)
            except Exception as error:
                self._not_serializable(topic, encode_key, key, value, timestamp_ms, error)
                return
            if timestamp_ms < 0:
                raise _negative(topic, timestamp_ms)
            count = partitions_for(topic)
            try:
                partitions = chosen_partitions(key, value, count)
            except Exception as error:
                failed(name, error, key, value, timestamp_ms)
                return
            for partition in partitions:
                headers = written_headers(topic, record.headers)
                try:
                    produce(topic, value_bytes, key_bytes, partition, None, timestamp_ms, headers)
                except ProductionError as error:
                    send_after(error, topic, value_bytes, key_bytes, partition, None, timestamp_ms, headers)
            if not partitions:
                self._count_dropped(name, "the partitioner chose no partition")

        return sink

    def _encoders(self, topic: str) -> tuple[_Encode, _Encode]:
        return (self._key_serde.serializer(topic, is_key=True), self._value_serde.serializer(topic, is_key=False))

    def _counted(self, send: Callable[..., None]) -> Callable[..., None]:
        return send if self._sent is None else self._sent.counted(self._node.name, send)

    def _send_after(self, error: ProductionError, *record: object) -> None:
        send_after = partial(self._collector.send_after, error, self._context_of(self._node.name))
        self._counted(send_after)(*record)

    def _not_serializable(
        self, topic: str, encode_key: _Encode, key: Any, value: Any, timestamp_ms: int, error: Exception
    ) -> None:
        if isinstance(error, BrokerUnavailableError | RegistryError):  # the record is not the cause
            raise error
        origin, serde, content = Origin.VALUE, self._value_serde, value
        if key is not None:
            try:
                encode_key(key)
            except Exception:
                origin, serde, content = Origin.KEY, self._key_serde, key
        context = self._context_of(self._node.name)
        message = (
            f"cannot serialize the {origin.value} of a record for topic {topic} in {context}: serde {serde.name} "
            f"was given {_type_name(content)}: {reason_of(error)}"
        )
        if serde.is_declared(content):
            record = OutgoingRecord(topic, key, value, timestamp_ms, self._record.headers)
            response = ask(self._collector.settings.production_handler, replace(context, origin=origin), record, error)
            self._collector.write(response.dead_letters, context)
            if response.answer is Answer.CONTINUE:
                self._count_dropped(self._node.name, message)
                return
        failed = SerializationError(
            f"{message}. Set a matching serde for sink {self._node.name}, or convert the {origin.value} before it",
            task_id=self._collector.task_id,
        )
        failed.was_handled = True
        raise failed from cause_of(error)


def _negative(topic: str, timestamp_ms: int) -> StreamsError:
    return StreamsError(
        f"a record for {topic} has the negative timestamp {timestamp_ms}; timestamps must be 0 or greater"
    )


def _type_name(content: object) -> str:
    kind = type(content)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
