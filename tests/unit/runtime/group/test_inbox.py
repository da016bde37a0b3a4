"""Requests to a stream thread are executed in order, and never remain pending or run too late."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from streams_py.errors import TimeoutExceededError
from streams_py.runtime.group.inbox import Inbox, InboxClosedError


class Caller:
    """A thread that waits for an answer."""

    def __init__(self, inbox: Inbox[None], action: Callable[[None], object], *, timeout_ms: int = 10_000) -> None:
        self.result: object = None
        self.error: BaseException | None = None
        self._arguments = (inbox, action, timeout_ms)
        self.thread = threading.Thread(target=self._call)
        waiting = inbox._requests.qsize()  # an inbox does not say how many requests wait
        self.thread.start()
        while inbox._requests.qsize() == waiting and self.thread.is_alive():  # see above
            self.thread.join(0.001)

    def _call(self) -> None:
        inbox, action, timeout_ms = self._arguments
        try:
            self.result = inbox.call(action, timeout_ms=timeout_ms)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self.thread.join(60)
        assert not self.thread.is_alive()


def test_requests_are_carried_out_in_order_when_the_owner_serves() -> None:
    inbox, done = Inbox[None](), list[str]()
    callers = [Caller(inbox, lambda _, name=name: done.append(name) or name) for name in ("a", "b")]  # type: ignore[misc]
    assert done == []
    assert inbox.serve(None) == 2
    for caller in callers:
        caller.end()
    assert done == ["a", "b"] == [caller.result for caller in callers]
    assert inbox.serve(None) == 0


def test_error_of_a_request_goes_to_its_caller_not_to_the_owner() -> None:
    inbox = Inbox[None]()
    caller = Caller(inbox, lambda _: 1 // 0)
    assert inbox.serve(None) == 1
    caller.end()
    assert isinstance(caller.error, ZeroDivisionError)


def test_caller_is_released_when_the_owner_ends() -> None:
    inbox, done = Inbox[None](), list[int]()
    caller = Caller(inbox, lambda _: done.append(1))
    inbox.close()
    caller.end()
    assert isinstance(caller.error, InboxClosedError)
    with pytest.raises(InboxClosedError):
        inbox.call(lambda _: None, timeout_ms=0)
    assert inbox.serve(None) == 0
    assert done == []


def test_request_is_withdrawn_when_the_owner_did_not_get_to_it_in_time() -> None:
    inbox, done = Inbox[None](), list[int]()
    with pytest.raises(TimeoutExceededError, match="within 0 ms"):
        inbox.call(lambda _: done.append(1), timeout_ms=0)
    assert inbox.serve(None) == 1
    assert done == []


def test_caller_is_told_when_a_request_takes_too_long_although_it_will_end() -> None:
    inbox, entered, leave = Inbox[None](), threading.Event(), threading.Event()

    def slow(_: None) -> None:
        entered.set()
        leave.wait(60)

    def serve() -> None:
        while not entered.is_set():
            inbox.serve(None)

    owner = threading.Thread(target=serve)
    owner.start()
    while not entered.is_set():  # a request that was withdrawn before it started does not count
        caller = Caller(inbox, slow, timeout_ms=50)
        caller.end()
    leave.set()
    owner.join(60)
    assert isinstance(caller.error, TimeoutExceededError)


def test_posted_action_runs_in_order_without_a_waiting_caller() -> None:
    inbox, done = Inbox[None](), list[str]()
    inbox.post(lambda _: done.append("posted"))
    caller = Caller(inbox, lambda _: done.append("called"))
    assert done == []
    assert inbox.serve(None) == 2
    caller.end()
    assert done == ["posted", "called"]


def test_action_that_is_posted_after_the_end_is_dropped() -> None:
    inbox, done = Inbox[None](), list[str]()
    inbox.post(lambda _: done.append("before"))
    inbox.close()
    inbox.post(lambda _: done.append("after"))
    assert inbox.serve(None) == 0
    assert done == []
