"""What a stream thread is made of, and the settings of its loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streams_py.events.observers import TaskObserver
from streams_py.ports import Admin, Clock, Membership, RecordConsumer, RecordProducer, TransactionalProducer
from streams_py.runtime.event_loop import Background
from streams_py.runtime.restore.updater import StateUpdater
from streams_py.runtime.tasks.start_positions import StartPositions
from streams_py.runtime.threads.rebalance import Rebalance
from streams_py.runtime.threads.task_table import TaskTable

__all__ = ["LoopSettings", "ThreadParts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """The configuration of the loop; see the keys of the same names."""

    poll_ms: int
    max_poll_records: int
    max_poll_interval_ms: int
    commit_interval_ms: int
    log_summary_interval_ms: int
    repartition_purge_interval_ms: int
    task_timeout_ms: int
    uncommitted_max_bytes: int
    """Of this thread: what its stores hold for the next commit; beyond it the commit comes early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadParts:
    """What one stream thread works with; made on the thread itself, closed by it."""

    consumer: RecordConsumer
    producer: RecordProducer
    transactions: TransactionalProducer | None
    """The producer, when records are processed in transactions."""
    membership: Membership
    rebalance: Rebalance
    updater: StateUpdater
    table: TaskTable
    start_positions: StartPositions
    repartition_topics: frozenset[str]
    admin: Admin
    """Shared by all threads of the client; not closed here."""
    release_locks: Callable[[], None]
    """Gives back task directories that were locked for the report but are not this thread's."""
    events: TaskObserver
    """Hears what happens to the tasks."""
    clock: Clock
    background: Background
    """Where asynchronous calls of this thread's tasks run."""
