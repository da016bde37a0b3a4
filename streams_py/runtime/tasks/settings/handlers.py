"""Exception handlers for records that cannot be read, processed or written (KIP-161, KIP-1033, KIP-1034).

All three kinds are called as ``handler(context, record, error)`` and return an Answer or a Response. A handler is a
function, an object whose method ``handle`` has these parameters, or the class of such an object. The class is called
without arguments. ``record`` is:

* for deserialization: the raw record as the consumer delivered it,
* for processing: a :class:`FailedRecord`, or None if a punctuator failed,
* for production: an :class:`OutgoingRecord`. If the broker rejected the record, its key and value are bytes. The
  timestamp is -1 if it is no longer known. ``record`` is None if only its topic and partition are known.

A handler that raises, or returns another type, stops the stream thread. Handlers run on the stream thread, so a handler
that blocks stops processing.
"""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple, TypeAlias, cast

from streams_protocol.types import TaskId
from streams_py.errors import ConfigError, HandlerError, ProductionError, RefusedRecord, StreamsError
from streams_py.ports import Headers, RawRecord
from streams_py.runtime.tasks.settings.configured import imported
from streams_py.serdes.reasons import reason_of
from streams_py.system.printable import named, text_of

__all__ = [
    "Answer",
    "DeadLetter",
    "DeadLetterQueue",
    "DeserializationHandler",
    "ErrorContext",
    "FailedRecord",
    "Handler",
    "Origin",
    "OutgoingRecord",
    "ProcessingHandler",
    "ProductionHandler",
    "Response",
    "ask",
    "default_production_handler",
    "log_and_continue",
    "log_and_fail",
    "resolve_handler",
]

_log = logging.getLogger("streams_py.handlers")


class Answer(Enum):
    """Decision of a handler. RETRY is only for records that the broker rejected."""

    CONTINUE = "continue"
    """Drop the record and continue; its offset is committed."""
    FAIL = "fail"
    """Stop: the error goes to the uncaught-exception handler."""
    RETRY = "retry"
    """Roll the task back to its last commit and process again, if the error is temporary; otherwise like FAIL."""


class Origin(Enum):
    """Which part of an outgoing record failed."""

    KEY = "key"
    """The serde refused the key."""
    VALUE = "value"
    """The serde refused the value."""
    SEND = "send"
    """The broker or the producer refused the record."""


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """Where an error happened.

    Topic, partition, offset, timestamp (ms) and headers belong to the *input* record. In a punctuator the topic is
    None, and partition and offset are -1. ``origin`` is only set for production errors.
    """

    topic: str | None
    """Topic of the input record. None in a punctuator."""
    partition: int
    """Partition of the input record. -1 in a punctuator."""
    offset: int
    """Offset of the input record. -1 in a punctuator."""
    timestamp_ms: int
    """Timestamp of the input record, in ms."""
    headers: Headers
    """Headers of the input record."""
    node: str
    """Name of the node that failed."""
    task_id: TaskId
    """The task that failed."""
    origin: Origin | None = None
    """The part of the outgoing record that failed. Only set for production errors."""
    raw: RawRecord | None = None
    """The input record as bytes, for dead letters; None if the record in process is not an input record."""

    def __str__(self) -> str:
        where = f"node {self.node}, task {self.task_id}"
        if self.topic is None:
            return where
        if self.offset < 0:  # a record from a cache results from many input records
            return f"{where}, input topic {self.topic}"
        return f"{where}, input record {self.topic}-{self.partition} at offset {self.offset}"


class FailedRecord(NamedTuple):
    """The record that a node was processing when it failed."""

    key: Any
    """Its key."""
    value: Any
    """Its value."""
    timestamp_ms: int
    """Its timestamp, in ms."""
    headers: Headers
    """Its headers."""


class OutgoingRecord(NamedTuple):
    """The record that a sink could not write."""

    topic: str
    """Topic to which the record was to be written."""
    key: Any
    """Its key."""
    value: Any
    """Its value."""
    timestamp_ms: int
    """Its timestamp, in ms."""
    headers: Headers
    """Its headers."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that a handler wants to write, as bytes. It counts as output of the task."""

    topic: str
    """Topic to write to. It must exist."""
    key: bytes | None
    """The key as bytes."""
    value: bytes | None
    """The value as bytes."""
    timestamp_ms: int
    """The timestamp, in ms."""
    headers: Headers = ()
    """The headers."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, and records to write before the answer takes effect."""

    answer: Answer
    """What to do with the failed record."""
    dead_letters: tuple[DeadLetter, ...] = ()
    """Records to write first."""


Handler: TypeAlias = Callable[[ErrorContext, Any, Exception], "Answer | Response"]
DeserializationHandler: TypeAlias = Callable[[ErrorContext, RawRecord, Exception], "Answer | Response"]
"""Called with the context, the record as bytes, and the error."""
ProcessingHandler: TypeAlias = Callable[[ErrorContext, "FailedRecord | None", Exception], "Answer | Response"]
"""Called with the context, the record (None in a punctuator), and the error."""
ProductionHandler: TypeAlias = Callable[[ErrorContext, "OutgoingRecord | None", Exception], "Answer | Response"]
"""Called with the context, the record (None if it is not known), and the error."""


# -- built-in handlers ---------------------------------------------------------------------------------------


def log_and_fail(context: ErrorContext, record: object, error: Exception) -> Answer:
    """Log and stop: the default for deserialization and processing."""
    _log.error("stopping after an error in %s: %s", context, _reason(record, error))
    return Answer.FAIL


def log_and_continue(context: ErrorContext, record: object, error: Exception) -> Answer:
    """Log the error and drop the record."""
    _log.warning("dropping a record after an error in %s: %s", context, _reason(record, error))
    return Answer.CONTINUE


def _reason(record: object, error: Exception) -> str:
    """Return the error text: without record contents, unless the user's own code chose the text."""
    if record is None or isinstance(record, FailedRecord):
        return text_of(error) if isinstance(error, StreamsError) else named(error)
    return reason_of(error)


def default_production_handler(context: ErrorContext, record: object, error: Exception) -> Answer:
    """Process again after a temporary error of the broker, otherwise stop: the default for production."""
    if context.origin is Origin.SEND and isinstance(error, ProductionError) and error.retriable:
        return Answer.RETRY
    return Answer.FAIL


class DeadLetterQueue:
    """Drops a record that cannot be read, processed or written, and writes its bytes to a topic (KIP-1034).

    Key, value, timestamp and headers come from the input record. Additional headers, as UTF-8 text, describe the error:
    ``__streams.errors.exception``, ``.message``, ``.stacktrace``, ``.topic``, ``.partition``, ``.offset``. Without an
    input record (punctuators) nothing can be written, and the answer is FAIL. The topic must exist.

    If a broker rejects a record, the input record is already gone. Then the dead letter is the rejected record;
    ``.topic`` and ``.partition`` are its destination, and ``.offset`` is -1. If its timestamp was rejected, the dead
    letter has the current time, and ``.timestamp`` has the rejected one.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        """Topic of the dead letters."""

    def handle(self, context: ErrorContext, record: object, error: Exception) -> Response:
        """Handle an error, as a :data:`Handler`."""
        raw = context.raw
        if isinstance(error, ProductionError) and error.record is not None:
            return Response(Answer.CONTINUE, (self._letter_of_refused(error.record, context, error),))
        if raw is None or context.topic is None:
            _log.error("no input record for the dead letter topic %s in %s: %s", self.topic, context, text_of(error))
            return Response(Answer.FAIL)
        _log.warning("writing a record to %s after an error in %s: %s", self.topic, context, text_of(error))
        headers = [*context.headers, *_error_headers(context, error)]
        letter = DeadLetter(self.topic, raw.key(), raw.value(), context.timestamp_ms, headers)
        return Response(Answer.CONTINUE, (letter,))

    def _letter_of_refused(self, record: RefusedRecord, context: ErrorContext, error: ProductionError) -> DeadLetter:
        _log.warning("writing a record to %s that topic %s refused: %s", self.topic, record.topic, error)
        partition = -1 if record.partition is None else record.partition
        facts = _error_headers(replace(context, topic=record.topic, partition=partition), error)
        timestamp_ms = record.timestamp_ms
        if error.reason == _INVALID_TIMESTAMP:  # the dead letter topic would reject it, too
            if timestamp_ms != _NOW:
                facts.append(("__streams.errors.timestamp", str(timestamp_ms).encode()))
            timestamp_ms = _NOW
        return DeadLetter(self.topic, record.key, record.value, timestamp_ms, [*record.headers, *facts])


_INVALID_TIMESTAMP = "INVALID_TIMESTAMP"
_NOW = -1  # the producer's clock
_HEADER_CHARS_MAX = 16_384
"""Maximum length of each header: validation errors may be megabytes long, and a broker would reject such a letter."""


def _error_headers(context: ErrorContext, error: Exception) -> list[tuple[str, bytes | None]]:
    facts = {
        "exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "message": text_of(error),
        "stacktrace": "".join(traceback.format_exception(error)),
        "topic": context.topic or "",
        "partition": str(context.partition),
        "offset": str(context.offset),
    }
    return [
        (f"__streams.errors.{name}", _cut(text).encode("utf-8", "backslashreplace")) for name, text in facts.items()
    ]


def _cut(text: str) -> str:
    half = _HEADER_CHARS_MAX // 2
    return text if len(text) <= _HEADER_CHARS_MAX else f"{text[:half]} ... {text[-half:]}"


# -- configuration -------------------------------------------------------------------------------------------

_NAMED: Mapping[str, Handler] = {
    "log_and_fail": log_and_fail,
    "log_and_continue": log_and_continue,
    "default": default_production_handler,
}


def resolve_handler(given: object, key: str) -> Handler:
    """Return the function of a configured handler.

    Args:
        given: The name of a built-in handler, ``"package.module:name"``, a class, an object with ``handle``, or a
            function.

    Raises:
        ConfigError: It is something else. The error names ``key``.
    """
    if isinstance(given, str):
        given = _NAMED[given] if given in _NAMED else imported(given, key, _NAMED)
    if isinstance(given, type):
        try:
            given = given()
        except Exception as error:
            raise ConfigError(
                f"{key}: {given!r} cannot be created without arguments ({text_of(error)}); give an object of it "
                "instead",
                key=key,
            ) from error
    handle = getattr(given, "handle", given)
    if not callable(handle):
        raise ConfigError(
            f"{key} = {given!r} is not a handler: use one of {', '.join(sorted(_NAMED))}, 'package.module:name', "
            f"a function (context, record, error), or an object with such a method `handle`",
            key=key,
        )
    if inspect.iscoroutinefunction(handle):
        raise ConfigError(
            f"{key} = {given!r} is an `async def`; handlers are called by a stream thread: write `def`", key=key
        )
    return cast("Handler", handle)


def ask(handler: Handler, context: ErrorContext, record: object, error: Exception) -> Response:
    """Call a handler and return its response. HandlerError if it raises or returns another type."""
    try:
        response = handler(context, record, error)
    except Exception as failure:
        raise HandlerError(
            f"the exception handler {_name(handler)} itself raised {failure!r} when asked about {error!r} in {context}",
            task_id=context.task_id,
        ) from failure
    if isinstance(response, Response):
        return response
    if isinstance(response, Answer):
        return Response(response)
    raise HandlerError(
        f"the exception handler {_name(handler)} returned {response!r} when asked about {error!r} in {context}; "
        f"it must return an Answer or a Response",
        task_id=context.task_id,
    ) from error


def _name(handler: Handler) -> str:
    return getattr(handler, "__qualname__", repr(handler))
