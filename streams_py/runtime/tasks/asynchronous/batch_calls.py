"""Calls of a user's function with lists of records: ``map_batch``.

A batch is full when it has ``max_records``, or when its first record has waited for ``max_ms``. One batch of a node
runs at a time, so answers keep the order of the records; the next one is collected meanwhile. A coroutine function runs
on the client's event loop, a plain one on a thread of its own for each node and task: a model may take its time while
other tasks go on.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from streams_py.errors import CallTimeoutError, ProcessingError
from streams_py.runtime.tasks.asynchronous.async_calls import named, send_on
from streams_py.runtime.tasks.asynchronous.in_flight import Call, InFlight
from streams_py.topology.nodes import BatchCalls, NodeContext, Process

__all__ = ["BatchNode"]


class BatchNode:
    """The batches of one node in one task."""

    def __init__(self, calls: BatchCalls, node: NodeContext, books: InFlight) -> None:
        self._calls = calls
        self._node = node
        self._books = books
        self._waiting: deque[Call] = deque()
        self._due_ms: int | None = None
        """When the first of those that wait has waited long enough; monotonic."""
        self._running: _Batch | None = None
        self._worker: _Worker | None = None
        self._capacity = 2 * calls.max_records

    def bind(self) -> Process:
        """The node's function."""
        begin, waiting = self._books.begin, self._waiting

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            waiting.append(begin(key, value, timestamp_ms))

        return process

    @property
    def room(self) -> int:
        """How many more records it takes."""
        running = self._running
        return self._capacity - len(self._waiting) - (0 if running is None else len(running.unsent))

    @property
    def is_running(self) -> bool:
        """True until the batch has ended."""
        running = self._running
        return running is not None and not running.unsent[-1].ended

    def hand_over(self, *, now: bool) -> None:
        """Start the next batch if it is time, or ``now``, and none is running."""
        waiting = self._waiting
        if self._running is not None or not waiting:
            return
        most = self._calls.max_records
        if not now and len(waiting) < most:
            now_ms = self._books.clock.monotonic_ms()
            if self._due_ms is None:
                self._due_ms = now_ms + self._calls.max_ms
            if now_ms < self._due_ms:
                return
        self._due_ms = None
        batch = [waiting.popleft() for _ in range(min(most, len(waiting)))]
        self._start(batch)

    def _start(self, calls: list[Call]) -> None:
        background, settings = self._books.background, self._calls
        self._running = batch = _Batch(calls, settings, self._node, background.wakeup.set)
        given = self._given(calls)
        if settings.is_async:
            background.loop.post(batch.start, given)
            return
        if self._worker is None:
            self._worker = _Worker(f"batches-{self._node.task_id}-{self._node.name}")
        self._worker.run(lambda: batch.call(given))
        background.loop.post(batch.watch)

    def _given(self, calls: list[Call]) -> list[Any]:
        """What the function gets."""
        if self._calls.with_context:
            stream_time_ms = self._node.record.stream_time_ms
            return [(call.key, call.value, call.context(stream_time_ms)) for call in calls]
        if self._calls.with_key:
            return [(call.key, call.value) for call in calls]
        return [call.value for call in calls]

    def next_ended(self) -> Call | None:
        """The first record of the batch that runs, when that has ended."""
        running = self._running
        return running.unsent[0] if running is not None and running.unsent[0].ended else None

    def drop(self, call: Call) -> None:
        """Its answer was sent on."""
        running = self._running
        if running is not None:
            running.unsent.popleft()
            if not running.unsent:
                self._running = None
                self._books.background.loop.post(running.unwatch)

    def sort_ended(self) -> None:
        """Nothing to sort: the records of a batch end in their order."""

    def send_on(self, call: Call) -> None:
        """Forward the answer, or report the error."""
        send_on(self._node, _keep_key, call)

    def cancel(self) -> None:
        """Cancel the batch that runs; a plain function goes on, but nobody listens to it any more."""
        if self._running is not None:
            self._books.background.loop.post(self._running.cancel)
        if self._worker is not None:
            self._worker.end()


def _keep_key(key: Any, answer: Any) -> tuple[Any, Any]:
    return key, answer


class _Batch:
    """One batch. It ends once: with answers, with an error, or with the time that it may take."""

    def __init__(
        self, calls: Sequence[Call], settings: BatchCalls, node: NodeContext, wake_up: Callable[[], None]
    ) -> None:
        self.unsent = deque(calls)
        """Records whose answers were not sent on yet; for the task's thread."""
        self._calls = tuple(calls)
        self._settings = settings
        self._node = node
        self._wake_up = wake_up
        self._lock = threading.Lock()
        self._ended = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -- on the event loop

    def start(self, given: list[Any]) -> None:
        """Call the coroutine function."""
        self.watch()
        self._task = asyncio.get_running_loop().create_task(self._await(given))

    def watch(self) -> None:
        """End it when its time is over."""
        self._timer = asyncio.get_running_loop().call_later(self._settings.timeout_ms / 1000, self._time_out)

    async def _await(self, given: list[Any]) -> None:
        try:
            answers = await self._settings.function(given)
        except asyncio.CancelledError:
            self._end(error=self._error("was cancelled by its own code"))
            raise
        except Exception as error:
            self._end(error=error)
        except BaseException as error:
            self._end(error=self._error(f"raised {type(error).__name__}"))
            raise
        else:
            self._take(answers)

    def unwatch(self) -> None:
        """It is over: its timer shall not keep it in memory."""
        if self._timer is not None:
            self._timer.cancel()

    def _time_out(self) -> None:
        after_ms = self._settings.timeout_ms
        text = f"did not answer within {after_ms} ms; give it a larger timeout=, or smaller batches"
        self._end(error=CallTimeoutError(self._sentence(text), task_id=self._node.task_id))
        if self._task is not None:
            self._task.cancel()

    def cancel(self) -> None:
        """Nobody wants it any more."""
        with self._lock:
            self._ended = True
        if self._task is not None:
            self._task.cancel()
        self.unwatch()

    # -- on the worker's thread

    def call(self, given: list[Any]) -> None:
        """Call the plain function."""
        with self._lock:
            if self._ended:
                return
        try:
            answers = self._settings.function(given)
        except Exception as error:
            self._end(error=error)
        except BaseException as error:
            self._end(error=self._error(f"raised {type(error).__name__}"))
        else:
            self._take(answers)

    # -- on either

    def _take(self, answers: Any) -> None:
        try:
            taken = list(answers)
        except Exception as error:
            what = f"gave {type(answers).__name__} where an answer for each record is needed: {error}"
            self._end(error=self._error(what))
            return
        if len(taken) != len(self._calls):
            self._end(error=self._error(f"gave {len(taken)} answers; it must give one for each, in their order"))
            return
        self._end(answers=taken)

    def _error(self, text: str) -> ProcessingError:
        return ProcessingError(self._sentence(text), task_id=self._node.task_id)

    def _sentence(self, text: str) -> str:
        count = len(self._calls)
        return f"{named(self._settings.what, self._node, self._calls[0])} the first of a batch of {count}, {text}"

    def _end(self, *, answers: Sequence[Any] = (), error: Exception | None = None) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
        for number, call in enumerate(self._calls):
            call.answer, call.error = (answers[number], None) if error is None else (None, error)
        for call in self._calls:
            call.ended = True
        self._wake_up()


class _Worker:
    """A daemon thread that runs one batch after the other: always the same one, as some models want."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def run(self, job: Callable[[], None]) -> None:
        """Have the batch thread call it next."""
        self._jobs.put(job)

    def end(self) -> None:
        """No more jobs; the thread ends with the one that it is doing."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
