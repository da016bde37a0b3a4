"""Events about the tasks of one stream thread.

The stream thread uses this only with ``assignment.events.level = tasks``. It costs two clock reads per batch of
records. The events are changes of tasks, the first and the last record that a task processes on a member, and a sample
every ``assignment.events.sample.interval.ms``. The last record on one member and the first record on the next one show
how long the task was not processed while it moved. Both events say until when the task had no input, because a task
without input is not paused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from streams_protocol.types import TaskId, TopicPartition
from streams_py.events.draft import BodyDraft, Emit
from streams_py.events.model import Sample, TaskEvent
from streams_py.events.observers import RestoreObserver, TaskObserver, Who, WorkingTask

_PROGRESS_INTERVAL_US = 10_000_000
_IDLE_INTERVAL_US = 10_000
"""Minimum interval between two checks whether a task has input."""


@dataclass(slots=True)
class _Stay:
    """A task on this thread since its assignment."""

    assigned_us: int
    has_processed: bool = False
    last_record_us: int = 0
    stayed_from_us: int | None = None  # time of the last record before a rebalance that did not move the task
    idle_us: int | None = None  # last time when the task had no input, if it has processed no record since
    idle_polled_us: int = 0  # duration of all polls until then
    records: int = 0
    busy_us: int = 0


class _Writer:
    """A writer of task events for the current member."""

    def __init__(self, emit: Emit, who: Who) -> None:
        self._emit = emit
        self._who = who

    def write(
        self,
        event: str,
        task: TaskId,
        *,
        is_active: bool = True,
        took_us: int | None = None,
        since_assigned_us: int | None = None,
        last_mono_us: int | None = None,
        idle_us: int | None = None,
        since_idle_us: int | None = None,
        waited_ms: int | None = None,
        records_total: int | None = None,
        records_done: int | None = None,
        records: int | None = None,
        stores: tuple[str, ...] | None = None,
        since_created_us: int | None = None,
        lag: int | None = None,
    ) -> None:
        generation, member = self._who()
        body = TaskEvent(
            task=task,
            role="active" if is_active else "standby",
            member=member,
            generation=generation,
            event=event,
            took_us=took_us,
            since_assigned_us=since_assigned_us,
            last_mono_us=last_mono_us,
            idle_us=idle_us,
            since_idle_us=since_idle_us,
            waited_ms=waited_ms,
            records_total=records_total,
            records_done=records_done,
            records=records,
            stores=stores,
            since_created_us=since_created_us,
            lag=lag,
        )
        self._emit(BodyDraft(body))


class TaskEvents(TaskObserver):
    """A writer of events about the tasks of one stream thread."""

    def __init__(
        self,
        emit: Emit,
        *,
        who: Who,
        monotonic_us: Callable[[], int],
        wall_ms: Callable[[], int],
        sample_interval_ms: int,
    ) -> None:
        self._emit = emit
        self._wall_ms = wall_ms
        self._write = _Writer(emit, who).write
        self._monotonic_us = monotonic_us
        self._sample_interval_us = sample_interval_ms * 1000
        self._next_sample_us = monotonic_us() + self._sample_interval_us
        self._stays: dict[TaskId, _Stay] = {}
        self._polled_us = 0  # duration of all polls
        self._waited_ms: int | None = None  # age of the next record, while a task processes its first one

    def assigned(self, task: TaskId, *, is_active: bool) -> None:
        """Write that a task was assigned to this thread."""
        self._stays[task] = _Stay(self._monotonic_us())
        self.changed("assigned", task, is_active=is_active)

    def changed(self, event: str, task: TaskId, *, is_active: bool, began_us: int | None = None) -> None:
        """Write a transition; see :meth:`TaskObserver.changed`."""
        took_us = None if began_us is None else self._monotonic_us() - began_us
        self._write(event, task, is_active=is_active, took_us=took_us)

    def recycled(self, task: TaskId, *, is_active: bool) -> None:
        """Write that a task has changed its role and keeps its stores."""
        if is_active:
            self._stays[task] = _Stay(self._monotonic_us())
            self.changed("promoted", task, is_active=True)
        else:
            self.ended("demoted", task, is_active=False)

    def ended(self, event: str, task: TaskId, *, is_active: bool, began_us: int | None = None) -> None:
        """Write a transition that ends processing (such as ``suspended``), and the last record before it."""
        self.changed(event, task, is_active=is_active, began_us=began_us)
        stay = self._stays.get(task)
        if stay is not None and stay.has_processed:
            stay.has_processed = False
            idle_us = None if stay.idle_us is None else stay.idle_us - stay.last_record_us
            self._write("last_record", task, is_active=True, last_mono_us=stay.last_record_us, idle_us=idle_us)

    def now_us(self) -> int:
        """Return the time of the clock for durations, in us."""
        return self._monotonic_us()

    def polled(self, began_us: int) -> None:
        """Add the duration of a poll. It returns when a record arrives, so a task without input is not paused in it."""
        self._polled_us += self._monotonic_us() - began_us

    def processing(self, task: WorkingTask) -> int:
        """Note the age of the task's next record, if it is the first one, and return the start time."""
        began_us = self._monotonic_us()
        stay = self._stays.get(task.id)
        self._waited_ms = None
        if stay is None or not stay.has_processed or stay.stayed_from_us is not None:
            oldest_ms = task.oldest_waiting_ms()
            if oldest_ms is not None and oldest_ms >= 0:
                self._waited_ms = max(0, self._wall_ms() - oldest_ms)
        return began_us

    def processed(self, task: WorkingTask, count: int, began_us: int) -> None:
        """Add the duration, and write the task's first record. Without records, note that the task has no input."""
        stay = self._stays.get(task.id)
        if count:
            now_us = self._monotonic_us()
            if stay is None:
                stay = self._stays[task.id] = _Stay(began_us)
            stay.records += count
            stay.busy_us += now_us - began_us
            stay.last_record_us = now_us
            if not stay.has_processed or stay.stayed_from_us is not None:
                self._write(
                    "first_record",
                    task.id,
                    is_active=True,
                    since_assigned_us=None if stay.has_processed else began_us - stay.assigned_us,
                    last_mono_us=stay.stayed_from_us if stay.has_processed else None,
                    since_idle_us=self._since_idle_us(stay, began_us),
                    waited_ms=self._waited_ms,
                )
            stay.has_processed = True
            stay.stayed_from_us = stay.idle_us = None
        elif stay is not None:
            self._note_idle(stay, task)

    def _note_idle(self, stay: _Stay, task: WorkingTask) -> None:
        now_us = self._monotonic_us()
        if (stay.idle_us is None or now_us - stay.idle_us >= _IDLE_INTERVAL_US) and not task.has_input():
            stay.idle_us, stay.idle_polled_us = now_us, self._polled_us

    def _since_idle_us(self, stay: _Stay, now_us: int) -> int | None:
        """Return the time since the task had no input, without the polls that waited for records."""
        if stay.idle_us is None:
            return None
        return max(0, now_us - stay.idle_us - (self._polled_us - stay.idle_polled_us))

    def sample_if_due(
        self, tasks: Collection[WorkingTask], lag_of: Callable[[TopicPartition], int | None], commit_age_ms: int
    ) -> None:
        """Write a sample if the interval has elapsed. ``lag_of`` returns the cached lag of a partition, or None."""
        if self._monotonic_us() < self._next_sample_us:
            return
        self._next_sample_us = self._monotonic_us() + self._sample_interval_us
        tasks = sorted(tasks, key=lambda task: task.id)
        if not tasks:
            return
        stays = [self._stays.get(task.id) for task in tasks]
        self._emit(
            BodyDraft(
                Sample(
                    tasks=[task.id for task in tasks],
                    input_lag=[_sum_known(lag_of(partition) for partition in task.input_partitions) for task in tasks],
                    records=[None if stay is None else stay.records for stay in stays],
                    busy_us=[None if stay is None else stay.busy_us for stay in stays],
                    commit_age_ms=[commit_age_ms] * len(tasks),
                )
            )
        )
        for stay in stays:
            if stay is not None:
                stay.records = stay.busy_us = 0

    def rebalanced(self, tasks: Collection[TaskId]) -> None:
        """Note all tasks of the thread after a rebalance."""
        for task in self._stays.keys() - set(tasks):
            del self._stays[task]
        for stay in self._stays.values():
            if stay.has_processed:
                stay.stayed_from_us = stay.last_record_us


def _sum_known(lags: Iterable[int | None]) -> int | None:
    total = 0
    for lag in lags:
        if lag is None:
            return None
        total += lag
    return total


@dataclass(slots=True)
class _Restoring:
    """A task that is being restored from several changelogs: ``begun`` have started, ``open`` have not finished yet."""

    began_us: int
    progress_us: int
    begun: set[TopicPartition] = field(default_factory=set)
    open: set[TopicPartition] = field(default_factory=set)
    records_total: int = 0
    records: int = 0


class RestoreEvents(RestoreObserver):
    """A writer of restore events. It is notified per changelog, and writes one event per task.

    ``subtopology_of`` maps changelog topics to numbers of sub-topologies.
    """

    def __init__(
        self, emit: Emit, *, who: Who, monotonic_us: Callable[[], int], subtopology_of: Mapping[str, int]
    ) -> None:
        self._write = _Writer(emit, who).write
        self._monotonic_us = monotonic_us
        self._subtopology_of = subtopology_of
        self._restoring: dict[TaskId, _Restoring] = {}

    def started(self, changelog: TopicPartition, store: str, start: int, end: int) -> None:
        """Note that the restore of a changelog starts. The event is written only for the task's first changelog.

        If a changelog starts a second time, the task was taken away meanwhile. If that happens before the first record,
        nothing else shows it.
        """
        task = self._task(changelog)
        if task is None:
            return
        now_us = self._monotonic_us()
        restoring = self._restoring.get(task)
        if restoring is None or changelog in restoring.begun:
            restoring = self._restoring[task] = _Restoring(now_us, now_us)
            self._write("restore_started", task, records_total=max(0, end - start), stores=(store,))
        restoring.begun.add(changelog)
        restoring.open.add(changelog)
        restoring.records_total += max(0, end - start)

    def advanced(self, changelog: TopicPartition, count: int) -> None:
        """Note that ``count`` records were restored. Writes an event at most every 10 s."""
        task = self._task(changelog)
        restoring = None if task is None else self._restoring.get(task)
        if task is None or restoring is None:
            return
        restoring.records += count
        now_us = self._monotonic_us()
        if now_us - restoring.progress_us >= _PROGRESS_INTERVAL_US:
            restoring.progress_us = now_us
            self._write(
                "restore_progress",
                task,
                records_done=restoring.records,
                records_total=max(restoring.records_total, restoring.records),
            )

    def ended(self, changelog: TopicPartition) -> None:
        """Note that a changelog is restored. After the task's last changelog, writes that the task is restored."""
        task = self._task(changelog)
        restoring = None if task is None else self._restoring.get(task)
        if task is None or restoring is None:
            return
        restoring.open.discard(changelog)
        if not restoring.open:
            del self._restoring[task]
            self._write("restored", task, records=restoring.records, took_us=self._monotonic_us() - restoring.began_us)

    def suspended(self, changelog: TopicPartition) -> None:
        """Note that the task was taken away before the end of the restore."""
        task = self._task(changelog)
        if task is not None:
            self._restoring.pop(task, None)

    def warm(self, task: TaskId, lag: int, since_ms: int) -> None:
        """Write that the lag of a standby is within ``acceptable.recovery.lag``."""
        self._write("warm", task, is_active=False, since_created_us=1000 * since_ms, lag=lag)

    def _task(self, changelog: TopicPartition) -> TaskId | None:
        sub = self._subtopology_of.get(changelog.topic)
        return None if sub is None else TaskId(sub, changelog.partition)
