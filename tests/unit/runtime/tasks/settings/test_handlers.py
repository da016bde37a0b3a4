"""Exception handlers: their configuration, their calls, and their valid answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams_protocol.types import TaskId
from streams_py.errors import ConfigError, HandlerError, ProductionError
from streams_py.runtime.tasks.settings.handlers import (
    Answer,
    DeadLetterQueue,
    ErrorContext,
    Origin,
    Response,
    ask,
    default_production_handler,
    log_and_continue,
    log_and_fail,
    resolve_handler,
)
from streams_py.testing.memory_clients import MemoryRecord

KEY = "processing.exception.handler"
CONTEXT = ErrorContext("in", 2, 7, 99, (), "node-a", TaskId(1, 2))


class Continuing:
    def handle(self, context: ErrorContext, record: object, error: Exception) -> Answer:
        return Answer.CONTINUE


class NeedsArguments:
    def __init__(self, topic: str) -> None:
        self.topic = topic


def continuing(context: ErrorContext, record: object, error: Exception) -> Answer:
    return Answer.CONTINUE


@pytest.mark.parametrize(
    "given",
    [
        Continuing,
        Continuing(),
        continuing,
        "log_and_continue",
        "streams_py.runtime.tasks.settings.handlers:log_and_continue",
    ],
)
def test_resolve_handler_takes_classes_objects_functions_and_names(given: object) -> None:
    assert ask(resolve_handler(given, KEY), CONTEXT, None, ValueError()).answer is Answer.CONTINUE


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("log_and_hope", "'package.module:name'"),
        ("log_and_contine", "did you mean 'log_and_continue'"),
        ("no.such.module:x", "cannot be imported"),
        ("streams_py.errors:Nothing", "cannot be imported"),
        (NeedsArguments, "cannot be created without arguments"),
        (42, "is not a handler"),
    ],
)
def test_resolve_handler_names_the_key_when_the_value_is_no_handler(given: object, says: str) -> None:
    with pytest.raises(ConfigError, match=KEY) as caught:
        resolve_handler(given, KEY)
    assert says in str(caught.value)


def test_ask_raises_when_the_handler_raises() -> None:
    def broken(context: ErrorContext, record: object, error: Exception) -> Answer:
        raise RuntimeError("handler bug")

    with pytest.raises(HandlerError, match=r"broken itself raised RuntimeError\('handler bug'\)"):
        ask(broken, CONTEXT, None, ValueError("first"))


def test_ask_raises_when_the_handler_returns_no_answer() -> None:
    with pytest.raises(HandlerError, match="returned None"):
        ask(lambda context, record, error: None, CONTEXT, None, ValueError("first"))  # type: ignore[arg-type, return-value]  # that is the point


def test_built_in_handlers_answer_as_named() -> None:
    assert log_and_fail(CONTEXT, None, ValueError()) is Answer.FAIL
    assert log_and_continue(CONTEXT, None, ValueError()) is Answer.CONTINUE


@pytest.mark.parametrize(
    ("origin", "retriable", "answer"),
    [
        (Origin.SEND, True, Answer.RETRY),
        (Origin.SEND, False, Answer.FAIL),
        (Origin.KEY, True, Answer.FAIL),
        (Origin.VALUE, True, Answer.FAIL),
    ],
)
def test_default_production_handler_retries_passing_send_errors_only(
    origin: Origin, retriable: bool, answer: Answer
) -> None:
    context = ErrorContext("in", 2, 7, 99, (), "sink", TaskId(1, 2), origin)
    error = ProductionError("x", topic="out", partition=0, retriable=retriable)
    assert default_production_handler(context, None, error) is answer


def test_dead_letter_queue_keeps_the_bytes_and_says_what_happened() -> None:
    raw = MemoryRecord("in", 2, 7, b"k", b"\xff", timestamp_ms=99, headers=[("h", b"1")])
    context = ErrorContext("in", 2, 7, 99, (("h", b"1"),), "node-a", TaskId(1, 2), raw=raw)
    response = DeadLetterQueue("dead").handle(context, raw, ValueError("not text"))
    assert response.answer is Answer.CONTINUE
    (letter,) = response.dead_letters
    assert (letter.topic, letter.key, letter.value, letter.timestamp_ms) == ("dead", b"k", b"\xff", 99)
    headers = dict(letter.headers)
    assert headers["h"] == b"1"
    assert headers["__streams.errors.exception"] == b"builtins.ValueError"
    assert headers["__streams.errors.message"] == b"not text"
    assert headers["__streams.errors.topic"] == b"in"
    assert headers["__streams.errors.partition"] == b"2"
    assert headers["__streams.errors.offset"] == b"7"
    assert b"ValueError: not text" in (headers["__streams.errors.stacktrace"] or b"")


def test_dead_letter_queue_fails_when_there_is_no_input_record() -> None:
    context = ErrorContext(None, -1, -1, 5, (), "node-a", TaskId(1, 2))
    assert DeadLetterQueue("dead").handle(context, None, ValueError()) == Response(Answer.FAIL)


def test_context_names_an_offset_only_where_there_is_one() -> None:
    assert str(CONTEXT) == "node node-a, task 1_2, input record in-2 at offset 7"
    assert str(replace(CONTEXT, partition=-1, offset=-1)) == "node node-a, task 1_2, input topic in"
