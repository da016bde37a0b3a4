"""Committing a set of tasks, always in this order: caches, the producer, offsets, checkpoints.

At-least-once means that an input offset is committed only after all records produced from it are acknowledged. One
flush of the thread's producer and one commit request serve all tasks. Under exactly-once the offsets are part of the
transaction of the thread's producer, whose commit covers all tasks.

*During a rebalance.* A broker accepts offsets in a transaction from a member of the group's current generation, even
while the group forms the next one (KIP-447). The next generation starts once the last member has joined; a commit that
is in progress at that moment is rejected. So commits wait for the end of a short rebalance. But the broker aborts a
transaction after ``transaction.timeout.ms``, and a member that is slow to join delays the group by up to
``max.poll.interval.ms``. So transactions are committed from time to time during a long rebalance. Offsets without a
transaction always wait. If the stores' memory grows too large meanwhile, it is written to disk.

A transaction contains all effects of a record or none. So no record may be in an asynchronous call when the transaction
is committed. Tasks with such calls drain first, and the thread's other tasks continue meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from streams_protocol.types import TopicPartition
from streams_py.errors import (
    BrokerUnavailableError,
    StreamsError,
    TaskCorruptedError,
    TaskMigratedError,
    TimeoutExceededError,
)
from streams_py.ports import Clock, OffsetAndMetadata, RecordProducer, TransactionalProducer
from streams_py.runtime.commit.deadline import Deadline
from streams_py.runtime.commit.known_commits import KnownCommits
from streams_py.runtime.group.transport import UNCONFIRMED, GroupTransport
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.task_table import TaskTable
from streams_py.system.outages import level_of_waiting

_log = logging.getLogger(__name__)

WAITS = -2
"""Result of a commit that asynchronous calls delay. Try again when some of them have ended."""

_FLUSH_STEP_MS = 1_000
_SETTLE_MS = 10_000
_WARN_AFTER_MS = 5_000
_COMMIT_TIMEOUT_MS = 10_000
"""Time limit for one attempt to commit, in ms. A later attempt follows, except during a shutdown."""
_LAST_CALLS_MS = 2_000
"""How long a shutdown waits for asynchronous calls before it cancels them, in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLimits:
    """Time limits of commits, in ms."""

    task_timeout_ms: int
    """How long commits may fail before the thread fails."""
    calls_max_ms: int
    """How long a transaction may wait for asynchronous calls: the rest of ``transaction.timeout.ms`` when a commit is
    due, minus enough time to make the commit."""


class Committer:
    """Commits the tasks of one stream thread.

    Args:
        producer: The producer of all tasks.
        transactions: The same producer, if records are processed in transactions.
        transport: The thread's membership, which commits offsets outside transactions.
        table: Calls the production exception handlers of rejected records.
        deadline: The time limit of a shutdown.
        known_commits: Receives the committed offsets.
    """

    def __init__(
        self,
        producer: RecordProducer,
        transactions: TransactionalProducer | None,
        transport: GroupTransport,
        table: TaskTable,
        clock: Clock,
        deadline: Deadline,
        limits: CommitLimits,
        known_commits: KnownCommits,
    ) -> None:
        self._producer = producer
        self._transactions = transactions
        self._transport = transport
        self._table = table
        self._clock = clock
        self._deadline = deadline
        self._limits = limits
        self._known_commits = known_commits
        self._failing_since_ms: int | None = None
        self._waiting_since_ms = 0  # start of the wait for asynchronous calls, if there is one

    def prepare(self, tasks: Collection[ActiveTask], *, calls_ms: int = 0) -> dict[TopicPartition, OffsetAndMetadata]:
        """Flush the tasks, wait for all acknowledgements, and return the offsets to commit.

        Args:
            tasks: The tasks that need a commit. For a transaction: all running tasks.
            calls_ms: How long a transaction waits for asynchronous calls.

        Raises:
            ProductionError: The first error of a send.
            BrokerUnavailableError: Try again. Other members may own the tasks by now, asynchronous calls of a
                transaction are still running, the producer's queue stays full, or a shutdown's time limit has passed
                before all records were acknowledged.
            TaskCorruptedError: The transaction contains records, but no task is running.
        """
        needing = [task for task in tasks if task.commit_needed]
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        if needing:
            if self._transactions is not None:
                self._await_calls(needing, within_ms=calls_ms)
                if waiting := [task for task in needing if task.calls.are_running]:
                    raise BrokerUnavailableError(_still_running(waiting))
            for task in needing:
                self._check_member()
                task.flush_caches()
            self.flush()
            for task in needing:
                offsets.update(task.committable_offsets())
        if not offsets and self._transactions is not None and self._transactions.in_transaction:
            return self._fence(tasks)
        return offsets

    def _fence(self, tasks: Collection[ActiveTask]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return one offset, so that the broker checks the membership of a transaction without processed records.

        Processors may write such records during initialisation, or punctuators. Kafka Streams sends no offsets with
        them. But without offsets the broker does not check the membership, so it would accept them from a zombie.
        """
        for task in tasks:
            if found := task.positions.fence():
                return dict(found)
        if tasks:
            raise BrokerUnavailableError(
                "the consumer's positions are not known yet, so the transaction cannot be fenced"
            )
        raise TaskCorruptedError("records were written, but no task is running; they are not committed", {})

    def _await_calls(self, tasks: Collection[ActiveTask], *, within_ms: int) -> None:
        """Wait for asynchronous calls, including calls that only start when caches are flushed."""
        deadline_ms = self._clock.monotonic_ms() + within_ms
        for task in tasks:
            self._check_member()
            task.await_answers(max(0, deadline_ms - self._clock.monotonic_ms()))

    def commit_prepared(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """Commit the result of :meth:`prepare`: the offsets, or the transaction with them.

        Raises:
            TaskMigratedError: This process is no longer a member.
            BrokerUnavailableError: The broker does not answer.
            TaskCorruptedError: The broker does not answer, for a transaction.
        """
        if self._transactions is None:
            if offsets:
                with self._producer.blocked:
                    self._transport.commit(offsets, timeout_ms=timeout_ms)
            return
        if not offsets and not self._transactions.in_transaction:
            return
        member = self._transport.token()
        if member is None:
            # A broker accepts a request without a generation without any check.
            raise TaskMigratedError("cannot commit a transaction: this member is no longer in the group")
        with self._producer.blocked:
            self._transactions.commit_transaction(offsets, member, timeout_ms)

    @property
    def is_transactional(self) -> bool:
        """Whether the tasks of the thread can only be committed together."""
        return self._transactions is not None

    def end_calls(self, tasks: Collection[ActiveTask], *, within_ms: int) -> None:
        """Before tasks are revoked, wait for their asynchronous calls, then cancel the remaining calls.

        The next owner processes the records of cancelled calls again, because no commit passes them. Raises as
        :meth:`prepare`.
        """
        self._await_calls(tasks, within_ms=within_ms)
        for task in tasks:
            task.calls.cancel()

    def _check_member(self) -> None:
        if not self._transport.is_member():
            raise BrokerUnavailableError(UNCONFIRMED)

    def flush(self) -> None:
        """Wait until all records sent so far are acknowledged, including dead letters for rejected records."""
        self._wait_for_acknowledgements()
        while self._table.check_sends(self._producer):
            self._wait_for_acknowledgements()

    def settle(self) -> None:
        """Before tasks start over, wait some seconds until their sent records have arrived or failed.

        A changelog record that arrives after the restoration has determined the end offset would be missing in the
        store forever.
        """
        with contextlib.suppress(StreamsError):  # a rejected record does not arrive later
            left = self._flush_producer(_SETTLE_MS)
            if left:
                _log.log(
                    level_of_waiting(),
                    "%d records are still not acknowledged after %d s; restoring anyway",
                    left,
                    _SETTLE_MS // 1000,
                )

    def _flush_producer(self, timeout_ms: int) -> int:
        with self._producer.blocked:
            return self._producer.flush(timeout_ms)

    def _wait_for_acknowledgements(self) -> None:
        waited = 0
        while left := self._flush_producer(_FLUSH_STEP_MS):
            waited += _FLUSH_STEP_MS
            self._table.check_sends(self._producer)
            if self._deadline.has_passed:
                raise BrokerUnavailableError(f"{left} records were not acknowledged within the shutdown's time limit")
            if waited % 10_000 == 0:
                _log.log(
                    level_of_waiting(),
                    "%d records are still not acknowledged after %d s; waiting",
                    left,
                    waited // 1000,
                )

    def commit(self, tasks: Collection[ActiveTask], *, in_rebalance: bool = False) -> int:
        """Commit the tasks that need it and return their number.

        If a broker does not answer or accepts no more records, or if the membership is unconfirmed, the result is -1.
        If a transaction waits for asynchronous calls, the result is :data:`WAITS`. In both cases a later call tries
        again.

        Args:
            tasks: Candidates. For a transaction: all running tasks.
            in_rebalance: Whether to commit a transaction although the group rebalances.

        Raises:
            TaskMigratedError: This process is no longer a member.
            TaskCorruptedError: The outcome of the transaction is unknown, or asynchronous calls would outlast it.
            TimeoutExceededError: Attempts to commit have failed for ``task.timeout.ms``, or asynchronous calls have
                delayed them for that time.
            ProductionError: The first error of a send.
        """
        needing = [task for task in tasks if task.commit_needed]
        try:
            if self._transactions is not None and self._drains(tasks, needing):
                return WAITS
            offsets = self.prepare(tasks)
            with self._transport.committing(although_rebalancing=in_rebalance):
                self.commit_prepared(offsets, timeout_ms=_COMMIT_TIMEOUT_MS)
        except BrokerUnavailableError as error:
            self._note_failure(error)
            return -1
        self._failing_since_ms = None
        self.finish(needing, enforce_checkpoint=False)
        if self._transactions is not None:
            for task in tasks:  # also tasks that drained without anything to commit
                task.calls.drain(drains=False)
        return len(needing)

    def _drains(self, tasks: Collection[ActiveTask], needing: Collection[ActiveTask]) -> bool:
        """Whether asynchronous calls are running. The tasks process no more records then.

        Calls for records of one key run one after the other. A batch with many records of one key may thus take long.

        Raises:
            TaskCorruptedError: The broker may soon abort the transaction. The tasks start over, with fewer records at a
                time.
            TimeoutExceededError: Fewer records have not helped for ``task.timeout.ms``.
        """
        self._await_calls(needing, within_ms=0)
        waiting = [task for task in needing if task.calls.are_running]
        if not waiting:
            return False
        now_ms = self._clock.monotonic_ms()
        for task in tasks:
            if task.calls.drain(drains=True):
                self._waiting_since_ms = now_ms
        waited_ms = now_ms - self._waiting_since_ms
        if waited_ms < self._limits.calls_max_ms or self._transactions is None or not self._transactions.in_transaction:
            return True
        text = f"{_still_running(waiting)} after {waited_ms} ms, and a transaction may last for transaction.timeout.ms"
        since_ms = max(task.calls.take_fewer() for task in waiting)
        if since_ms > self._limits.task_timeout_ms:
            raise TimeoutExceededError(
                f"{text}; this has lasted for {since_ms} ms (task.timeout.ms is {self._limits.task_timeout_ms}). Let "
                "the calls end sooner (timeout=), or raise producer.transaction.timeout.ms",
                task_id=waiting[0].id,
            )
        raise TaskCorruptedError(
            f"{text}; processing again from the last commit, fewer records at a time", {task.id: () for task in waiting}
        )

    def finish(self, tasks: Collection[ActiveTask], *, enforce_checkpoint: bool) -> None:
        """Complete a commit: write checkpoints and reset the tasks' commit state."""
        acked = self._producer.acked_offsets()
        for task in tasks:
            task.post_commit(enforce_checkpoint=enforce_checkpoint, acked=acked)
            self._known_commits.note(task.positions.committed, task.topic_ids)

    def commit_last(self, tasks: Collection[ActiveTask]) -> None:
        """Commit all running tasks before they are closed. Cancels asynchronous calls that take too long.

        Raises the errors of :meth:`prepare`, :meth:`commit_prepared`, and of the application's code.
        """
        needing = [task for task in tasks if task.commit_needed]
        self.end_calls(needing, within_ms=min(_LAST_CALLS_MS, self._deadline.left_ms(_COMMIT_TIMEOUT_MS)))
        offsets = self.prepare(tasks)
        self.commit_prepared(offsets, timeout_ms=self._deadline.left_ms(_COMMIT_TIMEOUT_MS))
        self.finish(tasks, enforce_checkpoint=True)

    def make_room(self, tasks: Collection[ActiveTask]) -> bool:
        """Write to disk what the stores hold in memory for a commit that is delayed. Not for transactions.

        The changelogs already have these writes, so a member that restores the tasks gets them, too. (Kafka Streams'
        stores write them immediately.) Returns False if it must be tried again. Raises as :meth:`commit`.
        """
        needing = [task for task in tasks if task.commit_needed]
        try:
            self.prepare(needing)
        except BrokerUnavailableError as error:
            self._note_failure(error)
            return False
        self._failing_since_ms = None
        acked = self._producer.acked_offsets()
        for task in needing:
            task.write_uncommitted(acked)
        return True

    def _note_failure(self, error: BrokerUnavailableError) -> None:
        now = self._clock.monotonic_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms, self._has_warned = now, False
        silent_ms = now - self._failing_since_ms
        if silent_ms > self._limits.task_timeout_ms:
            raise TimeoutExceededError(
                f"offsets could not be committed for {silent_ms} ms "
                f"(task.timeout.ms is {self._limits.task_timeout_ms}): {error}"
            ) from error
        # Short failures are normal: a rebalance that has just begun rejects commits.
        is_first = silent_ms >= _WARN_AFTER_MS and not self._has_warned
        self._has_warned = self._has_warned or is_first
        level = logging.WARNING if is_first else logging.DEBUG
        _log.log(level, "offsets not committed for %d ms: %s; retrying", silent_ms, error)


def _still_running(tasks: Sequence[ActiveTask]) -> str:
    return f"asynchronous calls of task {tasks[0].id} are still running"
