"""What happens to a record that cannot be read, processed or written: exception handlers (KIP-161, KIP-1033, KIP-1034).

All three kinds have one shape, ``handler(context, record, error) -> Answer | Response``: a function, an object with a
method ``handle`` of these arguments, or a class of such objects that needs no arguments. ``record`` is

* for deserialization the raw record as the consumer delivered it,
* for processing a :class:`FailedRecord`, or None when a punctuator failed,
* for production an :class:`OutgoingRecord`. When the broker refused the record, its key and value are bytes. The
  timestamp is -1 if it is no longer known; None replaces the record when only its topic and partition are known.

A handler that raises, or returns anything else, stops the stream thread. Handlers run on the stream thread: one that
blocks stops processing.
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
    """What a handler decides. RETRY is only for records that the broker refused."""

    CONTINUE = "continue"
    """Drop the record and go on; its offset is committed."""
    FAIL = "fail"
    """Stop: the error goes to the uncaught-exception handler."""
    RETRY = "retry"
    """Roll the task back to its last commit and process again, if the error is a passing one; else like FAIL."""


class Origin(Enum):
    """Which part of an outgoing record failed."""

    KEY = "key"
    VALUE = "value"
    SEND = "send"


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """Where it happened. Topic, partition, offset, timestamp (ms) and headers are those of the *input* record; in a
    punctuator topic is None, partition and offset are -1. ``origin`` is set for production errors only."""

    topic: str | None
    partition: int
    offset: int
    timestamp_ms: int
    headers: Headers
    node: str
    task_id: TaskId
    origin: Origin | None = None
    raw: RawRecord | None = None
    """The input record as bytes, as long as the record in process is one; for dead letters."""

    def __str__(self) -> str:
        where = f"node {self.node}, task {self.task_id}"
        if self.topic is None:
            return where
        if self.offset < 0:  # what a cache sends on comes from many records
            return f"{where}, input topic {self.topic}"
        return f"{where}, input record {self.topic}-{self.partition} at offset {self.offset}"


class FailedRecord(NamedTuple):
    """What a node was processing when it failed."""

    key: Any
    value: Any
    timestamp_ms: int
    headers: Headers


class OutgoingRecord(NamedTuple):
    """What a sink was to write."""

    topic: str
    key: Any
    value: Any
    timestamp_ms: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that a handler wants written, bytes as they are; it counts as output of the task."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, and records to write before it takes effect."""

    answer: Answer
    dead_letters: tuple[DeadLetter, ...] = ()


Handler: TypeAlias = Callable[[ErrorContext, Any, Exception], "Answer | Response"]
DeserializationHandler: TypeAlias = Callable[[ErrorContext, RawRecord, Exception], "Answer | Response"]
ProcessingHandler: TypeAlias = Callable[[ErrorContext, "FailedRecord | None", Exception], "Answer | Response"]
ProductionHandler: TypeAlias = Callable[[ErrorContext, "OutgoingRecord | None", Exception], "Answer | Response"]


# -- built-in handlers ---------------------------------------------------------------------------------------


def log_and_fail(context: ErrorContext, record: object, error: Exception) -> Answer:
    """Default for reading and processing: log and stop."""
    _log.error("stopping after an error in %s: %s", context, _reason(record, error))
    return Answer.FAIL


def log_and_continue(context: ErrorContext, record: object, error: Exception) -> Answer:
    """Log and drop the record."""
    _log.warning("dropping a record after an error in %s: %s", context, _reason(record, error))
    return Answer.CONTINUE


def _reason(record: object, error: Exception) -> str:
    """Of a record that cannot be read or written without its contents; functions of the user choose their words."""
    if record is None or isinstance(record, FailedRecord):
        return text_of(error) if isinstance(error, StreamsError) else named(error)
    return reason_of(error)


def default_production_handler(context: ErrorContext, record: object, error: Exception) -> Answer:
    """Default for writing: process again after a passing error of the broker, else stop."""
    if context.origin is Origin.SEND and isinstance(error, ProductionError) and error.retriable:
        return Answer.RETRY
    return Answer.FAIL


class DeadLetterQueue:
    """Drops a record that cannot be read, processed or written, and writes its bytes to a topic of yours (KIP-1034).

    Key, value, timestamp and headers are those of the input record; added headers, as UTF-8 text, say what happened:
    ``__streams.errors.exception``, ``.message``, ``.stacktrace``, ``.topic``, ``.partition``, ``.offset``. Where there
    is no input record (punctuators) nothing can be written, and the answer is FAIL. The topic must exist.

    A broker refuses a record when its input record is gone. The dead letter is then the refused record; ``.topic`` and
    ``.partition`` are those that it was sent to, and ``.offset`` is -1. If its timestamp was refused, the dead letter
    has the current time, and ``.timestamp`` the refused one.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def handle(self, context: ErrorContext, record: object, error: Exception) -> Response:
        """Implements :data:`Handler`."""
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
        if error.reason == _INVALID_TIMESTAMP:  # the topic of dead letters would refuse it, too
            if timestamp_ms != _NOW:
                facts.append(("__streams.errors.timestamp", str(timestamp_ms).encode()))
            timestamp_ms = _NOW
        return DeadLetter(self.topic, record.key, record.value, timestamp_ms, [*record.headers, *facts])


_INVALID_TIMESTAMP = "INVALID_TIMESTAMP"
_NOW = -1  # the producer's clock
_HEADER_CHARS_MAX = 16_384
"""Of each: a validation error may say megabytes about a small record, and a broker would refuse such a letter."""


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
    """The function behind a configured handler: a name of a built-in one, ``"package.module:name"``, a class, an
    object with ``handle``, or a function. ConfigError, naming ``key``, for anything else."""
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
            f"{key} = {given!r} is no handler: give one of {', '.join(sorted(_NAMED))}, 'package.module:name', "
            f"a function (context, record, error), or an object with such a method `handle`",
            key=key,
        )
    if inspect.iscoroutinefunction(handle):
        raise ConfigError(
            f"{key} = {given!r} is an `async def`; handlers are called by a stream thread: write `def`", key=key
        )
    return cast("Handler", handle)


def ask(handler: Handler, context: ErrorContext, record: object, error: Exception) -> Response:
    """The handler's response; HandlerError when it raises or returns something else."""
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
