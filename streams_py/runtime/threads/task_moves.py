"""How tasks come to run on a stream thread, and how they leave it: with rebalances, and when something is wrong.

All of it happens on the stream thread. What a rebalance asks for comes through the thread's inbox, and keeps its errors
for the loop: the membership must not see them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, OffsetOutOfRangeError, TaskCorruptedError, TimeoutExceededError
from streams_py.member.assignment import Tasks
from streams_py.outages import level_of_waiting
from streams_py.ports import BEGINNING, END, OffsetAndMetadata, TransactionalProducer
from streams_py.runtime.batches import only_topic_of
from streams_py.runtime.states import ThreadState
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.error_handling.deferred_errors import DeferredErrors
from streams_py.runtime.threads.committing import Committer
from streams_py.runtime.threads.revocation import Revocation
from streams_py.runtime.threads.startup import TaskStarter
from streams_py.runtime.threads.thread_control import ThreadControl
from streams_py.runtime.threads.thread_parts import ThreadParts

__all__ = ["TaskMoves"]

_log = logging.getLogger(__name__)

_INITIALIZE_MS = 1_000
"""For one try of a transactional producer to take its place; the thread does nothing else meanwhile."""
_WARNING_MS = 10_000
"""So often it is said that it cannot, while that lasts."""


class TaskMoves:
    """The moves of one stream thread's tasks (``TaskSide`` of its rebalances)."""

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
            parts.membership,
            parts.start_positions,
            parts.topic_changes,
            parts.known_commits,
            parts.clock,
            task_timeout_ms=task_timeout_ms,
            exactly_once=parts.transactions is not None,
        )
        self.deferred = DeferredErrors()
        """What went wrong in a rebalance; the loop raises it."""
        self._revocation = Revocation(name, parts.table, committer, parts.events, self.deferred)
        self._task_timeout_ms = task_timeout_ms
        self._waits_since_ms: int | None = None  # to write in transactions
        self._next_warning_ms = 0
        self.only_topic: str | None = None
        """The topic that is read, if it is only one."""

    # -- on their way to running -----------------------------------------------------------------------------

    def advance(self) -> None:
        """Bring tasks nearer to running; raises what went wrong in the state updater."""
        table = self._table
        table.end_closing()
        if table.all_ready():
            self._waits_since_ms = None
            table.raise_failed()
            if self._control.state is ThreadState.PARTITIONS_ASSIGNED and not self._parts.rebalance.in_progress:
                self._control.go(ThreadState.RUNNING)
            return
        if not self._can_write():
            return
        table.initialize_pending()
        table.raise_failed()
        if self._starter.start_restored():
            self._read()

    def _can_write(self) -> bool:
        """False while a transactional producer has not taken its place yet: before that, what its predecessor left open
        hides what is to be restored."""
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
        except TaskCorruptedError as error:  # the client library does not even say that nobody answers
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
                f"tasks do not start: nothing could be written in transactions for {waited_ms} ms (task.timeout.ms is "
                f"{self._task_timeout_ms}): {error}"
            ) from error
        if now_ms >= self._next_warning_ms:
            self._next_warning_ms = now_ms + _WARNING_MS
            _log.log(level_of_waiting(), "%s: %s; trying again", self._name, error)

    def _read(self) -> None:
        """Let the consumer read exactly the partitions of running tasks, new ones from where they begin."""
        new = self._starter.take_positions()
        read = {partition: new.get(partition) for task in self._table.running() for partition in task.input_partitions}
        self._parts.consumer.assign(read)
        self._parts.latest_resets.started({at for at, position in new.items() if position == END}, read.keys())
        self._parts.topic_changes.watch(self._table.actives())
        self.only_topic = only_topic_of(read)

    def check_topics(self) -> None:
        """Act on topics that were deleted and created again, and on positions that their logs do not have. Raises
        StreamsError or TaskCorruptedError."""
        parts, tasks = self._parts, self._table.running()
        parts.topic_changes.check(tasks, parts.consumer, parts.producer)
        for partition in parts.topic_changes.take_lost():
            self._reset(partition)

    def reset_positions(self, error: OffsetOutOfRangeError) -> None:
        """Positions do not exist in their logs: continue as the reset policy says, at once where records were deleted
        before the position was reached. Where the log ends before the position, the topic may be another one."""
        self._parts.topic_changes.note_lost(error.partitions - error.deleted)
        for partition in sorted(error.deleted):
            self._reset(partition)

    def _reset(self, partition: TopicPartition) -> None:
        owners = [task for task in self._table.running() if partition in task.input_partitions]
        if not owners:
            return
        position = self._parts.start_positions.after_reset(partition)
        where = "the beginning" if position == BEGINNING else "the end"
        _log.warning("offset of %s is gone from the broker; starting at %s", partition, where)
        for task in owners:
            task.start_again_at(partition)
        self._parts.consumer.seek(partition, position)

    # -- rebalance: called through the inbox -----------------------------------------------------------------

    def begin_suspension(self, tasks: Collection[TaskId]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Stop these tasks, flush what they made; the offsets to commit."""
        self._starter.forget()
        self._control.go(ThreadState.PARTITIONS_REVOKED)
        return self._revocation.prepare(tasks)

    def finish_suspension(self, error: Exception | None) -> None:
        """The offsets are committed (or not): checkpoint, suspend, stop reading."""
        self._revocation.finish(error)
        self.deferred.attempt(self._read)

    def close_lost(self, tasks: Collection[TaskId]) -> None:
        """Drop these actives without committing."""
        self._drop(self._table.actives(tasks))

    def complete_rebalance(self, tasks: Tasks | None, failure: Exception | None) -> None:
        """End of a rebalance: make ``tasks`` the tasks of this thread (None: keep them), or fail."""
        if tasks is not None:
            self.deferred.attempt(lambda: self._table.assign(tasks.active, tasks.standby))
        if failure is not None:
            self.deferred.add(failure)
        self.deferred.attempt(self._parts.release_locks)
        self.deferred.attempt(self._read)
        self._control.go(ThreadState.PARTITIONS_ASSIGNED)

    # -- trouble ---------------------------------------------------------------------------------------------

    def lose_everything(self) -> None:
        """Other members own the tasks, whatever the group has told this one: drop every active without committing."""
        self._drop(self._table.actives())

    def _drop(self, tasks: Collection[ActiveTask]) -> None:
        self._starter.forget()
        self._table.give_up(tasks)
        with self._control.blocked:
            self._parts.producer.reset()
        self._read()

    def revive(self, error: TaskCorruptedError) -> None:
        """Start corrupted tasks over; commit the healthy ones first."""
        _log.warning("%s: %s; restoring", self._name, error)
        corrupted = dict(error.tasks)
        self._starter.forget()
        if self._parts.transactions is not None:
            self._revive_in_transaction(self._parts.transactions, corrupted)
            return
        try:
            if not self._parts.rebalance.in_progress:
                healthy = [task for task in self._table.running() if task.id not in corrupted]
                self._committer.commit(healthy)
        except TaskCorruptedError as more:
            corrupted.update(more.tasks)
        finally:  # also when this is no member any more: corrupted standbys stay, and nobody else would start them over
            if self._parts.membership.is_member():
                self._committer.settle()
            if all(task.id in corrupted for task in self._table.running()):
                # What is still on its way would arrive after their restoration has learnt the end of the changelogs.
                with self._control.blocked:
                    self._parts.producer.reset()
            self._start_over(corrupted)

    def _revive_in_transaction(
        self, transactions: TransactionalProducer, corrupted: dict[TaskId, frozenset[TopicPartition]]
    ) -> None:
        """What a running task has begun is in the transaction of all of them: then all go back to the last commit."""
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
