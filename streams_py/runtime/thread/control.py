"""State of a stream thread and requests to it: the part that other threads may read and change.

The thread that runs the loop shares it with the client, which requests shutdowns and pauses and reads states and
metrics.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from streams_protocol.types import TopicPartition
from streams_py.ports import Clock
from streams_py.runtime.commit.blocked_time import BlockedTime
from streams_py.runtime.commit.deadline import Deadline
from streams_py.runtime.group.transport import Leave
from streams_py.runtime.tasks.latency import Latency
from streams_py.runtime.thread.states import ThreadState, thread_may_go


class ThreadControl:
    """State, requests and metrics of one stream thread. ``on_state`` is called for every change, on the thread that
    makes it."""

    def __init__(self, clock: Clock, on_state: Callable[[ThreadState], None]) -> None:
        self._on_state = on_state
        self._state = ThreadState.CREATED
        self._lock = threading.Lock()
        self._shutdown = threading.Event()
        self.deadline = Deadline(clock)
        """Time limit of a shutdown."""
        self._leave = Leave.STAY
        self.paused = False
        self.started_ms = clock.now_ms()
        self.processed_records = 0
        self.blocked = BlockedTime(clock)
        self.commit_latency = Latency()
        self.poll_latency = Latency()
        self.process_latency = Latency()
        self.punctuate_latency = Latency()
        self.poll_records = Latency()  # not a time: number of records per poll, without empty polls
        self.process_records = Latency()  # not a time: number of records per turn, without empty turns
        self.input_lags: Mapping[TopicPartition, int] = {}
        """Lag of each input partition, sampled every second. The thread replaces the mapping and never changes it."""

    @property
    def state(self) -> ThreadState:
        """State of the thread."""
        return self._state

    def go(self, new: ThreadState) -> ThreadState | None:
        """Change the state if that is valid. Return the former state, or None without a change."""
        with self._lock:
            old = self._state
            if old is new or not thread_may_go(old, new):
                return None
            self._state = new
        self._on_state(new)
        return old

    # -- shutdown --------------------------------------------------------------------------------------------

    def shut_down(self, leave: Leave, *, timeout_ms: int | None) -> None:
        """Request the thread to stop. ``timeout_ms`` limits how long it may wait for the broker."""
        if timeout_ms is not None:
            self.deadline.set(timeout_ms)
        self.leave_at_least(leave)
        self._shutdown.set()

    @property
    def is_shutting_down(self) -> bool:
        """Whether the thread was requested to stop."""
        return self._shutdown.is_set()

    @property
    def leave(self) -> Leave:
        """What becomes of the membership when the thread stops."""
        return self._leave

    def leave_at_least(self, leave: Leave) -> None:
        """Let the member leave the group in this way when the thread stops, or in a more final one."""
        self._leave = max(self._leave, leave)
