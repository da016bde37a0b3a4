"""Revoking tasks in two steps: before their offsets are committed, and after.

The membership commits between the two steps, because it holds the connection. Other tasks continue meanwhile. If there
is anything to commit, the same request also commits their progress.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, StreamsError, TaskCorruptedError, TaskMigratedError
from streams_py.events.observers import TaskObserver
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.commit.committer import Committer
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.deferred_errors import DeferredErrors
from streams_py.runtime.tasks.task_table import TaskTable

_log = logging.getLogger(__name__)

_TRANSACTION_MS = 10_000
_CALLS_MS = 500
"""How long a revocation waits for asynchronous calls before it cancels them, in ms. The rebalance and the thread's
other tasks wait meanwhile."""
_TRANSACTION_CALLS_MS = 5_000
"""How long a revocation waits for asynchronous calls in a transaction, in ms. If some are still running then, the
transaction is not committed, and all tasks of the thread start over from the last commit."""


class Revocation:
    """The revocations of one stream thread, one at a time; for that thread only. Errors are deferred."""

    def __init__(
        self, name: str, table: TaskTable, committer: Committer, events: TaskObserver, deferred: DeferredErrors
    ) -> None:
        self._name = name
        self._table = table
        self._committer = committer
        self._events = events
        self._deferred = deferred
        self._revoked: Sequence[ActiveTask] = ()
        self._others: Sequence[ActiveTask] = ()
        self._failed = False

    def prepare(self, tasks: Collection[TaskId]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Stop these tasks, flush their records, and return the offsets to commit."""
        revoked = self._table.revoked(tasks)
        for task in revoked:
            self._events.changed("revoked", task.id, is_active=True)
        others: list[ActiveTask] = []
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self._failed = False
        try:
            if self._committer.is_transactional:
                others = self._commit_all(revoked)
            else:
                self._committer.end_calls(revoked, within_ms=_CALLS_MS)
                offsets = self._committer.prepare(revoked)
                if offsets:
                    others = self._take_along(revoked, offsets)
        except (Exception, SystemExit) as raised:  # flushing caches runs the application's code
            problem = _problem(raised)
            offsets, self._failed = {}, True  # not flushed, so nothing may be committed
            if self._committer.is_transactional and isinstance(problem, BrokerUnavailableError):
                self._deferred.add(TaskCorruptedError(f"revoked tasks not committed: {problem}", {}))
            elif isinstance(problem, BrokerUnavailableError):
                _log.warning("%s: revoked tasks not flushed, so not committed: %s", self._name, problem)
            else:
                self._deferred.add(problem)
        self._revoked, self._others = revoked, others
        return offsets

    def _take_along(
        self, revoked: Sequence[ActiveTask], offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> list[ActiveTask]:
        """Add the offsets of the other tasks, because one commit request serves the thread.

        Their errors don't affect the revoked tasks, whose records are all acknowledged and are committed anyway.
        """
        others = [task for task in self._table.running() if task not in revoked and task.commit_needed]
        try:
            offsets.update(self._committer.prepare(others))
        except BrokerUnavailableError as error:
            _log.warning("%s: remaining tasks not flushed, so not committed yet: %s", self._name, error)
        except (Exception, SystemExit) as raised:
            self._deferred.add(_problem(raised))
        else:
            return others
        return []

    def _commit_all(self, revoked: Sequence[ActiveTask]) -> list[ActiveTask]:
        """Commit the thread's transaction before tasks are revoked. Return the other tasks that were part of it."""
        if not revoked:
            return []
        if self._deferred:
            # An earlier error may have left records in the transaction whose task is gone, together with its offsets.
            raise TaskCorruptedError(
                "an earlier step of this rebalance failed, so the transaction is not committed", {}
            )
        running = self._table.running()
        needing = [task for task in running if task.commit_needed]
        offsets = self._committer.prepare(running, calls_ms=_TRANSACTION_CALLS_MS)
        self._committer.commit_prepared(offsets, timeout_ms=_TRANSACTION_MS)
        return [task for task in needing if task not in revoked]

    def finish(self, error: Exception | None) -> None:
        """Complete the revocation after the commit: write checkpoints and suspend the tasks."""
        revoked, others = self._revoked, self._others
        self._revoked = self._others = ()
        if error is not None:
            _log.warning("%s: offsets of revoked partitions not committed: %s", self._name, error)
        if isinstance(error, TaskMigratedError):
            self._deferred.add(error)
        if error is not None or self._failed:
            self._table.give_up(revoked)
            return
        self._deferred.attempt(lambda: self._committer.finish(revoked, enforce_checkpoint=True))
        self._deferred.attempt(lambda: self._committer.finish(others, enforce_checkpoint=False))
        for task in revoked:
            self._deferred.attempt(task.suspend)
            self._events.ended("suspended", task.id, is_active=True)


def _problem(raised: Exception | SystemExit) -> Exception:
    """Return the error for the loop to raise. A SystemExit would stop the membership thread in mid-rebalance."""
    return raised if isinstance(raised, Exception) else StreamsError(f"sys.exit({raised.code!r}) was called")
