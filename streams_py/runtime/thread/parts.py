"""The parts of a stream thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streams_py.events.observers import TaskObserver
from streams_py.ports import Admin, Clock, RecordConsumer, RecordProducer, TransactionalProducer
from streams_py.runtime.commit.known_commits import KnownCommits
from streams_py.runtime.commit.start_positions import StartPositions
from streams_py.runtime.group.transport import GroupTransport
from streams_py.runtime.restore.updater import StateUpdater
from streams_py.runtime.tasks.asynchronous.event_loop import Background
from streams_py.runtime.tasks.task_table import TaskTable
from streams_py.runtime.thread.key_placement import KeyPlacement
from streams_py.runtime.thread.latest_resets import LatestResets
from streams_py.runtime.thread.topic_changes import TopicChanges
from streams_py.state.caching.cache import RecordCache


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadParts:
    """The parts of one stream thread, created and closed on the thread itself."""

    consumer: RecordConsumer
    producer: RecordProducer
    transactions: TransactionalProducer | None
    """The producer, if records are processed in transactions."""
    settle_transactions: Callable[[], None]
    """Ends transactions left open under the producer's id, before it starts. Raises BrokerUnavailableError."""
    transport: GroupTransport
    """The thread's membership of the group."""
    updater: StateUpdater
    table: TaskTable
    start_positions: StartPositions
    topic_changes: TopicChanges
    latest_resets: LatestResets
    known_commits: KnownCommits
    """Shared by all threads of the client."""
    repartition_topics: frozenset[str]
    """The topics whose processed records this thread deletes."""
    key_placement: KeyPlacement
    """Shared by all threads of the client."""
    admin: Admin
    """Shared by all threads of the client; not closed here."""
    release_locks: Callable[[], None]
    """Releases task directories that were locked for the subscription but are not this thread's."""
    events: TaskObserver
    """Observer of the tasks' life cycle."""
    clock: Clock
    background: Background
    """Runs the asynchronous calls of this thread's tasks."""
    cache: RecordCache
    """Cache of this thread's tasks."""
