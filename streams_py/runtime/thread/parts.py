"""The parts of a stream thread, and the settings of its loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig
from streams_py.events.observers import TaskObserver
from streams_py.ports import Admin, Clock, RecordConsumer, RecordProducer, TransactionalProducer
from streams_py.runtime.commit.known_commits import KnownCommits
from streams_py.runtime.commit.start_positions import StartPositions
from streams_py.runtime.group.thread_calls import max_poll_interval_ms
from streams_py.runtime.group.transport import GroupTransport
from streams_py.runtime.restore.updater import StateUpdater
from streams_py.runtime.tasks.asynchronous.event_loop import Background
from streams_py.runtime.tasks.task_table import TaskTable
from streams_py.runtime.thread.key_placement import KeyPlacement
from streams_py.runtime.thread.latest_resets import LatestResets
from streams_py.runtime.thread.topic_changes import TopicChanges
from streams_py.state.caching.cache import RecordCache

_MAX_POLL_RECORDS: Final = 1_000
_CALLS_LEAST_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """Settings of the loop; see the configuration keys of the same names."""

    poll_ms: int
    max_poll_records: int
    max_poll_interval_ms: int
    commit_interval_ms: int
    rebalance_commit_interval_ms: int
    """Commit interval for transactions in a long rebalance, in ms. It is a fraction of ``transaction.timeout.ms``, so
    that a short rebalance sees few commits."""
    log_summary_interval_ms: int
    repartition_purge_interval_ms: int
    task_timeout_ms: int
    uncommitted_max_bytes: int
    """Maximum bytes that the stores of this thread hold for the next commit. Above it a commit is made early."""
    calls_max_ms: int
    """How long a transaction may wait for asynchronous calls, in ms: the rest of ``transaction.timeout.ms`` when a
    commit is due, minus enough time to make the commit."""
    flush_max_ms: int
    """Maximum expected duration of flushing the record caches, in ms. Above it a commit is made early. A fraction of
    ``transaction.timeout.ms`` and of ``max.poll.interval.ms``, because the actual duration is not known."""

    @classmethod
    def from_config(cls, config: StreamsConfig) -> Self:
        """Return the settings of a configuration. ConfigError if a consumer setting is not a number."""
        consumer = ClientRole.MAIN_CONSUMER
        longest_ms = max_poll_interval_ms(config)
        patience_ms = config.transaction_timeout_ms if config.exactly_once else longest_ms
        return cls(
            poll_ms=config.poll_ms,
            max_poll_records=config.number_for(consumer, "max.poll.records", _MAX_POLL_RECORDS),
            max_poll_interval_ms=longest_ms,
            commit_interval_ms=config.commit_interval_ms,
            rebalance_commit_interval_ms=max(config.commit_interval_ms, config.transaction_timeout_ms // 10),
            log_summary_interval_ms=config.log_summary_interval_ms,
            repartition_purge_interval_ms=config.repartition_purge_interval_ms,
            task_timeout_ms=config.task_timeout_ms,
            uncommitted_max_bytes=config.statestore_uncommitted_max_bytes // max(1, config.num_stream_threads),
            calls_max_ms=max(_CALLS_LEAST_MS, config.transaction_timeout_ms * 3 // 4 - config.commit_interval_ms),
            flush_max_ms=min(patience_ms, longest_ms) // 4,
        )


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
