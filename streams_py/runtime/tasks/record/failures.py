"""Error handling of a task: where an error happened, which handler is called, and which error is raised.

One object per task. Every message names node, task, topic, partition and offset (KIP-1033's ``ErrorHandlerContext``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from streams_protocol.types import TaskId
from streams_py.errors import (
    BrokerUnavailableError,
    ChangedInPlaceError,
    DeserializationError,
    ProcessingError,
    ProductionError,
    RegistryError,
    StateError,
    StateStoreMigratedError,
    StreamsError,
    TaskCorruptedError,
    TaskMigratedError,
    TimeoutExceededError,
)
from streams_py.ports import RawRecord
from streams_py.ports.record_headers import headers_of
from streams_py.runtime.tasks.record.queue import SourceReader
from streams_py.runtime.tasks.settings.handlers import Answer, DeadLetter, ErrorContext, FailedRecord, ask
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.serdes import cannot_decode
from streams_py.serdes.reasons import cause_of, reason_of
from streams_py.system.printable import named
from streams_py.topology.declare.caller import raised_line
from streams_py.topology.declare.nodes import RecordContext

_log = logging.getLogger(__name__)

# Errors that no processing handler is asked about, besides those that a handler has already decided: they say nothing
# about the record. (Unlike in Kafka Streams, a failed store write is one of them: "continue" would leave a hole in the
# state. So is a closed store, such as a global store whose thread has failed: "continue" would drop every record that
# needs it.)
_FINAL = (
    ProductionError,
    TaskCorruptedError,
    TaskMigratedError,
    BrokerUnavailableError,
    TimeoutExceededError,
    StateError,
    StateStoreMigratedError,
    RegistryError,
    ChangedInPlaceError,
)

_NOT_THE_RECORD = (BrokerUnavailableError, RegistryError)


def _is_final(error: Exception) -> bool:
    return isinstance(error, _FINAL) or (isinstance(error, StreamsError) and error.was_handled)


def _reported(message: str, *, task_id: TaskId) -> ProcessingError:
    """Return the error for a node whose failure the handler answered with FAIL. Other nodes don't report it again."""
    error = ProcessingError(message, task_id=task_id)
    error.was_handled = True
    return error


def _raised(error: Exception) -> str:
    """Describe an error and the line that raised it: node names are numbers, and remote logs may not be available."""
    where = raised_line(error)
    return named(error) + ("" if where is None else f" ({where})")


class LetterWriter(Protocol):
    """The part of a task's collector that this module uses."""

    @property
    def settings(self) -> TaskSettings: ...
    def write(self, letters: Sequence[DeadLetter], context: ErrorContext) -> None:
        """Send the records of an exception handler."""


class Failures:
    """Error handling of one task. ``current`` returns the raw record in process, if there is one."""

    def __init__(
        self, task_id: TaskId, record: RecordContext, collector: LetterWriter, current: Callable[[], RawRecord | None]
    ) -> None:
        self._task_id = task_id
        self._record = record
        self._collector = collector
        self._settings = collector.settings
        self._current = current
        self.dropped_records = 0
        self._unread: Exception | None = None

    def context_of(self, node: str) -> ErrorContext:
        """Return the error context of a node for the record in process."""
        record = self._record
        raw = self._current()
        if raw is not None and (record.topic, record.partition, record.offset) != (
            raw.topic(),
            raw.partition(),
            raw.offset(),
        ):
            raw = None  # a cache entry is being forwarded; its input record is gone
        return ErrorContext(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            record.headers,
            node,
            self._task_id,
            raw=raw,
        )

    def dropped(self, node: str, reason: str) -> None:
        """Count the current record as dropped.

        The first drops are logged, later ones with growing intervals: a flood would hide everything else.
        """
        self._count_dropped(reason, lambda: self.context_of(node))

    def passed_over(self, reader: SourceReader, raw: RawRecord, reason: str) -> None:
        """Count a record as dropped that no node has processed."""
        self._count_dropped(reason, lambda: self._context_of_raw(reader, raw))

    def _count_dropped(self, reason: str, where: Callable[[], ErrorContext]) -> None:
        self.dropped_records = count = self.dropped_records + 1
        if count & (count - 1) == 0:
            _log.warning("dropped record number %d of task %s: %s (%s)", count, self._task_id, reason, where())

    def node_failed(self, node: str, error: Exception, key: Any, value: Any, timestamp_ms: int) -> None:
        """Handle an error of a node. Returns if the record is to be dropped; raises errors that no handler decides."""
        if _is_final(error):
            raise error
        context = self.context_of(node)
        record = FailedRecord(key, value, timestamp_ms, context.headers)
        self._ask_processing_handler(context, record, error, "processing failed")

    def punctuator_failed(self, node: str, error: Exception) -> None:
        """Handle an error of a punctuator. Returns if the error is to be ignored."""
        if _is_final(error):
            raise error
        self._ask_processing_handler(self.context_of(node), None, error, "a punctuator failed")

    def _ask_processing_handler(
        self, context: ErrorContext, record: FailedRecord | None, error: Exception, what: str
    ) -> None:
        response = ask(self._settings.processing_handler, context, record, error)
        self._collector.write(response.dead_letters, context)
        if response.answer is not Answer.CONTINUE:
            raise _reported(f"{what} in {context}: {_raised(error)}", task_id=self._task_id) from error
        self.dropped(context.node, named(error))

    def was_unread(self, error: Exception) -> bool:
        """Whether this error kept a record from being decoded, so that the record has had no effect yet."""
        return error is self._unread

    def undecodable(self, reader: SourceReader, raw: RawRecord, error: Exception) -> None:
        """Handle a record whose bytes do not fit its serdes. Returns if the record is to be dropped.

        Errors of a schema registry, which the serde needs, are raised: they don't concern the record.
        """
        if isinstance(error, _NOT_THE_RECORD):
            self._unread = error
            raise error
        key = raw.key()
        is_key = False
        if key is not None:
            try:
                reader.decode_key(key)
            except _NOT_THE_RECORD:
                raise
            except Exception:
                is_key = True
        context = self._context_of_raw(reader, raw)
        response = ask(self._settings.deserialization_handler, context, raw, error)
        self._collector.write(response.dead_letters, context)
        if response.answer is Answer.CONTINUE:
            self.passed_over(reader, raw, f"{type(error).__name__}: {reason_of(error)}")
            return
        serde, data = (reader.key_serde, key) if is_key else (reader.value_serde, raw.value())
        shows_bytes = self._settings.shows_record_bytes
        what = cannot_decode(error, serde, data, topic=raw.topic(), is_key=is_key, shows_bytes=shows_bytes)
        raise DeserializationError(
            f"{context}: {what}. To drop such records, set deserialization.exception.handler to log_and_continue "
            f"or to a DeadLetterQueue",
            task_id=self._task_id,
        ) from (error if shows_bytes else cause_of(error))

    def extractor_failed(self, reader: SourceReader, raw: RawRecord, error: Exception) -> StreamsError:
        """Return the error for a timestamp extractor that raised."""
        context = self._context_of_raw(reader, raw)
        return _reported(f"the timestamp extractor failed in {context}: {_raised(error)}", task_id=self._task_id)

    def no_timestamp(self, reader: SourceReader, raw: RawRecord) -> StreamsError:
        """Return the error for a record without a valid timestamp."""
        return StreamsError(
            f"{self._context_of_raw(reader, raw)} has no valid timestamp ({raw.timestamp()[1]}); set a "
            f"timestamp_extractor for the source that returns a time, or -1 to drop such records",
            task_id=self._task_id,
        )

    def unexpected(self, error: Exception, node: str) -> StreamsError:
        """Return the error for an exception that no node has handled."""
        context = self.context_of(node)
        return _reported(f"processing failed below {context}: {_raised(error)}", task_id=self._task_id)

    def _context_of_raw(self, reader: SourceReader, raw: RawRecord) -> ErrorContext:
        return ErrorContext(
            raw.topic(),
            raw.partition(),
            raw.offset(),
            raw.timestamp()[1],
            tuple(headers_of(raw) or ()),
            reader.node,
            self._task_id,
            raw=raw,
        )
