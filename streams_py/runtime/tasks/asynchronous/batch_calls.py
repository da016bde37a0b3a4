"""Calls of a user's function with lists of records: ``map_batch``.

A batch is full when it has ``max_records`` records, or when its first record has waited for ``max_ms``. A node runs one
batch at a time, so answers keep the order of the records; meanwhile it collects the next batch. A coroutine function
runs on the client's event loop. A plain function runs on a separate thread per node and task, so a slow model does not
block other tasks.
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
from streams_py.system.printable import text_of
from streams_py.topology.declare.nodes import BatchCalls, NodeContext, Process


class BatchNode:
    """The batches of one node in one task."""

    def __init__(self, calls: BatchCalls, node: NodeContext, in_flight: InFlight) -> None:
        self._calls = calls
        self._node = node
        self._in_flight = in_flight
        self._waiting: deque[Call] = deque()
        self._due_ms: int | None = None
        """Monotonic time at which the first waiting record has waited long enough, in ms."""
        self._running: _Batch | None = None
        self._worker: _Worker | None = None
        self._capacity = 2 * calls.max_records

    def bind(self) -> Process:
        """Return the node's function."""
        begin, waiting = self._in_flight.begin, self._waiting

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            waiting.append(begin(key, value, timestamp_ms))

        return process

    @property
    def room(self) -> int:
        """Number of records that the node can still accept."""
        running = self._running
        return self._capacity - len(self._waiting) - (0 if running is None else len(running.unsent))

    @property
    def is_running(self) -> bool:
        """Whether a batch is running."""
        running = self._running
        return running is not None and not running.unsent[-1].ended

    def hand_over(self, *, now: bool) -> None:
        """Start the next batch if none is running and a batch is full, or ``now``."""
        waiting = self._waiting
        if self._running is not None or not waiting:
            return
        most = self._calls.max_records
        if not now and len(waiting) < most:
            now_ms = self._in_flight.clock.monotonic_ms()
            if self._due_ms is None:
                self._due_ms = now_ms + self._calls.max_ms
            if now_ms < self._due_ms:
                return
        self._due_ms = None
        batch = [waiting.popleft() for _ in range(min(most, len(waiting)))]
        self._start(batch)

    def _start(self, calls: list[Call]) -> None:
        background, settings = self._in_flight.background, self._calls
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
        """Return the function's argument."""
        if self._calls.with_context:
            stream_time_ms = self._node.record.stream_time_ms
            return [(call.key, call.value, call.context(stream_time_ms)) for call in calls]
        if self._calls.with_key:
            return [(call.key, call.value) for call in calls]
        return [call.value for call in calls]

    def next_ended(self) -> Call | None:
        """Return the next record of the finished batch; None if no batch has finished."""
        running = self._running
        return running.unsent[0] if running is not None and running.unsent[0].ended else None

    def drop(self, call: Call) -> None:
        """Remove a record whose answer was forwarded."""
        running = self._running
        if running is not None:
            running.unsent.popleft()
            if not running.unsent:
                self._running = None
                self._in_flight.background.loop.post(running.unwatch)

    def sort_ended(self) -> None:
        """Do nothing: the records of a batch end in their order."""

    def send_on(self, call: Call) -> None:
        """Forward the answer, or report the error."""
        send_on(self._node, _keep_key, call)

    def cancel(self) -> None:
        """Cancel the running batch. A plain function runs to its end, but its answers are ignored."""
        if self._running is not None:
            self._in_flight.background.loop.post(self._running.cancel)
        if self._worker is not None:
            self._worker.end()


def _keep_key(key: Any, answer: Any) -> tuple[Any, Any]:
    return key, answer


class _Batch:
    """One batch. It ends exactly once: with answers, with an error, or by timeout."""

    def __init__(
        self, calls: Sequence[Call], settings: BatchCalls, node: NodeContext, wake_up: Callable[[], None]
    ) -> None:
        self.unsent = deque(calls)
        """Records whose answers were not forwarded yet; for the task's thread."""
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
        """Start the batch's timeout."""
        self._timer = asyncio.get_running_loop().call_later(self._settings.timeout_ms / 1000, self._on_timeout)

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
        """Cancel the timer of a finished batch, because the timer would keep the batch in memory."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_timeout(self) -> None:
        after_ms = self._settings.timeout_ms
        text = f"did not answer within {after_ms} ms; set a larger timeout=, or use smaller batches"
        self._end(error=CallTimeoutError(self._sentence(text), task_id=self._node.task_id))
        if self._task is not None:
            self._task.cancel()

    def cancel(self) -> None:
        """Cancel the batch; its answers are ignored."""
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
            what = f"returned {type(answers).__name__}, not one answer for each record: {text_of(error)}"
            self._end(error=self._error(what))
            return
        if len(taken) != len(self._calls):
            what = f"returned {len(taken)} answers; it must return one for each record, in their order"
            self._end(error=self._error(what))
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
    """A daemon thread that runs batches one after the other. Some models require that it is always the same thread."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def run(self, job: Callable[[], None]) -> None:
        """Queue a call for the thread."""
        self._jobs.put(job)

    def end(self) -> None:
        """Stop the thread after its current job."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
