"""Calls of a user's coroutine function, one for each record: ``map_values_async`` and ``map_async``.

Records with equal keys wait for each other in a *lane*; lanes run side by side, ``concurrency`` calls at a time. The
lanes live on the event loop's thread, so that the next call starts when one ends, whatever the task's thread does
meanwhile; that one is only told of answers. To keep the loop busy, twice as many records are taken as run at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from streams_py.errors import CallTimeoutError, ProcessingError
from streams_py.runtime.event_loop import Background
from streams_py.runtime.tasks.asynchronous.in_flight import Call, InFlight
from streams_py.topology.nodes import AsyncCalls, NodeContext, Process

__all__ = ["AsyncNode", "lane_of", "named", "send_on"]


class AsyncNode:
    """The calls of one node in one task."""

    def __init__(self, calls: AsyncCalls, node: NodeContext, books: InFlight) -> None:
        self._calls = calls
        self._node = node
        self._books = books
        self._lanes = _Lanes(calls, node, books.background)
        self._capacity = 2 * calls.concurrency
        self._begun: list[Call] = []
        self._in_order: deque[Call] = deque()  # all of them; only when answers are to keep the order of the records
        self._under_way = 0

    def bind(self) -> Process:
        """The node's function."""
        begin, begun, in_order, is_ordered = self._books.begin, self._begun, self._in_order, self._calls.ordered

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            call = begin(key, value, timestamp_ms)
            begun.append(call)
            self._under_way += 1
            if is_ordered:
                in_order.append(call)

        return process

    @property
    def room(self) -> int:
        """How many more records it takes."""
        return self._capacity - self._under_way

    @property
    def is_running(self) -> bool:
        """True until all have ended."""
        if self._calls.ordered:
            return not all(call.ended for call in self._in_order)
        return len(self._lanes.ended) < self._under_way

    def hand_over(self, *, now: bool) -> None:
        """Let the loop have what has come."""
        if self._begun:
            calls = self._begun.copy()
            self._begun.clear()
            stream_time_ms = self._node.record.stream_time_ms
            self._books.background.loop.post(self._lanes.add, calls, stream_time_ms)

    def next_ended(self) -> Call | None:
        """The call whose answer is to be sent on next."""
        if self._calls.ordered:
            return self._in_order[0] if self._in_order and self._in_order[0].ended else None
        ended = self._lanes.ended
        return ended[0] if ended else None

    def drop(self, call: Call) -> None:
        """Its answer was sent on."""
        if self._calls.ordered:
            self._in_order.popleft()
        else:
            self._lanes.ended.popleft()
        self._under_way -= 1

    def sort_ended(self) -> None:
        """Send on in the order of the calls; nothing is running."""
        ended = self._lanes.ended
        for call in sorted((ended.popleft() for _ in range(len(ended))), key=lambda call: call.number):
            ended.append(call)

    def send_on(self, call: Call) -> None:
        """Forward the answer, or report the error."""
        send_on(self._node, self._calls.pair, call)

    def cancel(self) -> None:
        """Cancel what runs, forget what waits."""
        self._begun.clear()
        self._books.background.loop.post(self._lanes.cancel)


def send_on(node: NodeContext, pair: Callable[[Any, Any], tuple[Any, Any]], call: Call) -> None:
    """Forward the answer of a call, or report its error."""
    error = call.error
    if error is None:
        try:
            key, value = pair(call.key, call.answer)
        except Exception as wrong:
            error = wrong
        else:
            node.forward(key, value, call.timestamp_ms)
            return
    node.failed(error, call.key, call.value, call.timestamp_ms)


def named(what: str, node: NodeContext, call: Call) -> str:
    """What was called, for which record: for messages."""
    key = repr(call.key)
    at = "" if call.topic is None else f", from {call.topic}-{call.partition} at offset {call.offset}"
    return (
        f"{what}, node {node.name}, task {node.task_id}, "
        f"for the record with key {key if len(key) <= 100 else key[:97] + '...'}{at},"
    )


def lane_of(key: Any) -> Hashable:
    """Equal keys give equal lanes; keys that cannot be hashed share as few as need be."""
    match key:
        case dict():
            return ("dict", frozenset((name, lane_of(value)) for name, value in key.items()))
        case list() | tuple():
            return ("list", *map(lane_of, key))
    try:
        hash(key)
    except TypeError:
        return ("others", type(key).__name__)
    lane: Hashable = key
    return lane


class _Lanes:
    """What runs on the event loop. Everything but ``ended`` is touched by its thread only."""

    def __init__(self, calls: AsyncCalls, node: NodeContext, background: Background) -> None:
        self.ended: deque[Call] = deque()
        """Calls that have ended, for the task's thread to take."""
        self._calls = calls
        self._node = node
        self._wakeup = background.wakeup
        self._timeout_s = calls.timeout_ms / 1000
        self._lanes: dict[Hashable, deque[Call]] = {}  # those that wait behind a call with an equal key
        self._ready: deque[Call] = deque()
        self._running: dict[Call, asyncio.Task[Any]] = {}
        self._stream_time_ms = -1
        self._closed = False

    def add(self, calls: list[Call], stream_time_ms: int) -> None:
        self._stream_time_ms = stream_time_ms
        lanes = self._lanes
        for call in calls:
            if call.key is None:  # nothing to keep in order
                self._ready.append(call)
                continue
            call.lane = lane_of(call.key)
            lane = lanes.get(call.lane)
            if lane is None:
                lanes[call.lane] = deque()
                self._ready.append(call)
            else:
                lane.append(call)
        self._start()

    def _start(self) -> None:
        ready, running, most = self._ready, self._running, self._calls.concurrency
        while ready and len(running) < most and not self._closed:
            call = ready.popleft()
            loop = asyncio.get_running_loop()
            try:
                coroutine = self._calls.function(call.key, call.value, call.context(self._stream_time_ms))
                task = loop.create_task(coroutine)
            except Exception as error:
                self._end(call, error=error)
                continue
            running[call] = task
            timer = loop.call_later(self._timeout_s, self._time_out, call)
            task.add_done_callback(lambda task, call=call, timer=timer: self._done(call, task, timer))  # type: ignore[misc]

    def _done(self, call: Call, task: asyncio.Task[Any], timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        cancelled = task.cancelled()
        error = None if cancelled else task.exception()  # also asked when nobody needs it: asyncio would complain
        if call.ended or self._closed:
            return
        del self._running[call]
        if cancelled or not (error is None or isinstance(error, Exception)):
            how = "was cancelled by its own code" if cancelled else f"raised {type(error).__name__}"
            error = ProcessingError(f"{named(self._calls.what, self._node, call)} {how}", task_id=self._node.task_id)
        self._end(call, error=error) if error is not None else self._end(call, answer=task.result())
        self._start()

    def _time_out(self, call: Call) -> None:
        task = self._running.pop(call, None)
        if task is None or self._closed:
            return
        error = CallTimeoutError(
            f"{named(self._calls.what, self._node, call)} did not answer within {self._calls.timeout_ms} ms and was "
            f"cancelled; give it a larger timeout=, or let it give up earlier itself",
            task_id=self._node.task_id,
        )
        self._end(call, error=error)
        task.cancel()
        self._start()

    def _end(self, call: Call, *, answer: Any = None, error: Exception | None = None) -> None:
        call.answer, call.error = answer, error
        if call.key is not None:
            lane = self._lanes[call.lane]
            if lane:
                self._ready.append(lane.popleft())
            else:
                del self._lanes[call.lane]
        self.ended.append(call)
        call.ended = True
        self._wakeup.set()

    def cancel(self) -> None:
        self._closed = True
        self._lanes.clear()
        self._ready.clear()
        for task in self._running.values():
            task.cancel()
