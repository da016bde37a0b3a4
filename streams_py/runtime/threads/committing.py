"""Committing: caches, then the producer, then offsets, then checkpoints - in this order, for a set of tasks at once.

At-least-once means that an input offset is committed only after everything made from it has been acknowledged. One
flush of the thread's producer and one commit request serve all tasks. Under exactly-once the offsets go into the
transaction of the thread's producer, and its commit is that of all tasks.

*In a rebalance.* A broker takes offsets in a transaction from a member of the generation that the group is in, also
while it forms the next one (KIP-447); that one begins when the last member has joined. A commit that is on its way at
this very moment is refused. So a short rebalance is waited for; but the broker aborts a transaction after
``transaction.timeout.ms``, and a member that is slow to join holds the group up for ``max.poll.interval.ms``. In one
that takes long transactions are committed now and then. Offsets alone always wait; what stores hold in memory until
then is brought to the disk when it becomes too much.

A transaction holds all effects of a record, or none. So none may be under way in an asynchronous call when it is
committed: tasks with such calls drain first, and the thread goes on with the others meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import (
    BrokerUnavailableError,
    StreamsError,
    TaskCorruptedError,
    TaskMigratedError,
    TimeoutExceededError,
)
from streams_py.outages import level_of_waiting
from streams_py.ports import Clock, Membership, OffsetAndMetadata, RecordProducer, TransactionalProducer
from streams_py.runtime.blocked_time import BlockedTime
from streams_py.runtime.tasks.known_commits import KnownCommits

__all__ = ["IN_DOUBT", "WAITS", "Committable", "Committer"]

_log = logging.getLogger(__name__)

IN_DOUBT = (
    "the group may have dropped this member (no heartbeat was answered for session.timeout.ms, or the thread was busy "
    "for max.poll.interval.ms), and others may own its tasks: nothing is written"
)
"""Why a member that may be none any more writes nothing."""

WAITS = -2
"""Instead of a number of committed tasks: asynchronous calls are still under way. Try again when some have ended."""

_FLUSH_STEP_MS = 1_000
_SETTLE_MS = 10_000
_WORRY_AFTER_MS = 5_000
_COMMIT_TIMEOUT_MS = 10_000
"""How long one attempt to commit may take before it is tried again later."""


class Fences(Protocol):
    """What a commit needs of the positions of a task that has taken no record."""

    def fence(self) -> Mapping[TopicPartition, OffsetAndMetadata]: ...


class Committable(Protocol):
    """What a commit needs of an active task."""

    @property
    def id(self) -> TaskId: ...
    @property
    def topic_ids(self) -> Mapping[str, str]: ...
    @property
    def positions(self) -> Fences: ...
    @property
    def commit_needed(self) -> bool: ...
    @property
    def has_calls(self) -> bool: ...
    def await_answers(self, within_ms: int | None = None) -> int: ...
    def drain(self, *, drains: bool) -> bool: ...
    def take_fewer(self) -> int: ...
    def cancel_calls(self) -> None: ...
    def flush_caches(self) -> None: ...
    def committable_offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]: ...
    def post_commit(self, *, enforce_checkpoint: bool, acked: Mapping[TopicPartition, int]) -> None: ...
    def write_uncommitted(self, acked: Mapping[TopicPartition, int]) -> None: ...
    def committed_positions(self) -> Mapping[TopicPartition, int]: ...


class Committer:
    """Commits the tasks of one stream thread.

    ``gives_up`` says that a shutdown's time is over; ``check_sends`` raises what became of refused records, after
    asking the production exception handler; True when that had records written instead. This member does not join again
    within ``before_rebalance``, which raises BrokerUnavailableError when a rebalance has begun, unless it is told that
    one may have. A transaction waits for asynchronous calls for ``calls_max_ms``. What is committed goes to
    ``known_commits``, and how long it waits for Kafka to ``blocked``.
    """

    def __init__(
        self,
        producer: RecordProducer,
        membership: Membership,
        clock: Clock,
        *,
        task_timeout_ms: int,
        gives_up: Callable[[], bool],
        check_sends: Callable[[], bool],
        before_rebalance: Callable[[bool], AbstractContextManager[object]] = contextlib.nullcontext,
        transactions: TransactionalProducer | None = None,
        calls_max_ms: int = 0,
        known_commits: KnownCommits | None = None,
        blocked: BlockedTime | None = None,
    ) -> None:
        self._producer = producer
        self._transactions = transactions
        self._membership = membership
        self._clock = clock
        self._task_timeout_ms = task_timeout_ms
        self._gives_up = gives_up
        self._check_sends = check_sends
        self._before_rebalance = before_rebalance
        self._failing_since_ms: int | None = None
        self._calls_max_ms = calls_max_ms
        self._known_commits = known_commits or KnownCommits()
        self._blocked = blocked or BlockedTime(clock)
        self._waiting_since_ms = 0  # for asynchronous calls, if at all

    def prepare(self, tasks: Collection[Committable], *, calls_ms: int = 0) -> dict[TopicPartition, OffsetAndMetadata]:
        """Flush what the tasks hold back and wait for all acknowledgements; the offsets to commit. ``tasks``: those
        that need it, and, for a transaction, all that are running; that one waits for asynchronous calls, ``calls_ms``.

        Raises the first send error (ProductionError), or BrokerUnavailableError when nothing may be written because
        other members may own the tasks by now, or when the producer's queue stays full or could not be flushed in time.
        """
        needing = [task for task in tasks if task.commit_needed]
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        if needing:
            if self._transactions is not None:
                self._await_calls(needing, within_ms=calls_ms)
                if waiting := [task for task in needing if task.has_calls]:
                    raise BrokerUnavailableError(_under_way(waiting))
            for task in needing:
                self._check_member()
                task.flush_caches()
            self.flush()
            for task in needing:
                offsets.update(task.committable_offsets())
        if not offsets and self._transactions is not None and self._transactions.in_transaction:
            return self._fence(tasks)
        return offsets

    def _fence(self, tasks: Collection[Committable]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What processors wrote when they began, or punctuators, without a record. Kafka Streams sends no offsets with
        it; but then the broker does not ask whether this is still a member, and takes it from a zombie, too."""
        for task in tasks:
            if found := task.positions.fence():
                return dict(found)
        if tasks:
            raise BrokerUnavailableError("it is not known yet from where partitions are read, so nothing can be fenced")
        raise TaskCorruptedError("something was written, but not by a running task; it is not committed", {})

    def _await_calls(self, tasks: Collection[Committable], *, within_ms: int) -> None:
        """Also those that begin only when caches are flushed."""
        deadline_ms = self._clock.monotonic_ms() + within_ms
        for task in tasks:
            self._check_member()
            task.await_answers(max(0, deadline_ms - self._clock.monotonic_ms()))

    def commit_prepared(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        """Commit what :meth:`prepare` gave: offsets alone, or the transaction with them. Raises TaskMigratedError when
        this is no member, BrokerUnavailableError when there is no answer; a transaction has TaskCorruptedError then."""
        if self._transactions is None:
            if offsets:
                with self._blocked:
                    self._membership.commit(offsets, timeout_ms=timeout_ms)
            return
        if not offsets and not self._transactions.in_transaction:
            return
        member = self._membership.forming()
        if member is None or self._membership.group_metadata() is None:
            # A broker would take what it is sent without a generation.
            raise TaskMigratedError("a transaction cannot be committed: this is no member of the group any more")
        with self._blocked:
            self._transactions.commit_transaction(offsets, member, timeout_ms)

    @property
    def is_transactional(self) -> bool:
        """True when all tasks of the thread are committed together, or none."""
        return self._transactions is not None

    def end_calls(self, tasks: Collection[Committable], *, within_ms: int) -> None:
        """Before tasks are taken away: let their asynchronous calls end, for so long at most, and cancel the others.
        What was cancelled is processed again by the next owner: no commit passes it. Raises as :meth:`prepare`."""
        self._await_calls(tasks, within_ms=within_ms)
        for task in tasks:
            task.cancel_calls()

    def _check_member(self) -> None:
        if not self._membership.is_member():
            raise BrokerUnavailableError(IN_DOUBT)

    def flush(self) -> None:
        """Wait until every record sent so far is acknowledged, dead letters for refused ones included."""
        self._wait_for_acknowledgements()
        while self._check_sends():
            self._wait_for_acknowledgements()

    def settle(self) -> None:
        """Before tasks start over: let what they have sent arrive, or fail, for some seconds at most. A changelog
        record that arrives after their restoration has learnt the end would be missing in the store for ever."""
        with contextlib.suppress(StreamsError):  # what was refused does not arrive either
            left = self._flush_producer(_SETTLE_MS)
            if left:
                _log.log(level_of_waiting(), "%d records are still on their way after %d s", left, _SETTLE_MS // 1000)

    def _flush_producer(self, timeout_ms: int) -> int:
        with self._blocked:
            return self._producer.flush(timeout_ms)

    def _wait_for_acknowledgements(self) -> None:
        waited = 0
        while left := self._flush_producer(_FLUSH_STEP_MS):
            waited += _FLUSH_STEP_MS
            self._check_sends()
            if self._gives_up():
                raise BrokerUnavailableError(
                    f"{left} records were not acknowledged before the shutdown's time was over"
                )
            if waited % 10_000 == 0:
                _log.log(
                    level_of_waiting(),
                    "%d records still wait for the broker's acknowledgement after %d s",
                    left,
                    waited // 1000,
                )

    def commit(self, tasks: Collection[Committable], *, in_rebalance: bool = False) -> int:
        """Commit those of ``tasks`` (for a transaction: all that are running) that need it; how many they were.
        ``in_rebalance``: a transaction, although the group rebalances.

        A broker that does not answer, or takes no more records, is not an error until that has lasted for
        ``task.timeout.ms``: -1 then, and the next call tries again; as it does with :data:`WAITS`. Raises
        TaskMigratedError when this is no member.
        """
        needing = [task for task in tasks if task.commit_needed]
        try:
            if self._transactions is not None and self._drains(tasks, needing):
                return WAITS
            offsets = self.prepare(tasks)
            with self._before_rebalance(in_rebalance):
                self.commit_prepared(offsets, timeout_ms=_COMMIT_TIMEOUT_MS)
        except BrokerUnavailableError as error:
            self._note_failure(error)
            return -1
        self._failing_since_ms = None
        self.finish(needing, enforce_checkpoint=False)
        if self._transactions is not None:
            for task in tasks:  # also those that drained although they had nothing to commit
                task.drain(drains=False)
        return len(needing)

    def _drains(self, tasks: Collection[Committable], needing: Collection[Committable]) -> bool:
        """Whether asynchronous calls are under way; the tasks take no more records then. When that has lasted so long
        that the broker may abort the transaction, they start over, and take fewer at a time: many records of one key
        wait for one another."""
        self._await_calls(needing, within_ms=0)
        waiting = [task for task in needing if task.has_calls]
        if not waiting:
            return False
        now_ms = self._clock.monotonic_ms()
        for task in tasks:
            if task.drain(drains=True):
                self._waiting_since_ms = now_ms
        waited_ms = now_ms - self._waiting_since_ms
        if waited_ms < self._calls_max_ms or self._transactions is None or not self._transactions.in_transaction:
            return True
        text = f"{_under_way(waiting)} after {waited_ms} ms, and a transaction may last for transaction.timeout.ms"
        since_ms = max(task.take_fewer() for task in waiting)
        if since_ms > self._task_timeout_ms:
            raise TimeoutExceededError(
                f"{text}; so it has been for {since_ms} ms (task.timeout.ms is {self._task_timeout_ms}). Let the calls "
                "end sooner (timeout=), or raise producer.transaction.timeout.ms",
                task_id=waiting[0].id,
            )
        raise TaskCorruptedError(
            f"{text}; processing again from the last commit, fewer records at a time", {task.id: () for task in waiting}
        )

    def finish(self, tasks: Collection[Committable], *, enforce_checkpoint: bool) -> None:
        """Their offsets are committed: write checkpoints, forget that they needed it."""
        acked = self._producer.acked_offsets()
        for task in tasks:
            task.post_commit(enforce_checkpoint=enforce_checkpoint, acked=acked)
            self._known_commits.note(task.committed_positions(), task.topic_ids)

    def make_room(self, tasks: Collection[Committable]) -> bool:
        """Bring to the disk what stores hold in memory until a commit that does not come, without committing anything;
        not for transactions. The changelogs have it already, so whoever restores these tasks meets it, too: Kafka
        Streams' stores write it at once. False when that has to be tried again; raises as :meth:`commit`."""
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
            self._failing_since_ms = now
        silent_ms = now - self._failing_since_ms
        if silent_ms > self._task_timeout_ms:
            raise TimeoutExceededError(
                f"offsets could not be committed for {silent_ms} ms "
                f"(task.timeout.ms is {self._task_timeout_ms}): {error}"
            ) from error
        # Short silences are everyday life: a rebalance that has just begun refuses commits.
        level = logging.WARNING if silent_ms >= _WORRY_AFTER_MS else logging.DEBUG
        _log.log(level, "offsets not committed for %d ms: %s; trying again", silent_ms, error)


def _under_way(tasks: Sequence[Committable]) -> str:
    return f"asynchronous calls of task {tasks[0].id} are still under way"
