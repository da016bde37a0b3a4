"""Calls to a stream thread end when it stops, and after ``max.poll.interval.ms``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError, TaskMigratedError
from streams_py.member.tasks import Tasks
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.group.inbox import Inbox
from streams_py.runtime.group.thread_calls import ThreadCalls, max_poll_interval_ms
from streams_py.runtime.group.transport import TaskListener
from tests.support.runtime.world import DirectInbox, task


class Recorder:
    """A stream thread and the receiver of its signals."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def record(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            return {TopicPartition("in", 0): OffsetAndMetadata(3)} if name == "revoke" else None

        return record


def calls_to(thread: Recorder, inbox: Inbox[TaskListener] | None = None) -> ThreadCalls:
    direct = DirectInbox()
    direct.owner = thread
    listener: Any = thread
    return ThreadCalls(inbox or direct, listener, wait_ms=1)


def make_all(calls: ThreadCalls) -> Any:
    """Make each call; return the result of the first."""
    offsets = calls.revoke([task("0_0")])
    calls.revoked(None)
    calls.assign(Tasks(), None)
    calls.lose([task("0_1")])
    return offsets


def test_calls_run_on_the_thread_and_return_its_results() -> None:
    thread = Recorder()
    assert make_all(calls_to(thread)) == {TopicPartition("in", 0): OffsetAndMetadata(3)}
    assert thread.calls == [
        ("revoke", [task("0_0")]),
        ("revoked", None),
        ("assign", Tasks(), None),
        ("lose", [task("0_1")]),
    ]


def test_calls_do_nothing_when_the_thread_is_stopping() -> None:
    thread = Recorder()
    calls = calls_to(thread)
    calls.end()
    assert make_all(calls) == {}
    closed = Inbox[TaskListener]()
    closed.close()
    assert make_all(calls_to(thread, closed)) == {}
    assert thread.calls == []


def test_thread_that_is_busy_for_too_long_is_halted() -> None:
    thread = Recorder()
    with pytest.raises(TaskMigratedError, match=r"within 1 ms.*\(max\.poll\.interval\.ms\)"):
        calls_to(thread, Inbox()).lose([])
    [(name, reason)] = thread.calls
    assert name == "halt"
    assert "more than max.poll.interval.ms (1 ms)" in reason


def test_time_limit_is_the_consumer_s() -> None:
    settings = {"application.id": "a", "bootstrap.servers": "b:1"}
    assert max_poll_interval_ms(StreamsConfig.of(settings)) == 300_000
    longer = settings | {"max.poll.interval.ms": 100_000, "main.consumer.max.poll.interval.ms": 400_000}
    assert max_poll_interval_ms(StreamsConfig.of(longer)) == 400_000
    with pytest.raises(ConfigError, match=r"max\.poll\.interval\.ms"):
        max_poll_interval_ms(StreamsConfig.of(settings | {"consumer.max.poll.interval.ms": "soon"}))
