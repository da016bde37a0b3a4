"""State machines of a client and of its stream threads (``KafkaStreams.State`` and ``StreamThread.State`` in Java).

A client's state is derived from its threads' states by :func:`is_running`.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final

__all__ = ["State", "ThreadState", "client_may_go", "is_running", "thread_may_go"]


class State(Enum):
    """State of a client (KIP-399 names). ``NOT_RUNNING`` and ``ERROR`` are final."""

    CREATED = "CREATED"
    """``start`` was not called yet."""
    REBALANCING = "REBALANCING"
    """A thread starts, rebalances or restores stores."""
    RUNNING = "RUNNING"
    """All threads process records."""
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    """``close`` was called. Threads and clients are stopping."""
    PENDING_ERROR = "PENDING_ERROR"
    """An error stopped the client. Threads and clients are stopping."""
    NOT_RUNNING = "NOT_RUNNING"
    """The client is closed."""
    ERROR = "ERROR"
    """The client is closed after an error."""

    @property
    def is_final(self) -> bool:
        """Whether the client has stopped. A stopped client cannot be started again."""
        return self in (State.NOT_RUNNING, State.ERROR)

    @property
    def is_running_or_rebalancing(self) -> bool:
        """Whether tasks may be processing."""
        return self in (State.RUNNING, State.REBALANCING)


_CLIENT: Final = {
    State.CREATED: {State.REBALANCING, State.PENDING_SHUTDOWN},
    State.REBALANCING: {State.RUNNING, State.PENDING_SHUTDOWN, State.PENDING_ERROR},
    State.RUNNING: {State.REBALANCING, State.PENDING_SHUTDOWN, State.PENDING_ERROR},
    State.PENDING_SHUTDOWN: {State.NOT_RUNNING},
    State.PENDING_ERROR: {State.ERROR},
    State.NOT_RUNNING: set(),
    State.ERROR: set(),
}


def client_may_go(old: State, new: State) -> bool:
    """Whether a client may change from ``old`` to ``new``."""
    return new in _CLIENT[old]


class ThreadState(Enum):
    """State of a stream thread."""

    CREATED = "CREATED"
    """The thread was not started yet."""
    STARTING = "STARTING"
    """The thread joins the group."""
    PARTITIONS_REVOKED = "PARTITIONS_REVOKED"
    """The thread has given up partitions and waits for the next assignment."""
    PARTITIONS_ASSIGNED = "PARTITIONS_ASSIGNED"
    """The thread has an assignment, and restores the stores of its active tasks."""
    RUNNING = "RUNNING"
    """The thread processes records."""
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    """The thread commits, closes its tasks and leaves the group."""
    DEAD = "DEAD"
    """The thread has stopped."""


_WORKING: Final = {
    ThreadState.PARTITIONS_REVOKED,
    ThreadState.PARTITIONS_ASSIGNED,
    ThreadState.RUNNING,
    ThreadState.PENDING_SHUTDOWN,
}
_THREAD: Final = {
    ThreadState.CREATED: {ThreadState.STARTING, ThreadState.PENDING_SHUTDOWN},
    ThreadState.STARTING: _WORKING - {ThreadState.RUNNING},
    ThreadState.PARTITIONS_REVOKED: _WORKING - {ThreadState.RUNNING},
    ThreadState.PARTITIONS_ASSIGNED: _WORKING,
    ThreadState.RUNNING: _WORKING,
    ThreadState.PENDING_SHUTDOWN: {ThreadState.DEAD},
    ThreadState.DEAD: set(),
}


def thread_may_go(old: ThreadState, new: ThreadState) -> bool:
    """Whether a thread may change from ``old`` to ``new``. Once it shuts down, other changes are ignored."""
    return new in _THREAD[old]


def is_running(threads: Collection[ThreadState]) -> bool:
    """Whether a client is RUNNING: at least one thread runs, and no thread is starting or rebalancing.

    Threads that are shutting down or dead do not matter.
    """
    return ThreadState.RUNNING in threads and all(
        state in (ThreadState.RUNNING, ThreadState.DEAD, ThreadState.PENDING_SHUTDOWN) for state in threads
    )
