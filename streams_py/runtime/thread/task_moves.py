"""Starts and stops the tasks of a stream thread: in rebalances, and after errors.

All of it runs on the stream thread. Rebalances call it through the thread's inbox. The loop raises the errors of a
rebalance later, because an error on the membership's polling thread could end the membership.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, OffsetOutOfRangeError, TaskCorruptedError, TimeoutExceededError
from streams_py.member.tasks import Tasks
from streams_py.ports import BEGINNING, END, OffsetAndMetadata, TransactionalProducer
from streams_py.ports.batches import only_topic_of
from streams_py.runtime.commit.committer import Committer
from streams_py.runtime.commit.revocation import Revocation
from streams_py.runtime.tasks.deferred_errors import DeferredErrors
from streams_py.runtime.thread.control import ThreadControl
from streams_py.runtime.thread.parts import ThreadParts
from streams_py.runtime.thread.states import ThreadState
from streams_py.runtime.thread.task_starter import TaskStarter
from streams_py.system.outages import level_of_waiting

_log = logging.getLogger(__name__)

_INITIALIZE_MS = 1_000
"""Time limit for one attempt to initialise a transactional producer, in ms. The thread does nothing else meanwhile."""
_WARNING_MS = 10_000
"""Interval between two warnings about failed attempts, in ms."""


class TaskMoves:
    """Moves the tasks of one stream thread (``TaskListener`` of its transport)."""

    def __init__(
        self, name: str, parts: ThreadParts, committer: Committer, control: ThreadControl, *, task_timeout_ms: int
    ) -> None:
        self._name = name
        self._parts = parts
        self._table = parts.table
        self._committer = committer
        self._control = control
        self._starter = TaskStarter(
            parts.table,
            parts.transport,
            parts.start_positions,
            parts.topic_changes,
            parts.known_commits,
            parts.clock,
            task_timeout_ms=task_timeout_ms,
            exactly_once=parts.transactions is not None,
        )
        self.deferred = DeferredErrors()
        """Errors of a rebalance; the loop raises them."""
        self._revocation = Revocation(name, parts.table, committer, parts.events, self.deferred)
        self._task_timeout_ms = task_timeout_ms
        self._waits_since_ms: int | None = None  # start of the wait for the transactional producer
        self._next_warning_ms = 0
        self.only_topic: str | None = None
        """The only topic that is read; None with several topics."""

    # -- from created to running -----------------------------------------------------------------------------

    def advance(self) -> None:
        """Bring tasks closer to running. Raises errors of the state updater."""
        table = self._table
        table.end_closing()
        if table.all_ready():
            self._waits_since_ms = None
            table.raise_failed()
            if self._control.state is ThreadState.PARTITIONS_ASSIGNED and not self._parts.transport.rebalancing:
                self._control.go(ThreadState.RUNNING)
            return
        if not self._can_write():
            return
        table.initialize_pending()
        table.raise_failed()
        if self._starter.start_restored():
            self._read()

    def _can_write(self) -> bool:
        """Whether the transactional producer is initialised; tries to initialise it.

        Before that, open transactions of its predecessor hide changelog records from the restoration.
        """
        transactions = self._parts.transactions
        if transactions is None or transactions.is_ready:
            return True
        try:
            with self._control.blocked:
                self._parts.settle_transactions()
                transactions.initialize(_INITIALIZE_MS)
        except BrokerUnavailableError as error:
            self._note_wait(error)
            return False
        except TaskCorruptedError as error:  # the client library reports a missing answer this way
            self._note_wait(error)
            raise
        self._waits_since_ms = None
        return True

    def _note_wait(self, error: BrokerUnavailableError | TaskCorruptedError) -> None:
        now_ms = self._parts.clock.monotonic_ms()
        if self._waits_since_ms is None:
            self._waits_since_ms = self._next_warning_ms = now_ms
        waited_ms = now_ms - self._waits_since_ms
        if waited_ms > self._task_timeout_ms:
            raise TimeoutExceededError(
                f"tasks did not start: transactions could not be initialised for {waited_ms} ms (task.timeout.ms is "
                f"{self._task_timeout_ms}): {error}"
            ) from error
        if now_ms >= self._next_warning_ms:
            self._next_warning_ms = now_ms + _WARNING_MS
            _log.log(level_of_waiting(), "%s: %s; retrying", self._name, error)

    def _read(self) -> None:
        """Make the consumer read exactly the partitions of running tasks; new ones from their start positions."""
        new = self._starter.take_positions()
        read = {partition: new.get(partition) for task in self._table.running() for partition in task.input_partitions}
        self._parts.consumer.assign(read)
        self._parts.latest_resets.started({at for at, position in new.items() if position == END}, read.keys())
        self._parts.topic_changes.watch(self._table.actives())
        self.only_topic = only_topic_of(read)

    def check_topics(self) -> None:
        """Handle recreated topics and positions that are not in their logs.

        Raises:
            StreamsError: The thread must not continue.
            TaskCorruptedError: Tables start over.
        """
        parts, tasks = self._parts, self._table.running()
        parts.topic_changes.check(tasks, parts.consumer, parts.producer)
        for partition in parts.topic_changes.take_lost():
            self._reset(partition, "the log ends before it: truncated?")

    def reset_positions(self, error: OffsetOutOfRangeError) -> None:
        """Handle positions that are not in their logs.

        If records were deleted before the position was reached, continue immediately at the reset policy. If the log
        ends before the position, the topic may have been recreated.
        """
        self._parts.topic_changes.note_lost(error.partitions - error.deleted)
        for partition in sorted(error.deleted):
            self._reset(partition, "deleted by retention?")

    def _reset(self, partition: TopicPartition, reason: str) -> None:
        owners = [task for task in self._table.running() if partition in task.input_partitions]
        if not owners:
            return
        position = self._parts.start_positions.after_reset(partition)
        where = "the beginning" if position == BEGINNING else "the end"
        _log.warning("offset out of range for %s (%s); resuming at %s", partition, reason, where)
        for task in owners:
            task.positions.start_again_at(partition)
        self._parts.consumer.seek(partition, position)

    # -- rebalance: called through the inbox -----------------------------------------------------------------

    def revoke(self, tasks: Collection[TaskId]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Stop and flush these tasks. Return the offsets to commit."""
        self._starter.forget()
        self._control.go(ThreadState.PARTITIONS_REVOKED)
        return self._revocation.prepare(tasks)

    def revoked(self, error: Exception | None) -> None:
        """Complete the suspension after the commit: write checkpoints, suspend, stop reading."""
        self._revocation.finish(error)
        self.deferred.attempt(self._read)

    def lose(self, tasks: Collection[TaskId]) -> None:
        """Close these active tasks without committing."""
        self._starter.forget()
        self.deferred.attempt(lambda: self._table.give_up(self._table.actives(tasks)))
        self.deferred.attempt(self._reset_producer)
        self.deferred.attempt(self._read)

    def assign(self, tasks: Tasks | None, error: Exception | None) -> None:
        """Make ``tasks`` the tasks of this thread at the end of a rebalance (None: keep the current ones), or fail."""
        if tasks is not None:
            self.deferred.attempt(lambda: self._table.assign(tasks.active, tasks.standby))
        if error is not None:
            self.deferred.add(error)
        self.deferred.attempt(self._parts.release_locks)
        self.deferred.attempt(self._read)
        self._control.go(ThreadState.PARTITIONS_ASSIGNED)

    # -- errors ----------------------------------------------------------------------------------------------

    def lose_everything(self) -> None:
        """Close all active tasks without committing: other members own them, whatever the group has reported."""
        self._starter.forget()
        self._table.give_up(self._table.actives())
        self._reset_producer()
        self._read()

    def _reset_producer(self) -> None:
        with self._control.blocked:
            self._parts.producer.reset()

    def revive(self, error: TaskCorruptedError) -> None:
        """Start corrupted tasks over. Commit the other tasks first."""
        _log.warning("%s: %s; restoring", self._name, error)
        corrupted = dict(error.tasks)
        self._starter.forget()
        if self._parts.transactions is not None:
            self._revive_in_transaction(self._parts.transactions, corrupted)
            return
        try:
            if not self._parts.transport.rebalancing:
                healthy = [task for task in self._table.running() if task.id not in corrupted]
                self._committer.commit(healthy)
        except TaskCorruptedError as more:
            corrupted.update(more.tasks)
        finally:  # even without membership: corrupted standbys stay here and must start over
            if self._parts.transport.is_member():
                self._committer.settle()
            if all(task.id in corrupted for task in self._table.running()):
                # Records in flight would arrive after the restoration has determined the end of the changelogs.
                self._reset_producer()
            self._start_over(corrupted)

    def _revive_in_transaction(
        self, transactions: TransactionalProducer, corrupted: dict[TaskId, frozenset[TopicPartition]]
    ) -> None:
        """Take all running tasks back to the last commit if one of them has used their common transaction."""
        running = [task.id for task in self._table.running()]
        if transactions.in_transaction or not corrupted or any(task_id in corrupted for task_id in running):
            corrupted = dict.fromkeys(running, frozenset()) | corrupted
            with self._control.blocked:
                transactions.reset()
        self._start_over(corrupted)

    def _start_over(self, corrupted: Mapping[TaskId, Collection[TopicPartition]]) -> None:
        self._table.revive(corrupted)
        self._read()
        if self._control.state is ThreadState.RUNNING:
            self._control.go(ThreadState.PARTITIONS_ASSIGNED)
