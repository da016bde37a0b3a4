"""Calls of a user's coroutine function, one for each record: ``map_values_async`` and ``map_async``.

Records with equal keys wait for each other in a *lane*. Lanes run concurrently, up to ``concurrency`` calls at a time.
The event loop's thread owns the lanes, so the next call starts when one ends, whatever the task's thread is doing; the
task's thread only receives answers. To keep the loop busy, the node accepts twice as many records as run at a time.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from streams_py.errors import CallTimeoutError, ProcessingError
from streams_py.runtime.tasks.asynchronous.event_loop import Background
from streams_py.runtime.tasks.asynchronous.in_flight import Call, InFlight
from streams_py.topology.declare.nodes import AsyncCalls, NodeContext, Process

_PLAIN = frozenset((str, bytes, int))


class AsyncNode:
    """The calls of one node in one task."""

    def __init__(self, calls: AsyncCalls, node: NodeContext, in_flight: InFlight) -> None:
        self._calls = calls
        self._node = node
        self._in_flight = in_flight
        self._lanes = _Lanes(calls, node, in_flight.background)
        self._capacity = 2 * calls.concurrency
        self._begun: list[Call] = []
        self._in_order: deque[Call] = deque()  # all calls, if answers must keep the order of the records
        self._under_way = 0

    def bind(self) -> Process:
        """Return the node's function."""
        begin, begun, in_order, is_ordered = self._in_flight.begin, self._begun, self._in_order, self._calls.ordered

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            call = begin(key, value, timestamp_ms)
            begun.append(call)
            self._under_way += 1
            if is_ordered:
                in_order.append(call)

        return process

    @property
    def room(self) -> int:
        """Number of records that the node can still accept."""
        return self._capacity - self._under_way

    @property
    def is_running(self) -> bool:
        """Whether a call is running."""
        if self._calls.ordered:
            return not all(call.ended for call in self._in_order)
        return len(self._lanes.ended) < self._under_way

    def hand_over(self, *, now: bool) -> None:
        """Hand the accepted records to the event loop."""
        if self._begun:
            calls = self._begun.copy()
            self._begun.clear()
            stream_time_ms = self._node.record.stream_time_ms
            self._lanes.submit(calls, stream_time_ms)

    def next_ended(self) -> Call | None:
        """Return the call whose answer is forwarded next; None if it has not ended yet."""
        if self._calls.ordered:
            return self._in_order[0] if self._in_order and self._in_order[0].ended else None
        ended = self._lanes.ended
        return ended[0] if ended else None

    def drop(self, call: Call) -> None:
        """Remove a call whose answer was forwarded."""
        if self._calls.ordered:
            self._in_order.popleft()
        else:
            self._lanes.ended.popleft()
        self._under_way -= 1

    def sort_ended(self) -> None:
        """Sort the finished calls by the order of their records. No call may be running."""
        ended = self._lanes.ended
        for call in sorted((ended.popleft() for _ in range(len(ended))), key=lambda call: call.number):
            ended.append(call)

    def send_on(self, call: Call) -> None:
        """Forward the answer, or report the error."""
        send_on(self._node, self._calls.pair, call)

    def cancel(self) -> None:
        """Cancel running calls and drop waiting calls."""
        self._begun.clear()
        self._in_flight.background.loop.post(self._lanes.cancel)


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
    """Describe, for messages, the called function and the record."""
    key = repr(call.key)
    at = "" if call.topic is None else f", from {call.topic}-{call.partition} at offset {call.offset}"
    return (
        f"{what}, node {node.name}, task {node.task_id}, "
        f"for the record with key {key if len(key) <= 100 else key[:97] + '...'}{at},"
    )


def lane_of(key: Any) -> Hashable:
    """Return the lane of a key. Equal keys share a lane; unhashable keys of other types share one lane per type."""
    if type(key) in _PLAIN:
        plain: Hashable = key
        return plain
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
    """The lanes of one node on the event loop. Only the loop's thread uses them, except ``ended`` and :meth:`submit`.

    Thousands of calls per second pass through here, so each call costs one asyncio task and nothing else. The call
    stores its own answer and starts the next call. One timer watches the oldest call. All calls that end in one
    iteration of the loop wake the task's thread once, after the calls that follow them have started. The task's thread
    wakes the loop only if it has a free place.
    """

    def __init__(self, calls: AsyncCalls, node: NodeContext, background: Background) -> None:
        self.ended: deque[Call] = deque()
        """Finished calls, for the task's thread. An ordered node reads its own list of calls instead."""
        self._calls = calls
        self._node = node
        self._post, self._wake_up_soon = background.loop.post, background.wake_up_soon
        self._timeout_s = calls.timeout_ms / 1000
        self._submitted: deque[tuple[list[Call], int]] = deque()  # by the task's thread, with its stream time
        self._is_full = False
        self._lanes: dict[Hashable, deque[Call] | None] = {}  # calls that wait for a call with an equal key
        self._ready: deque[Call] = deque()
        self._running: dict[Call, asyncio.Task[None]] = {}  # in order of their start
        self._timer: asyncio.TimerHandle | None = None
        self._stream_time_ms = -1
        self._closed = False
        self._context = contextvars.copy_context()  # copied for each call: calls are created inside one another

    def submit(self, calls: list[Call], stream_time_ms: int) -> None:
        """Start these calls once there is room; called by the task's thread.

        A loop that runs the maximum number of calls checks for new ones automatically when a call ends. It is not
        woken before.
        """
        self._submitted.append((calls, stream_time_ms))
        if not self._is_full:  # the loop sets it before its last check for new calls
            self._post(self._start)

    def _sort(self, calls: list[Call]) -> None:
        for call in calls:
            if call.key is None:  # without a key, order does not matter
                self._ready.append(call)
                continue
            try:
                self._enqueue(call)
            except Exception as error:  # of the key's own methods: here no caller would handle it
                self._finish(call, None, error)

    def _enqueue(self, call: Call) -> None:
        lanes = self._lanes
        at = lane_of(call.key)
        if at not in lanes:
            lanes[at] = None
            self._ready.append(call)
        elif (waiting := lanes[at]) is None:
            lanes[at] = deque((call,))
        else:
            waiting.append(call)
        call.lane = at

    def _start(self) -> None:
        given, ready, running, most = self._submitted, self._ready, self._running, self._calls.concurrency
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        while True:
            while given:
                calls, self._stream_time_ms = given.popleft()
                self._sort(calls)
            while ready and len(running) < most:
                call = ready.popleft()
                call.deadline_s = loop.time() + self._timeout_s
                running[call] = loop.create_task(self._answer(call), context=self._context.copy())
            self._is_full = len(running) >= most
            if self._is_full or not given:
                break
        if self._timer is None and running:
            self._watch(loop)

    async def _answer(self, call: Call) -> None:
        error: Exception | None = None
        answer = None
        try:
            answer = await self._calls.function(call.key, call.value, call.context(self._stream_time_ms))
        except Exception as raised:
            own_frame = raised.__traceback__  # drop this frame: it refers to the call, which will refer to the error
            error = raised.with_traceback(None if own_frame is None else own_frame.tb_next)
        except asyncio.CancelledError:
            if call.ended or self._closed:
                raise
            error = self._ended_itself(call, "was cancelled by its own code")
        except BaseException as raised:  # e.g. SystemExit: it only concerns this call
            error = self._ended_itself(call, f"raised {type(raised).__name__}")
        if not (call.ended or self._closed):
            del self._running[call]
            self._end(call, answer, error)
            self._start()

    def _ended_itself(self, call: Call, how: str) -> ProcessingError:
        return ProcessingError(f"{named(self._calls.what, self._node, call)} {how}", task_id=self._node.task_id)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the timer for the timeout of the oldest call.

        The call may have ended by then. So there is one check per timeout instead of one timer per call.
        """
        oldest = next(iter(self._running), None)
        self._timer = None if oldest is None else loop.call_at(oldest.deadline_s, self._check_deadlines, loop)

    def _check_deadlines(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._closed:
            return
        now_s = loop.time()
        late = [call for call in self._running if call.deadline_s <= now_s]
        for call in late:
            self._on_timeout(call, self._running.pop(call))
        self._start()
        self._watch(loop)

    def _on_timeout(self, call: Call, task: asyncio.Task[None]) -> None:
        error: ProcessingError = CallTimeoutError(
            f"{named(self._calls.what, self._node, call)} did not answer within {self._calls.timeout_ms} ms and was "
            f"cancelled; set a larger timeout=, or let the function give up earlier",
            task_id=self._node.task_id,
        )
        if task.done():  # code that cancelled all tasks of the loop did so before this call started to run
            error = self._ended_itself(call, "was cancelled by its own code")
        self._end(call, None, error)
        task.cancel()

    def _end(self, call: Call, answer: Any, error: Exception | None) -> None:
        if call.key is not None:
            waiting = self._lanes[call.lane]
            if waiting:
                self._ready.append(waiting.popleft())
            else:
                del self._lanes[call.lane]
        self._finish(call, answer, error)

    def _finish(self, call: Call, answer: Any, error: Exception | None) -> None:
        call.answer, call.error = answer, error
        if not self._calls.ordered:
            self.ended.append(call)
        call.ended = True
        self._wake_up_soon()

    def cancel(self) -> None:
        self._closed = True
        self._submitted.clear()
        self._lanes.clear()
        self._ready.clear()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._running.values():
            task.cancel()
