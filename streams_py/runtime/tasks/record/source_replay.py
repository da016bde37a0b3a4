"""Replays source topics: turns their records into the rows that processing puts into the stores of their tables.

Two kinds of stores have no changelog topic and are restored from the topic that their source reads: tables that
reuse their source topic (``topology.optimization``), and global tables. Processing does not copy a record of such a
topic into the store. It runs the serdes of the source, calls the deserialization handler for invalid bytes, takes the
timestamp from the extractor, drops records without a key or a timestamp, and writes the key with the store's serde. A
replay does the same. (Kafka Streams copies the bytes: KAFKA-8037.)

A batch is first checked column by column. If decoding changes no key, and every value can be decoded and is not null,
the batch is returned unchanged. Only a batch with a different record is processed record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from streams_protocol.types import TaskId
from streams_py.ports import RawRecord
from streams_py.ports.record_headers import headers_of
from streams_py.runtime.tasks.record.binding import Node
from streams_py.runtime.tasks.record.failures import Failures, LetterWriter
from streams_py.runtime.tasks.record.loop import time_of
from streams_py.runtime.tasks.record.queue import SourceReader
from streams_py.runtime.tasks.record.sources import source_readers
from streams_py.runtime.tasks.settings.handlers import DeadLetter, ErrorContext
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.serdes import BYTES, Serde, SerdeDefaults, serde_or_default
from streams_py.state.opening.stores import changelog_topic
from streams_py.topology.declare.nodes import RecordContext, SourceNode
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

_time_of: Final = itemgetter(1)


class ReplayedRecord:
    """A record with the key, value and timestamp under which processing stores it."""

    __slots__ = ("_key", "_raw", "_timestamp_ms", "_value")

    def __init__(self, raw: RawRecord, key: bytes | None, value: bytes | None, timestamp_ms: int) -> None:
        self._raw = raw
        self._key = key
        self._value = value
        self._timestamp_ms = timestamp_ms

    def topic(self) -> str:
        """Topic name."""
        return self._raw.topic()

    def partition(self) -> int:
        """Partition number."""
        return self._raw.partition()

    def offset(self) -> int:
        """Offset in the partition."""
        return self._raw.offset()

    def key(self) -> bytes | None:
        """Key bytes."""
        return self._key

    def value(self) -> bytes | None:
        """Value bytes."""
        return self._value

    def timestamp(self) -> tuple[int, int]:
        """(type, ms)."""
        return self._raw.timestamp()[0], self._timestamp_ms

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Headers; None without headers."""
        return headers_of(self._raw)


@dataclass(frozen=True, slots=True)
class _Encoders:
    """A store's serializers of keys and values. None: the store keeps the record's bytes."""

    key: Callable[[Any], bytes] | None
    value: Callable[[Any], bytes] | None


class SourceReplay:
    """Replays one topic into one store. One thread at a time uses it."""

    def __init__(self, reader: SourceReader, encoders: _Encoders, failures: Failures) -> None:
        self._reader = reader
        self._encoders = encoders
        self._failures = failures
        self._partition_time_ms: dict[int, int] = {}
        self._next_offset: dict[int, int] = {}
        # BYTES accepts all bytes and changes nothing.
        self._decode_key = None if reader.key_serde is BYTES else reader.decode_key
        self._decode_value = None if reader.value_serde is BYTES else reader.decode_value

    @property
    def is_needed(self) -> bool:
        """Whether a record may differ from what processing stores, apart from an invalid timestamp."""
        decodes = self._decode_key or self._decode_value or self._encoders.key or self._encoders.value
        return decodes is not None or self._reader.extract is not None

    def replayed(self, records: Sequence[RawRecord]) -> Sequence[RawRecord]:
        """Return the records as processing stores them, without the records that it drops.

        The records are of one partition, in offset order. All returned records have the same class.

        Raises:
            DeserializationError: A record cannot be decoded, and the deserialization handler decides to stop.
            BrokerUnavailableError: A serde needs an unavailable service. No record was replayed; call it again later.
        """
        if self._reader.extract is None and self._is_stored_unchanged(records):
            return records
        return self._one_by_one(records)

    def _is_stored_unchanged(self, records: Sequence[RawRecord]) -> bool:
        kind = type(records[0])
        keys, values = list(map(kind.key, records)), list(map(kind.value, records))
        if None in keys or min(map(_time_of, map(kind.timestamp, records))) < 0:
            return False
        try:
            return _is_unchanged(keys, self._decode_key, self._encoders.key) and _is_unchanged(
                values, self._decode_value, self._encoders.value
            )
        except Exception:  # the slow path finds the record and handles the error
            return False

    def _one_by_one(self, records: Sequence[RawRecord]) -> Sequence[RawRecord]:
        reader, encoders = self._reader, self._encoders
        partition = records[0].partition()
        time_ms = self._time_before(records)
        kept: list[RawRecord] = []
        for raw in records:
            key, value = raw.key(), raw.value()
            try:
                decoded_key = None if key is None else reader.decode_key(key)
                decoded_value = None if value is None else reader.decode_value(value)
            except Exception as error:
                self._failures.undecodable(reader, raw, error)
                continue
            timestamp_ms = time_of(reader, raw, decoded_key, decoded_value, time_ms, self._failures)
            if timestamp_ms is None:
                continue
            time_ms = max(time_ms, timestamp_ms)
            if decoded_key is None:
                self._failures.passed_over(reader, raw, "null key in a table")
                continue
            if encoders.key is not None:
                key = encoders.key(decoded_key)
            if decoded_value is None:
                value = None
            elif encoders.value is not None:
                value = encoders.value(decoded_value)
            kept.append(ReplayedRecord(raw, key, value, timestamp_ms))
        self._partition_time_ms[partition] = time_ms
        self._next_offset[partition] = records[-1].offset() + 1
        return kept

    def _time_before(self, records: Sequence[RawRecord]) -> int:
        """Return the partition time before these records, for extractors that use it.

        A replay that starts in the middle of a log does not know it. It uses the first valid timestamp that follows.
        """
        first, partition = records[0].offset(), records[0].partition()
        if first >= self._next_offset.get(partition, first + 1):
            return self._partition_time_ms[partition]
        if first == 0:
            return -1
        return next((time_ms for raw in records if (time_ms := raw.timestamp()[1]) >= 0), -1)


def _is_unchanged(
    column: Sequence[bytes | None], decode: Callable[[bytes], Any] | None, encode: Callable[[Any], bytes] | None
) -> bool:
    """Whether decoding and encoding a column gives the same bytes, and no new null."""
    given = [data for data in column if data is not None]
    decoded: Sequence[Any] = given if decode is None else list(map(decode, given))
    if decode is not None and any(value is None for value in decoded):
        return False
    return encode is None or list(map(encode, decoded)) == given


class _NoLetters:
    """Stands in for a collector if dead letters are not written."""

    def __init__(self, settings: TaskSettings) -> None:
        self.settings = settings

    def write(self, letters: Sequence[DeadLetter], context: ErrorContext) -> None:
        """Write nothing."""


def task_replays(
    task_id: TaskId, nodes: Sequence[Node], stores: Sequence[StoreBuilder], settings: TaskSettings
) -> Mapping[str, SourceReplay]:
    """Return the replay of each source topic of a task that is the changelog of a store, if one is needed.

    The records were processed before. The deserialization handler is called again, because only its answer tells
    whether the table has the record. Dead letters are not written again.
    """
    fed = {store.source_topic: store for store in stores if store.source_topic is not None}
    found = source_replays(task_id, nodes, fed, settings) if fed else {}
    return {topic: replay for topic, replay in found.items() if replay.is_needed}


def source_replays(
    task_id: TaskId,
    nodes: Sequence[Node],
    fed: Mapping[str, StoreBuilder],
    settings: TaskSettings,
    letters: LetterWriter | None = None,
) -> dict[str, SourceReplay]:
    """Return the replay of each topic.

    Args:
        task_id: The task, for messages.
        nodes: The nodes of its sub-topology.
        fed: Topic (full name) -> the store that is restored from it.
        settings: The settings of the task.
        letters: Writes dead letters. None: dead letters are not written.
    """
    failures = Failures(task_id, RecordContext(), letters or _NoLetters(settings), lambda: None)
    functions = {node.name: _unused for node in nodes if isinstance(node, SourceNode)}
    readers = source_readers(nodes, settings, fed, functions)
    return {
        topic: SourceReplay(reader, _encoders(fed[topic], reader, settings), failures)
        for topic, reader in readers.items()
    }


def _encoders(store: StoreBuilder, reader: SourceReader, settings: TaskSettings) -> _Encoders:
    if store.kind is StoreKind.CUSTOM:
        return _Encoders(None, None)
    defaults = SerdeDefaults(settings.default_key_serde, settings.default_value_serde)
    key_serde: Serde[Any] = serde_or_default(store.key_serde, defaults, is_key=True) or reader.key_serde
    value_serde: Serde[Any] = serde_or_default(store.value_serde, defaults, is_key=False) or reader.value_serde
    is_bytes = key_serde is BYTES and reader.key_serde is BYTES
    topic = changelog_topic(store, settings.application_id)
    return _Encoders(
        # Different bytes may decode to equal keys, for which the store has one row.
        None if is_bytes else key_serde.serializer(topic, is_key=True),
        # The store's own serde has just decoded these bytes, so they are equivalent to those that it would write.
        None if value_serde is reader.value_serde else value_serde.serializer(topic, is_key=False),
    )


def _unused(key: Any, value: Any, timestamp_ms: int) -> None:
    """Nothing is processed here."""
