"""All tasks of one stream thread, and their moves between the stages below (Kafka's ``TaskManager``).

    created -> pending -> state updater -> restored -> running -> leaving -> closed
                          (standbys stay in the updater)

* *pending*: created, but without open stores, for example because another thread still locks the directory;
* *updater*: a restoring active task or a standby task; only the updater's thread uses it (see restore/updater.py);
* *restored*: an active task that only waits for its committed offsets;
* *running*: an active task that this thread processes; a *suspended* active task waits here for the next assignment;
* *leaving*: removed, while its files are being closed in the background. It no longer counts as a task of this thread,
  but its directory is locked. If it is assigned again, the new task waits for the directory.

All methods run on the stream thread, unless they are documented as thread-safe.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import LockError, TaskCorruptedError, TaskMigratedError
from streams_py.events.observers import UNOBSERVED, TaskObserver
from streams_py.ports import Clock, OffsetAndMetadata, RecordProducer
from streams_py.runtime.restore.updater import StateUpdater
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.damage import DamagedFiles
from streams_py.runtime.tasks.deferred_errors import raise_worst
from streams_py.runtime.tasks.task import Partitions, Task, TaskPhase
from streams_py.runtime.tasks.task_factory import TaskFactory

_log = logging.getLogger(__name__)

_LOCK_BACKOFF_MS, _LOCK_BACKOFF_MAX_MS = 50, 1_000
"""First and maximum pause of a task that waits for its directory, in ms. Usually another thread is about to release it,
or no snapshot is available."""
_OPENING_MS = 10
"""Time budget per turn for opening stores while other tasks run and wait, in ms. The stores of one task take 10 ms or
more."""


@dataclass(slots=True)
class _Pending:
    task: Task
    not_before_ms: int = 0
    backoff_ms: int = _LOCK_BACKOFF_MS


class TaskTable:
    """The tasks of one stream thread."""

    def __init__(
        self, factory: TaskFactory, updater: StateUpdater, clock: Clock, *, events: TaskObserver = UNOBSERVED
    ) -> None:
        self._factory = factory
        self._updater = updater
        self._clock = clock
        self._events = events
        self._lock = threading.RLock()
        self._pending: dict[TaskId, _Pending] = {}
        self._in_updater: dict[TaskId, Task] = {}
        self._restored: dict[TaskId, ActiveTask] = {}
        self._active: dict[TaskId, ActiveTask] = {}
        self._growing: dict[TaskId, Partitions] = {}
        self._leaving: dict[Task, int] = {}  # task -> start of the removal, in us
        self.damage = DamagedFiles()
        self.created_tasks = self.closed_tasks = 0
        self.shown: tuple[Task, ...] = ()
        """All tasks, for threads that read stores without a lock. Replaced by a new tuple at every change.

        The locks of this table and of the updater may be held while a store is closed or a batch is restored.
        """

    # -- views ----------------------------------------

    def all(self) -> list[Task]:
        """Return all tasks in all stages. Thread-safe."""
        with self._lock:
            return [
                *self._active.values(),
                *self._restored.values(),
                *(entry.task for entry in self._pending.values()),
                *self._in_updater.values(),
            ]

    def running(self) -> list[ActiveTask]:
        """Return the active tasks that process records, in task order."""
        return [task for task in self._active.values() if task.state is TaskPhase.RUNNING]

    def holding(self) -> set[TaskId]:
        """Return the tasks whose directories are in use here."""
        return {task.id for task in (*self._leaving, *self.all())}

    def all_ready(self) -> bool:
        """Whether no task is pending and no active task is restoring."""
        waiting = self._pending or self._restored or self._growing
        return not waiting and not self._updater.has_restoring_actives()

    # -- a new assignment ----------------------------------------

    def assign(self, active: Mapping[TaskId, Partitions], standby: Mapping[TaskId, Partitions]) -> None:
        """Make these the tasks of this thread: keep, recycle, close and create tasks.

        Raises the most serious error. A fatal error or a TaskMigratedError is raised before new tasks are created. A
        TaskCorruptedError, which names all corrupted tasks, is raised once the new tasks exist: the thread continues.
        """
        wanted_active, wanted_standby = dict(active), dict(standby)
        errors: list[Exception] = []
        with self._lock:
            for task in self.all():
                try:
                    self._reconcile(task, wanted_active, wanted_standby)
                except Exception as error:
                    errors.append(error)
                    for given, wanted in ((active, wanted_active), (standby, wanted_standby)):
                        wanted.pop(task.id, None)
                        if task.id in given and task.state is TaskPhase.CLOSED:
                            wanted[task.id] = given[task.id]  # create a new one
            self._show()
            if not all(isinstance(error, TaskCorruptedError) for error in errors):
                raise_worst(errors)
            for task_id, partitions in sorted(wanted_active.items()):
                self._pending[task_id] = _Pending(self._factory.active(task_id, partitions))
                self._events.assigned(task_id, is_active=True)
            for task_id, partitions in sorted(wanted_standby.items()):
                created = self._factory.standby(task_id, partitions)
                if created is not None:
                    self._pending[task_id] = _Pending(created)
                    self._events.assigned(task_id, is_active=False)
            self._show()
            self._events.rebalanced([task.id for task in self.shown])
            raise_worst(errors)

    def _show(self) -> None:
        before, self.shown = self.shown, tuple(self.all())
        stay = len({*before, *self.shown})
        self.created_tasks += stay - len(before)
        self.closed_tasks += stay - len(self.shown)

    def _reconcile(
        self, task: Task, wanted_active: dict[TaskId, Partitions], wanted_standby: dict[TaskId, Partitions]
    ) -> None:
        """Keep, recycle or close an existing task, and remove it from the wanted tasks if it satisfies one."""
        same, other = (wanted_active, wanted_standby) if task.is_active else (wanted_standby, wanted_active)
        partitions = same.pop(task.id, None)
        if partitions is not None:
            self._keep(task, partitions)
            return
        partitions = other.pop(task.id, None)
        if partitions is not None:
            self._recycle(task, partitions)
        elif _is_uncommitted(task):
            self._take_out(task)
            self._close_dirty(task)
            raise _migrated(task)
        else:
            self._close(task)

    def _keep(self, task: Task, partitions: Partitions) -> None:
        suspended = task.id in self._active and task.state is TaskPhase.SUSPENDED
        self._growing.pop(task.id, None)
        if task.id in self._active and task.state is TaskPhase.RUNNING:
            added = partitions - task.input_partitions
            if added:  # it continues with the other partitions until the start positions of these are known
                self._growing[task.id] = added
                partitions -= added
        if task.input_partitions != partitions:
            in_updater = task.id in self._in_updater
            if in_updater:
                self._updater.remove(task.id)
            task.update_input_partitions(partitions)
            if in_updater:
                self._give_to_updater(task)
        if suspended and isinstance(task, ActiveTask):
            del self._active[task.id]
            task.resume()
            self._give_to_updater(task)
            self._events.assigned(task.id, is_active=True)

    def _give_to_updater(self, task: Task) -> None:
        self._in_updater[task.id] = task
        self._updater.add(task.restoring)

    def _take_out(self, task: Task, *, promoted: bool = False) -> None:
        self._pending.pop(task.id, None)
        self._restored.pop(task.id, None)
        self._active.pop(task.id, None)
        self._growing.pop(task.id, None)
        if self._in_updater.pop(task.id, None) is not None:
            self._updater.remove(task.id, promoted=promoted)

    def _recycle(self, task: Task, partitions: Partitions) -> None:
        self._take_out(task, promoted=not task.is_active)
        if task.state is TaskPhase.CREATED and not task.stores.is_open:
            task.suspend()
            task.close_clean()
            new: Task | None
            new = (
                self._factory.standby(task.id, partitions)
                if task.is_active
                else self._factory.active(task.id, partitions)
            )
        else:
            try:
                self._suspend_for_recycling(task)
                new = self._factory.recycled(task, partitions)
            except Exception:
                self._close_dirty(task)
                raise
        if new is not None:
            self._pending[new.id] = _Pending(new)
            self._events.recycled(new.id, is_active=new.is_active)

    def _suspend_for_recycling(self, task: Task) -> None:
        """Suspend a task. TaskMigratedError if it is uncommitted, so that its stores cannot be reused."""
        if _is_uncommitted(task):
            raise _migrated(task)
        task.suspend()

    def _close(self, task: Task) -> None:
        """Remove a task. Closing flushes its files; :meth:`end_closing` completes that later."""
        self._take_out(task)
        began_us = self._events.now_us()
        with self._closing(task):
            task.suspend()
            task.stores.checkpoint(enforce=True)
        self._leaving[task] = began_us  # an earlier task of this id may still be leaving, too
        self._end_closing(task, began_us, wait=False)

    def _end_closing(self, task: Task, began_us: int, *, wait: bool) -> None:
        with self._closing(task):
            if not (task.close_files_aside() or wait):
                return
            task.close_clean()
        del self._leaving[task]
        self._events.ended("closed", task.id, is_active=task.is_active, began_us=began_us)

    @contextmanager
    def _closing(self, task: Task) -> Iterator[None]:
        try:
            yield
        except Exception:
            _log.exception("closing task %s failed; its latest local state is lost and will be restored", task.id)
            self._leaving.pop(task, None)
            task.close_dirty()
            raise

    def end_closing(self) -> None:
        """Complete the removal of tasks whose files are closed. Does not block. Raises the most serious error."""
        if self._leaving:
            raise_worst(self._end_all_closing(wait=False))

    def _end_all_closing(self, *, wait: bool) -> list[Exception]:
        errors: list[Exception] = []
        for task, began_us in list(self._leaving.items()):
            try:
                self._end_closing(task, began_us, wait=wait)
            except Exception as error:
                errors.append(error)
        return errors

    # -- from pending to running ----------------------------------------

    def initialize_pending(self) -> None:
        """Open the stores of pending tasks whose directory is free, and pass the tasks to the updater.

        While other tasks run, it opens many stores over several calls.
        """
        now = self._clock.monotonic_ms()
        others_wait, leaving = bool(self.running()), {task.id for task in self._leaving}
        for task_id, entry in sorted(self._pending.items()):
            if entry.not_before_ms > now or task_id in leaving:
                continue
            if others_wait and self._clock.monotonic_ms() - now >= _OPENING_MS:
                return
            began_us = self._events.now_us()
            try:
                entry.task.initialize()
            except LockError as error:
                level = logging.INFO if entry.backoff_ms == _LOCK_BACKOFF_MS else logging.DEBUG
                _log.log(level, "task %s waits for its directory: %s", task_id, error)
                entry.not_before_ms = now + round(entry.backoff_ms * random.uniform(0.5, 1.5))
                entry.backoff_ms = min(2 * entry.backoff_ms, _LOCK_BACKOFF_MAX_MS)
                continue
            with self._lock:
                del self._pending[task_id]
                self._give_to_updater(entry.task)
            self._events.changed("created", task_id, is_active=entry.task.is_active, began_us=began_us)

    def restored(self) -> list[ActiveTask]:
        """Return the active tasks with complete stores, in task order. They wait for :meth:`start`."""
        with self._lock:
            for stores in self._updater.drain_restored():
                task = self._in_updater.pop(stores.id)
                if isinstance(task, ActiveTask):
                    self._restored[task.id] = task
            return [task for _, task in sorted(self._restored.items())]

    def restore_again(self, task: ActiveTask) -> None:
        """Return a restored active task to the updater, because it must read more records first."""
        with self._lock:
            del self._restored[task.id]
            self._give_to_updater(task)

    def raise_failed(self) -> None:
        """Raise errors of the updater: TaskCorruptedError for all corrupted tasks, or the first other error.

        The failed tasks stay here, suspended, so that they can be closed or revived.
        """
        errors: list[Exception] = []
        for stores, error in self._updater.drain_failed():
            with self._lock:
                task = self._in_updater.pop(stores.id)
                self._pending[task.id] = _Pending(task, not_before_ms=1 << 62)
            errors.append(self.damage.in_stores([task], error) or error)
        raise_worst(errors)

    def growing(self) -> list[tuple[ActiveTask, Partitions]]:
        """Return running tasks and partitions that were added to them, in task order. They wait for :meth:`grow`.

        A partition is added when a new topic matches the tasks' pattern.
        """
        return [(self._active[task_id], added) for task_id, added in sorted(self._growing.items())]

    def grow(self, task: ActiveTask) -> None:
        """Add the new partitions to a running task."""
        task.update_input_partitions(task.input_partitions | self._growing.pop(task.id))

    def start(self, task: ActiveTask, committed: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Bind and run a restored active task. If that fails, it stays in this table, so that it is closed later."""
        began_us = self._events.now_us()
        task.complete_restoration(committed)
        with self._lock:
            del self._restored[task.id]
            self._hold(task)
        self._events.changed("running", task.id, is_active=True, began_us=began_us)

    def _hold(self, task: ActiveTask) -> None:
        """Add an active task. The tasks stay sorted, because the loop lists them several times per turn."""
        self._active[task.id] = task
        self._active = dict(sorted(self._active.items()))

    # -- revocation, loss, corruption ----------------------------------------

    def revoked(self, tasks: Collection[TaskId]) -> list[ActiveTask]:
        """Return the running tasks among these, to be committed and suspended. Restoring ones become suspended."""
        with self._lock:
            for held in [*self._in_updater.values(), *self._restored.values()]:
                if isinstance(held, ActiveTask) and held.id in tasks:
                    self._take_out(held)
                    held.suspend()
                    self._hold(held)
        return [task for task in self.running() if task.id in tasks]

    def actives(self, tasks: Collection[TaskId] | None = None) -> list[ActiveTask]:
        """Return all active tasks, or these. Thread-safe."""
        return [task for task in self.all() if isinstance(task, ActiveTask) and (tasks is None or task.id in tasks)]

    def check_sends(self, producer: RecordProducer) -> bool:
        """Call the production exception handler for rejected records. Return True if it had other records written.

        All tasks share the producer, so any task can do it. Every task is called, because a processor of one task may
        have caught the error that takes all of them back.
        """
        # Usually the running tasks are enough, and listing them takes no lock.
        if tasks := self.running() or self.actives():
            return True in [task.check_sends() for task in tasks]
        producer.check()
        return False

    def give_up(self, tasks: Collection[ActiveTask]) -> None:
        """Close these tasks without committing. If they are assigned again, new tasks are created."""
        with self._lock:
            for task in tasks:
                self._take_out(task)
                self._close_dirty(task)
                self._events.ended("lost", task.id, is_active=task.is_active)
            self._show()

    def _close_dirty(self, task: Task) -> None:
        try:
            task.close_dirty()
        except Exception:
            _log.exception("closing task %s failed", task.id)

    def revive(self, corrupted: Mapping[TaskId, Collection[TopicPartition]]) -> None:
        """Start corrupted tasks over without a commit. Their corrupted changelogs are restored from the beginning."""
        with self._lock:
            for task in self.all():
                if task.id in corrupted:
                    partitions = task.input_partitions | self._growing.get(task.id, frozenset())
                    self._take_out(task)
                    self._pending[task.id] = _Pending(task)
                    task.revive(corrupted=frozenset(corrupted[task.id]))
                    task.update_input_partitions(partitions)
                    self._events.ended("corrupted", task.id, is_active=task.is_active)

    def close_all(self, *, clean: bool) -> list[Exception]:
        """Close all tasks and wait for it. With ``clean``, running tasks must be committed. Return the errors."""
        errors: list[Exception] = []
        with self._lock:
            for task in self.all():
                if clean:
                    try:
                        self._close(task)
                    except Exception as error:
                        errors.append(error)
                else:
                    self._take_out(task)
                    self._close_dirty(task)
            errors += self._end_all_closing(wait=True)
            self._show()
        return errors


def _is_uncommitted(task: Task) -> bool:
    """Whether a running task has uncommitted records, because it was not revoked (``validateClean`` in Java)."""
    return isinstance(task, ActiveTask) and task.state is TaskPhase.RUNNING and task.commit_needed


def _migrated(task: Task) -> TaskMigratedError:
    return TaskMigratedError(f"task {task.id} still had uncommitted records when it was taken away")
