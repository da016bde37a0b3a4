"""Log lines of a failed stream thread: always a reason, and one traceback, from the user's code."""

from __future__ import annotations

import logging
from unittest.mock import Mock

import pytest

from streams_py import serdes
from streams_py.errors import StreamsError
from streams_py.runtime.tasks.settings.handlers import log_and_continue, log_and_fail
from streams_py.runtime.thread.stream_thread import StreamThread
from streams_py.system.clock import SystemClock
from streams_py.topology.dsl.builder import StreamsBuilder
from tests.support.runtime.task_kit import Kit, record


class BrokenTextError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


WITHOUT_TEXT = [
    MemoryError(),
    StopIteration(),
    TimeoutError(),
    KeyboardInterrupt(),
    AssertionError(),
    BrokenTextError(),
]


def failed(error: BaseException) -> list[Exception]:
    """Run a stream thread that fails with ``error``; return its log lines."""
    owner = Mock()

    def open_loop(thread: StreamThread) -> object:
        raise error

    thread = StreamThread(
        "app-StreamThread-1",
        1,
        clock=SystemClock(),
        open_loop=open_loop,  # type: ignore[arg-type]
        owner=owner,
    )
    thread.start()
    assert thread.wait(60)
    return [call.args[1] for call in owner.thread_failed.call_args_list]


@pytest.mark.parametrize("error", WITHOUT_TEXT, ids=lambda error: type(error).__name__)
def test_thread_that_fails_without_a_text_is_reported_with_the_type(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    failed(error)
    [line] = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
    assert line == f"app-StreamThread-1 failed: {type(error).__name__}"


@pytest.mark.parametrize("handler", [log_and_fail, log_and_continue])
@pytest.mark.parametrize("error", [MemoryError(), BrokenTextError()], ids=lambda error: type(error).__name__)
def test_handlers_log_the_type_of_an_error_without_a_text(
    handler: object, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(value: str) -> str:
        raise error

    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("in").map_values(fails).to("out")
    kit = Kit(builder.build(), processing_handler=handler)  # type: ignore[arg-type]
    kit.add(record("a"))
    with caplog.at_level(logging.WARNING):
        if handler is log_and_fail:
            with pytest.raises(StreamsError, match=type(error).__name__):
                kit.task.process(1)
        else:
            kit.task.process(1)
    for line in caplog.messages:
        assert type(error).__name__ in line, line


def test_log_has_one_traceback_and_that_is_of_the_users_code(caplog: pytest.LogCaptureFixture) -> None:
    def parse(value: str) -> int:
        return int(value)

    try:
        try:
            parse("x")
        except ValueError as cause:
            raise StreamsError("processing failed in node MAP, task 0_0") from cause
    except StreamsError as raised:
        error = raised
    assert failed(error) == [error]
    assert caplog.text.count("Traceback (most recent call last)") == 1
    assert "in parse" in caplog.text
    assert "in open_loop" not in caplog.text


def test_error_of_our_own_code_has_its_own_traceback(caplog: pytest.LogCaptureFixture) -> None:
    failed(ZeroDivisionError("division by zero"))
    assert caplog.text.count("Traceback (most recent call last)") == 1
    assert "in open_loop" in caplog.text
