"""Stream threads of a client: the client's state after failures, and threads that are added and removed."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

from streams_py.errors import StreamsError
from streams_py.runtime.client.uncaught import StreamThreadExceptionResponse
from streams_py.runtime.group.transport import Leave
from streams_py.runtime.thread.states import State, ThreadState
from streams_py.runtime.thread.stream_thread import StreamThread
from tests.support.runtime.fake_threads import Client

# -- errors ------------------------------------------------------------------------------------------------------


def test_client_ends_in_error_when_nobody_handles_the_error_of_a_thread(client: Client) -> None:
    first, second = client.start()
    first.run()
    second.run()
    error = StreamsError("user code")
    first.fail(error)
    assert client.streams.state is State.PENDING_ERROR
    assert second.asked[-1] == ("shut down", Leave.STAY, None)
    second.end()
    assert client.path == "CREATED REBALANCING RUNNING PENDING_ERROR ERROR"
    assert client.streams.error is error
    with pytest.raises(StreamsError, match="user code"):
        client.streams.wait()
    assert client.streams.close() is True
    [of_client] = [
        of for group, of in client.streams.metrics().items() if group.startswith("stream-metrics{client-id=")
    ]
    assert of_client["failed-stream-threads"] == 1


def test_replaced_thread_has_the_same_number_and_the_client_rebalances(client: Client) -> None:
    client.handle = lambda error: StreamThreadExceptionResponse.REPLACE_THREAD
    first, second = client.start()
    first.run()
    second.run()
    first.fail(StreamsError("user code"))
    replacement = client.made[2]
    assert replacement.index == first.index
    assert replacement.asked[-1] == "start"
    replacement.run()
    assert client.path == "CREATED REBALANCING RUNNING REBALANCING RUNNING"
    assert client.streams.error is None


def test_thread_that_is_added_does_not_take_the_number_of_one_that_is_being_replaced(client: Client) -> None:
    """Otherwise the client would lose track of one of the two, and never close it."""
    client.handle = lambda error: StreamThreadExceptionResponse.REPLACE_THREAD
    first, _ = client.start()
    replace = client.threads.thread_ended

    def add_and_replace(thread: StreamThread) -> None:
        client.streams.add_stream_thread()
        replace(thread)

    client.threads.thread_ended = add_and_replace  # type: ignore[method-assign]
    first.fail(StreamsError("user code"))
    assert [thread.index for thread in client.made] == [1, 2, 3, 1]


def test_thread_is_not_replaced_when_the_client_is_closing(client: Client) -> None:
    client.handle = lambda error: StreamThreadExceptionResponse.REPLACE_THREAD
    first, second = client.start()
    client.streams.close(0)
    first.fail(StreamsError("user code"))
    second.end()
    assert len(client.made) == 2
    assert client.streams.state is State.NOT_RUNNING


def test_whole_application_is_told_to_stop_through_a_replacement(client: Client) -> None:
    client.handle = lambda error: StreamThreadExceptionResponse.SHUTDOWN_APPLICATION
    first, second = client.start()
    first.run()
    second.run()
    error = StreamsError("user code")
    first.fail(error)
    replacement = client.made[2]
    assert second.asked[-1] == "stop application"
    assert replacement.asked == [("pause", False), "stop application", "start"]
    client.threads.stop_with_application()  # the leader's answer
    assert client.streams.state is State.PENDING_ERROR
    for thread in (second, replacement):
        thread.end()
    assert client.streams.state is State.ERROR
    assert client.streams.error is error


def test_client_stops_by_itself_when_the_messenger_fails_too(client: Client) -> None:
    client.handle = lambda error: StreamThreadExceptionResponse.SHUTDOWN_APPLICATION
    first, second = client.start()
    first.fail(StreamsError("user code"))
    client.made[2].fail(StreamsError("no client can be made"))
    assert len(client.made) == 3
    assert client.streams.state is State.PENDING_ERROR
    second.end()
    assert client.streams.state is State.ERROR


def test_client_without_an_error_of_its_own_says_that_another_one_stopped_the_application(client: Client) -> None:
    threads = client.start()
    client.threads.stop_with_application()
    for thread in threads:
        thread.end()
    with pytest.raises(StreamsError, match="asked all members to shut down"):
        client.streams.wait()


def test_thread_that_fails_while_it_is_removed_is_not_replaced(client: Client) -> None:
    client.handle = lambda error: StreamThreadExceptionResponse.REPLACE_THREAD
    first, second = client.start()
    with pytest.raises(StreamsError, match="its removal continues"):
        client.streams.remove_stream_thread(timeout=1)
    removed = next(thread for thread in (first, second) if thread.state is ThreadState.PENDING_SHUTDOWN)
    removed.fail(StreamsError("user code"))
    assert len(client.made) == 2


@pytest.mark.parametrize("answer", ["raises", "exits", None, "REPLACE_THREAD"])
def test_handler_that_gives_no_answer_shuts_the_client_down(
    client: Client, answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(error: Exception) -> StreamThreadExceptionResponse:
        if answer == "raises":
            raise ZeroDivisionError("handler")
        if answer == "exits":
            sys.exit(3)
        return answer  # type: ignore[return-value]  # what a careless user may return

    client.handle = handler
    client.start()[0].fail(StreamsError("user code"))
    assert client.streams.state is State.PENDING_ERROR
    assert "uncaught-exception handler" in caplog.text


def test_handler_may_close_the_client(client: Client) -> None:
    def handler(error: Exception) -> StreamThreadExceptionResponse:
        assert client.streams.close() is False  # it does not wait for itself
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT

    client.handle = handler
    first, second = client.start()
    first.fail(StreamsError("user code"))
    second.end()
    assert client.streams.state is State.NOT_RUNNING


# -- threads -----------------------------------------------------------------------------------------------------


def test_added_thread_gets_the_lowest_free_number(client: Client) -> None:
    assert client.streams.add_stream_thread() is None
    first, _ = client.start()
    assert client.streams.add_stream_thread() == "thread-3"
    first.end()
    assert client.streams.add_stream_thread() == "thread-1"
    assert [thread.index for thread in client.made] == [1, 2, 3, 1]
    client.streams.close(0)
    assert client.streams.add_stream_thread() is None


def test_removed_thread_leaves_the_group_and_the_caller_is_the_last_choice(client: Client) -> None:
    assert client.streams.remove_stream_thread() is None
    first, second = client.start()
    first.is_current = True
    second.wait = lambda timeout_s: True  # type: ignore[method-assign]
    assert client.streams.remove_stream_thread(timeout=3) == "thread-2"
    assert second.asked[-1] == ("shut down", Leave.FOR_GOOD, 3000)
    second.end()
    assert client.streams.remove_stream_thread() == "thread-1"
    assert first.asked[-1] == ("shut down", Leave.FOR_GOOD, None)
    assert client.streams.remove_stream_thread() is None


def no_more_threads() -> None:
    raise RuntimeError("can't start new thread")


def test_client_that_can_have_no_more_threads_fails_and_can_be_closed(client: Client) -> None:
    make = client.factory.new_thread

    def second_does_not_start(index: int, owner: Any) -> Any:
        thread = make(index, owner)
        if index == 2:
            thread.start = no_more_threads  # type: ignore[method-assign]
        return thread

    client.factory.new_thread = second_does_not_start  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="new thread"):
        client.start()
    client.made[0].end()
    client.made[1].end()
    assert client.streams.state is State.ERROR
    with pytest.raises(RuntimeError, match="new thread"):
        client.streams.wait()


def test_client_whose_failed_thread_cannot_be_replaced_fails(client: Client) -> None:
    client.handle = lambda error: StreamThreadExceptionResponse.REPLACE_THREAD
    first, second = client.start()
    make = client.factory.new_thread

    def does_not_start(index: int, owner: Any) -> Any:
        thread = make(index, owner)
        thread.start = no_more_threads  # type: ignore[method-assign]
        return thread

    client.factory.new_thread = does_not_start  # type: ignore[method-assign]
    first.fail(StreamsError("user code"))
    assert client.streams.state is State.PENDING_ERROR
    second.end()
    client.made[2].end()
    assert client.streams.state is State.ERROR


def test_removal_that_takes_too_long_says_that_it_continues(client: Client) -> None:
    client.start()
    with pytest.raises(StreamsError, match=r"did not stop within 0\.1 s; its removal continues"):
        client.streams.remove_stream_thread(timeout=0.1)


def test_thread_whose_removal_took_too_long_is_forgotten_when_it_has_ended(client: Client) -> None:
    """The other threads get its part of the cache, and metrics and health no longer include it."""
    shares: list[int] = []
    client.factory.share_cache = shares.append  # type: ignore[method-assign]
    first, second = client.start()
    with pytest.raises(StreamsError, match="its removal continues"):
        client.streams.remove_stream_thread(timeout=0.1)
    shares.clear()
    first.end()
    assert shares == [1]
    assert client.threads.current() == [second]


def test_cache_is_shared_by_the_threads_that_are_alive(tmp_path: Path) -> None:
    client = Client(tmp_path, num_stream_threads=2, statestore_cache_max_bytes=1200)
    shares: list[int] = []
    client.factory.share_cache = shares.append  # type: ignore[method-assign]
    first, _ = client.start()

    def end(timeout_s: float | None) -> bool:
        first.end()
        return True

    first.wait = end  # type: ignore[method-assign]
    client.streams.add_stream_thread()
    client.streams.remove_stream_thread()
    client.streams.add_stream_thread()
    assert [count for count, _ in itertools.groupby(shares)] == [1, 2, 3, 2, 3]


def test_pause_reaches_all_threads_and_those_that_come_later(client: Client) -> None:
    threads = client.start()
    client.streams.pause()
    client.streams.add_stream_thread()
    assert [thread.asked[-1] for thread in threads[:2]] == [("pause", True)] * 2
    assert client.made[2].asked[0] == ("pause", True)
    client.streams.resume()
    assert all(thread.asked[-1] == ("pause", False) for thread in client.made)
