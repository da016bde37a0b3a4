"""Starts restored tasks at the group's committed offsets."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TypeAlias

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, TimeoutExceededError
from streams_py.ports import Clock, CommittedOffsets, OffsetAndMetadata
from streams_py.runtime.commit.known_commits import KnownCommits
from streams_py.runtime.commit.start_positions import StartPositions
from streams_py.runtime.commit.suspect_offsets import OffsetChecks
from streams_py.runtime.group.transport import GroupTransport
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.task import Partitions, TaskPhase
from streams_py.runtime.tasks.task_table import TaskTable
from streams_py.runtime.thread.topic_changes import TopicChanges
from streams_py.system.outages import level_of_waiting

_log = logging.getLogger(__name__)

_Waiting: TypeAlias = "tuple[ActiveTask, Partitions]"
"""A task, and the partitions whose start offsets are needed."""

_FETCH_TIMEOUT_MS = 10_000
_GRACE_MS = 5_000
"""Extra time for an answer before the request is repeated, in ms."""
_BACKOFF_MS = 100
_REPEAT_PAUSE_MS = 500
_WARNING_MS = 10_000
"""Interval between two warnings about missing answers, in ms."""


class TaskStarter:
    """Starts the tasks of one stream thread. For that thread only; it never blocks, so other tasks continue."""

    def __init__(
        self,
        table: TaskTable,
        transport: GroupTransport,
        start_positions: StartPositions,
        topic_changes: TopicChanges,
        known_commits: KnownCommits,
        clock: Clock,
        *,
        task_timeout_ms: int,
        exactly_once: bool,
    ) -> None:
        self._table = table
        self._transport = transport
        self._start_positions = start_positions
        self._topic_changes = topic_changes
        self._offset_checks = OffsetChecks(known_commits, clock, topic_changes.is_outdated, exactly_once=exactly_once)
        self._clock = clock
        self._task_timeout_ms = task_timeout_ms
        self._waiting_since_ms: dict[TaskId, int] = {}
        self._requested: Future[CommittedOffsets] | None = None
        self._requested_at_ms = 0
        self._not_before_ms = self._next_warning_ms = 0
        self._known: dict[TopicPartition, OffsetAndMetadata | None] = {}
        self._positions: dict[TopicPartition, int] = {}

    def start_restored(self) -> int:
        """Start the restored active tasks whose committed offsets are known, and return their number.

        Running tasks begin to read partitions that were added to them; they count, too. Unknown offsets are requested.
        If a broker cannot answer yet, the request is repeated.

        Raises:
            TimeoutExceededError: A task has waited for longer than ``task.timeout.ms``. The error names it.
        """
        restored, growing = self._table.restored(), self._table.growing()
        waiting = [*((task, task.input_partitions) for task in restored), *growing]
        if not waiting:
            return 0
        self._take_answer(waiting)
        if self._requested is None:
            self._ask(waiting)
            self._take_answer(waiting)
        started = 0
        for task, partitions in waiting:
            if self._known.keys() >= partitions and self._start(task, partitions):
                started += 1
        return started

    def take_positions(self) -> Mapping[TopicPartition, int]:
        """Return the start positions of the partitions of started tasks. Each is returned once."""
        positions, self._positions = self._positions, {}
        return positions

    def forget(self) -> None:
        """Forget the answers, because tasks were revoked: the answers may be outdated when the tasks return."""
        self._requested = None
        self._known.clear()
        self._waiting_since_ms.clear()

    def _ask(self, waiting: Sequence[_Waiting]) -> None:
        now = self._clock.monotonic_ms()
        unknown = {partition for _, partitions in waiting for partition in partitions} - self._known.keys()
        if unknown and now >= self._not_before_ms:
            self._requested, self._requested_at_ms = (
                self._transport.committed(unknown, timeout_ms=_FETCH_TIMEOUT_MS),
                now,
            )

    def _take_answer(self, waiting: Sequence[_Waiting]) -> None:
        requested, now = self._requested, self._clock.monotonic_ms()
        if requested is None:
            return
        if requested.done():
            self._requested = None
            try:
                answer = requested.result()
            except BrokerUnavailableError as error:
                self._note_failure(waiting, error)
            else:
                self._next_warning_ms = 0
                accepted = self._offset_checks.accepted(answer, waiting)
                self._known.update(accepted)
                if len(accepted) < len(answer):
                    self._not_before_ms = now + _REPEAT_PAUSE_MS
        elif now - self._requested_at_ms > _FETCH_TIMEOUT_MS + _GRACE_MS:
            self._requested = None
            self._note_failure(waiting, BrokerUnavailableError(f"no answer within {now - self._requested_at_ms} ms"))

    def _start(self, task: ActiveTask, partitions: Partitions) -> bool:
        """Start a task. False if a processor's ``init`` needs an unavailable service; it is tried again."""
        self._waiting_since_ms.pop(task.id, None)
        reported = {partition: self._known[partition] for partition in partitions}
        committed = {
            partition: None if at is None else self._topic_changes.committed(task, partition, at)
            for partition, at in reported.items()
        }
        self._warn_of_empty_stores(task, reported)
        if task.state is TaskPhase.RUNNING:
            self._table.grow(task)
        elif self._is_behind(task, committed) or not task.may_start:
            return False
        else:
            try:
                self._table.start(task, committed)
            except BrokerUnavailableError:
                return False
        for partition, at in committed.items():
            del self._known[partition]
            self._positions[partition] = self._start_positions.after_reset(partition) if at is None else at.offset
            self._topic_changes.started(task, partition, at)
            if at is not reported[partition]:
                task.positions.start_again_at(partition)
        return True

    def _warn_of_empty_stores(self, task: ActiveTask, committed: CommittedOffsets) -> None:
        """Warn of empty changelogs: a deleted and recreated changelog looks like one that was never written to."""
        read = sorted((at, of.offset) for at, of in committed.items() if of is not None and of.offset > 0)
        if read and task.restoring.never_written:
            _log.warning(
                "task %s: changelog %s is empty, although the group has committed offset %d of %s: store %s starts "
                "empty. This is expected when nothing was written to the store before, or when a new version of the "
                "application added it. If the topic was deleted, reset the application (streams-py reset)",
                task.id,
                ", ".join(map(str, sorted(task.restoring.never_written))),
                read[0][1],
                read[0][0],
                ", ".join(task.stores.store_of(changelog) for changelog in sorted(task.restoring.never_written)),
            )
        task.restoring.never_written.clear()

    def _is_behind(self, task: ActiveTask, committed: CommittedOffsets) -> bool:
        """Whether the task returns to the state updater because the group has committed more than its tables contain.

        The coordinator had not read all of its log when the updater requested how far to read the topics of tables. The
        records after that offset would be missing in the tables.
        """
        behind = [
            (at, of.offset)
            for at, of in committed.items()
            if of is not None and task.restoring.is_behind(at, of.offset)
        ]
        if not behind:
            return False
        _log.warning(
            "task %s: the group has committed %s, beyond the records in its tables; reading them before it starts",
            task.id,
            ", ".join(f"offset {offset} of {partition}" for partition, offset in behind),
        )
        for partition in committed:
            del self._known[partition]
        self._table.restore_again(task)
        return True

    def _note_failure(self, waiting: Sequence[_Waiting], error: BrokerUnavailableError) -> None:
        now = self._clock.monotonic_ms()
        self._not_before_ms = now + _BACKOFF_MS
        waiting_tasks = [task for task, partitions in waiting if not self._known.keys() >= partitions]
        for task in waiting_tasks:
            self._check_timeout(task, error, now)
        if waiting_tasks and now >= self._next_warning_ms:
            self._next_warning_ms = now + _WARNING_MS
            names = ", ".join(str(task.id) for task in waiting_tasks)
            _log.log(
                level_of_waiting(),
                "tasks %s not started: fetching committed offsets failed (%s); retrying",
                names,
                error,
            )

    def _check_timeout(self, task: ActiveTask, error: BrokerUnavailableError, now: int) -> None:
        waited_ms = now - self._waiting_since_ms.setdefault(task.id, now)
        if waited_ms > self._task_timeout_ms:
            raise TimeoutExceededError(
                f"task {task.id} did not start: its committed offsets could not be read for {waited_ms} ms "
                f"(task.timeout.ms is {self._task_timeout_ms}): {error}",
                task_id=task.id,
            ) from error
