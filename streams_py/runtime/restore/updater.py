"""The state updater: replays changelogs into the stores of restoring and standby tasks (Kafka's StateUpdater).

One per stream thread, with a separate thread and restore consumer, so that processing never waits for a restoration. A
task object is used either by its stream thread or by this thread, never by both. It is here from :meth:`add` until
:meth:`remove`, :meth:`drain_restored` or :meth:`drain_failed` returns it. All of that happens under one lock, which is
*not* held while polling or while a listener is called. Records for a changelog that is no longer registered are
dropped.

Rules:

* an active task is restored when the position has passed the end offset read at its start; the *position* counts, since
  compaction and transaction markers leave gaps;
* while any active task restores, standby tasks wait;
* a changelog that is the source topic of a table is never read past the group's committed offset;
* a position in a deleted topic of the same name, or below the log start, makes the task corrupted: its store is emptied
  and restored from the beginning. A replay that retention overtakes continues at the new log start;
* an end offset below the position of the task's state is requested again. The task becomes corrupted only if further
  answers are below the position, too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, OffsetOutOfRangeError, StreamsError, TaskCorruptedError
from streams_py.member.tasks import Progress
from streams_py.ports import Admin, Clock, RawRecord, RecordConsumer, SortedPart
from streams_py.ports.batches import by_partition, only_topic_of
from streams_py.runtime.restore.backoff import Backoff
from streams_py.runtime.restore.changelog import ANOTHER_TOPIC, ChangelogInWork
from streams_py.runtime.restore.changelog_table import ChangelogTable, RequestSchedule
from streams_py.runtime.restore.ends import ask_ends, lost_state
from streams_py.runtime.restore.listener import ListenerCalls
from streams_py.runtime.restore.parallel_restore import ParallelRestore
from streams_py.runtime.restore.progress import RestoreMeter, RestoreProgress
from streams_py.runtime.restore.restoring_stores import RestoringStores
from streams_py.runtime.restore.settings import RestoreListeners, RestoreSettings
from streams_py.runtime.restore.standby_lags import StandbyLags
from streams_py.system.printable import text_of

_log = logging.getLogger(__name__)

_RECORDS_MAX = 500
"""Maximum number of records per poll. Below the 700 objects after which Python's garbage collector runs, which costs
0.4 us per object. And neither a removal nor a running task waits long for so few records."""
_POLLS_MAX = 8
"""Maximum number of consecutive full polls per round. The other work of a round costs as much as 50 records."""
_POSITIONS_MS = 50
"""Interval between reads of the consumer's position while records keep arriving, in ms. The end of a changelog may
follow records that the consumer does not deliver."""
_POLL_MAX_MS = 20  # longest wait for records; a task that is added meanwhile waits as long
_DISK_PAUSE_MS = 2
"""Pause until the disk has caught up, in ms. It releases the interpreter lock; no other thread waits for this one."""


class StateUpdater:
    """Restores active tasks and updates standby tasks. All public methods are thread-safe."""

    def __init__(
        self,
        name: str,
        consumer: Callable[[], RecordConsumer],
        admin: Admin,
        clock: Clock,
        settings: RestoreSettings,
        listeners: RestoreListeners,
        *,
        parallel: ParallelRestore | None = None,
    ) -> None:
        self.name = name
        self._make_consumer = consumer
        self._admin = admin
        self._clock = clock
        self._settings = settings
        self._backoff = Backoff(name, clock, settings.retry_backoff_ms)
        self._listener_calls = ListenerCalls(listeners.restoration, listeners.standby)
        self._meter = RestoreMeter(name, self.remaining_records)
        self._standby_lags = StandbyLags(settings.acceptable_lag, listeners.warm)
        self._parallel = parallel or ParallelRestore(lambda: None, clock)
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._table = ChangelogTable()
        self._fatal: BaseException | None = None
        self._stopping = self._paused = False
        self._thread: threading.Thread | None = None
        self._next_checkpoint_ms = clock.monotonic_ms() + settings.commit_interval_ms
        self._requests = RequestSchedule(clock.monotonic_ms(), settings.commit_interval_ms)
        self._next_positions_ms = 0
        self._only_topic: str | None = None
        """The only topic that is read; None with several topics. The consumer delivers no records of other topics."""
        self._settles = False
        """Whether a restored task is being flushed to disk."""

    # -- called by the stream thread -------------------------------------------------------------------------------

    def add(self, task: RestoringStores) -> None:
        """Take over a task: an active task to restore, or a standby task to keep current."""
        with self._lock:
            self._table.add(task)
            if not task.is_active:
                self._standby_lags.added(task.id, self._clock.monotonic_ms())
            elif not task.changelog_partitions:
                self._finish([task])
            self._start_thread()
            self._wake.notify_all()

    def remove(self, task_id: TaskId, *, promoted: bool = False) -> RestoringStores | None:
        """Return a task to the caller, even if it is restored or failed; None if it is not here.

        ``promoted``: whether a standby becomes the active task.
        """
        with self._lock:
            task = self._table.tasks.get(task_id)
            if task is None:
                return self._table.take_ended(task_id)
            self._forget(task, promoted=promoted)
            self._wake.notify_all()
            return task

    def restoring(self) -> set[TopicPartition]:
        """Return the changelogs of active tasks that are not completely read, without source topics."""
        with self._lock:
            return self._table.restoring()

    def drain_restored(self) -> list[RestoringStores]:
        """Return and remove the active tasks that are up to date."""
        if not self._table.restored:  # as :meth:`drain_failed`
            return []
        with self._lock:
            restored, self._table.restored = self._table.restored, []
            return restored

    def drain_failed(self) -> list[tuple[RestoringStores, Exception]]:
        """Return and remove tasks that could not be updated, with the errors. Raises if the updater itself failed."""
        # No lock: this is called every turn, and the lock may be held for a while.
        if not self._table.failed and self._fatal is None:
            return []
        with self._lock:
            failed, self._table.failed = self._table.failed, []
            if self._fatal is not None and not failed:
                raise StreamsError(f"{self.name} stopped working: {self._fatal}") from self._fatal
            return failed

    def tasks(self) -> list[RestoringStores]:
        """Return all tasks that are here, including restored and failed ones."""
        with self._lock:
            return self._table.all_tasks()

    def has_restoring_actives(self) -> bool:
        """Whether an active task is here. Takes no lock, because the stream thread calls it every turn."""
        return any(task.is_active for task in list(self._table.tasks.values())) or bool(self._table.restored)

    def remaining_records(self) -> Mapping[TaskId, int]:
        """Return the number of records that each task still has to replay, if known; 0 for standby tasks."""
        with self._lock:
            return self._table.remaining_records()

    def progress(self) -> RestoreProgress:
        """Return the progress of restoring active tasks. Thread-safe."""
        return self._meter.progress()

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics of the updater (:attr:`RestoreMeter.metrics`)."""
        return self._meter.metrics

    @property
    def standbys(self) -> Mapping[TaskId, Progress]:
        """Progress of standby and warm-up tasks, if known. A new mapping for each measurement."""
        return self._standby_lags.now

    def pause(self, paused: bool) -> None:
        """Pause or continue replaying. The tasks stay here."""
        with self._lock:
            self._paused = paused
            self._wake.notify_all()

    def close(self, *, timeout_ms: int) -> None:
        """Stop the thread, which closes the restore consumer. Tasks that are still here can be removed afterwards.

        A thread that does not stop in time is abandoned: one of its requests, or a listener, has not returned. When it
        returns, the thread finds no tasks and stops.
        """
        with self._lock:
            self._stopping = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)
            if self._thread.is_alive():
                _log.warning("%s did not stop within %d ms and is abandoned", self.name, timeout_ms)

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the updater's thread, for example in a restore listener."""
        return threading.current_thread() is self._thread

    def _start_thread(self) -> None:
        """Start the thread when there is work: a client without state needs no restore consumer."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()

    # -- the updater's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        consumer: RecordConsumer | None = None
        try:
            while self._wait_for_work():
                self._meter.spent("idle", self._clock.monotonic_ms())
                self._listener_calls.deliver()
                if self._has_work():
                    consumer = consumer or self._make_consumer()
                    self._round(consumer)
            self._listener_calls.deliver()
        except BaseException as error:
            if self._stopping:
                _log.debug("%s ended with %r after it was closed", self.name, error)
            else:
                _log.exception("%s failed; its tasks fail with it", self.name)
            with self._lock:
                self._fatal = error
                cause = error if isinstance(error, Exception) else StreamsError(text_of(error))
                for task in list(self._table.tasks.values()):
                    self._fail(task, cause)
        finally:
            self._parallel.close()
            if consumer is not None:
                consumer.close()

    def _has_work(self) -> bool:
        return bool(self._table.changelogs) and not self._paused

    def _wait_for_work(self) -> bool:
        """Block until there is work or a queued listener call. Return False if the thread must stop."""
        with self._lock:
            self._wake.wait_for(lambda: self._stopping or self._listener_calls or self._has_work())
            if not self._stopping:
                return True
            for copy in self._table.standby_changelogs():
                self._listener_calls.removed(copy, promoted=False)  # the task itself stays here
            for task in self._table.active_tasks():
                self.remove(task.id)
                self._table.restored.append(task)  # stays here for the caller that closes it
            return False

    def _round(self, consumer: RecordConsumer) -> None:
        try:
            self._request_ends()
            restored = self._assign(consumer)
            self._hand_over(restored)
            self._share()
            for _ in range(_POLLS_MAX):
                if not self._poll(consumer):
                    break
            activity = "active-restore" if self.has_restoring_actives() else "standby-update"
            self._meter.spent(activity, self._clock.monotonic_ms())
        except BrokerUnavailableError as error:
            self._backoff.wait(error)
            return
        except OffsetOutOfRangeError as error:
            with self._lock:
                changelogs = self._table.changelogs.values()
                behind = {c.partition for c in changelogs if c.partition in error.deleted and c.overtaken()}
            self._corrupted(error.partitions - behind)
            return
        self._backoff.reset()
        with self._lock:
            self._fail_damaged()
            restored = self._note_ends()
            self._standby_lags.measure_if_due(self._table.changelogs.values(), consumer, self._clock.monotonic_ms())
            self._checkpoint_if_due()
        self._hand_over(restored)
        self._meter.spent("checkpoint", self._clock.monotonic_ms())

    def _poll(self, consumer: RecordConsumer) -> bool:
        """Replay available records. Return True if there may be more.

        A separate call per poll, because a loop variable would keep the former records alive during the next poll, and
        :data:`_RECORDS_MAX` assumes that they are freed.
        """
        if any(task.awaits_disk for task in self.tasks()):
            self._clock.sleep_ms(_DISK_PAUSE_MS)
            return False
        wait_ms = _DISK_PAUSE_MS if self._settles else _POLL_MAX_MS
        records = consumer.poll(_RECORDS_MAX, min(self._settings.poll_ms, wait_ms))
        with self._lock:
            return self._apply(records, consumer)

    def _hand_over(self, restored: Sequence[RestoringStores]) -> None:
        """Make the queued listener calls, then release restored tasks that are flushed to disk."""
        flushed = [task for task in restored if self._is_flushed(task)]
        self._settles = len(flushed) < len(restored)
        self._listener_calls.deliver()
        with self._lock:
            self._finish(flushed)

    def _is_flushed(self, task: RestoringStores) -> bool:
        """Flush a task without holding the lock, because other threads must not wait for the disk."""
        try:
            return task.flush_restored()
        except Exception as error:
            with self._lock:
                if self._table.holds(task):
                    self._fail(task, error)
            return False

    def _request_ends(self) -> None:
        """Request topic ids of new changelogs, end offsets for active tasks, and limits of source changelogs.

        A changelog whose facts are unknown delays only its own task, an active task at most for ``task.timeout.ms``.
        """
        now = self._clock.monotonic_ms()
        with self._lock:
            if (request := self._requests.due(self._table.changelogs.values(), now)) is None:
                return
        ends, unknown = ask_ends(self._admin, self._settings.group, request)
        replaced: list[ChangelogInWork] = []
        with self._lock:
            for found in ends:
                changelog = self._table.changelogs.get(found.partition)
                if changelog is not None:
                    changelog.unknown_since_ms = None
                    wrong = changelog.take_end(found, now)
                    if wrong == ANOTHER_TOPIC and self._stops_at(changelog):
                        replaced.append(changelog)
                    elif wrong is not None:
                        self._corrupted({changelog.partition}, wrong)
            for partition, reason in unknown.items():
                changelog = self._table.changelogs.get(partition)
                if changelog is not None and changelog.is_unknown:
                    error = changelog.unanswered(reason, self._clock.monotonic_ms(), self._settings.task_timeout_ms)
                    if error is not None:
                        self._fail(changelog.task, error)
        for changelog in replaced:
            task = changelog.task
            lost = lost_state(self._admin, self._settings.group, task.id, changelog.partition, task.input_partitions)
            if lost is None:
                self._corrupted({changelog.partition}, ANOTHER_TOPIC)
                continue
            with self._lock:
                if self._table.holds(task):
                    self._fail(task, lost)

    def _stops_at(self, changelog: ChangelogInWork) -> bool:
        is_own = changelog.partition not in changelog.task.source_changelogs
        return self._settings.stops_at_recreated and changelog.task.is_active and is_own

    def _assign(self, consumer: RecordConsumer) -> list[RestoringStores]:
        """Assign the changelogs to read now: of restoring active tasks, or of standby tasks if no active task restores.

        Return the active tasks that are already complete.
        """
        with self._lock:
            for changelog in self._table.begin():
                self._listener_calls.started(changelog)
            positions = self._table.register()
            restored = self._note_ends()
        consumer.assign(positions)
        self._only_topic = only_topic_of(positions)
        return restored

    def _apply(self, records: Sequence[RawRecord], consumer: RecordConsumer) -> bool:
        """Apply records. Return True if there may be more and no changelog has ended, which needs a new assignment."""
        has_ended, away = False, None
        for partition, batch in by_partition(records, self._only_topic).items():
            changelog = self._table.changelogs.get(partition)
            if changelog is None or not changelog.registered:
                continue
            away = self._replay(changelog, *changelog.cut(batch), consumer) or away
            has_ended = has_ended or changelog.is_read
        if away is not None:
            raise away
        is_full, now_ms = len(records) >= _RECORDS_MAX, self._clock.monotonic_ms()
        if is_full and now_ms < self._next_positions_ms:
            return not has_ended
        self._next_positions_ms = now_ms + _POSITIONS_MS
        for changelog in self._table.changelogs.values():
            if changelog.registered and changelog.end is not None and not changelog.is_read:
                changelog.reach(consumer.position(changelog.partition))
        return is_full and not has_ended

    def _replay(
        self, changelog: ChangelogInWork, records: Sequence[RawRecord], end: int, of: RecordConsumer
    ) -> BrokerUnavailableError | None:
        """Apply records. Return the error if they must be read again later."""
        error = changelog.replay(records, end)
        if isinstance(error, BrokerUnavailableError):
            return error
        if error is not None:
            self._fail(changelog.task, error)
        elif records:
            lag = None if changelog.task.is_active else of.lag(changelog.partition)
            if changelog.task.is_active:
                self._meter.count(records, self._clock.monotonic_ms())
            self._listener_calls.replayed(changelog, records[-1].offset(), len(records), lag)
        return None

    def _share(self) -> None:
        """Assign work to another process, and add what it has read."""
        with self._lock:
            self._parallel.turn(self._table.changelogs.values())
            read = self._parallel.read(self._table.changelogs.values())
        for changelog, part in read:
            if self._is_flushed(changelog.task):
                with self._lock:
                    self._take_in(changelog, part)

    def _take_in(self, changelog: ChangelogInWork, part: SortedPart) -> None:
        if self._table.changelogs.get(changelog.partition) is not changelog or changelog.next_part is not part:
            return  # it was removed meanwhile
        try:
            is_there = changelog.take_in(part)
        except Exception as error:
            self._fail(changelog.task, error)
            return
        if is_there and part.last is not None:
            self._meter.count_read(part.records, part.bytes, self._clock.monotonic_ms())
            self._listener_calls.replayed(changelog, part.last, part.records, None)

    def _note_ends(self) -> list[RestoringStores]:
        """Return the active tasks that are complete. Their listener is called before the stream thread gets them."""
        complete = self._table.complete()
        for changelog in self._table.newly_ended(complete):
            self._listener_calls.ended(changelog)
        return complete

    def _finish(self, complete: Sequence[RestoringStores]) -> None:
        """Release complete active tasks, unless they were removed, or removed and added again, meanwhile."""
        for task in complete:
            if not self._table.has_ended(task):
                continue
            try:
                task.end_loading()  # on this thread: the stream thread has other tasks to run
                task.checkpoint(enforce=True)
            except Exception as error:
                self._fail(task, error)
                continue
            self._table.restored.append(task)  # first, so that readers without the lock always see the task
            self._forget(task)  # its listener was already called

    def _fail_damaged(self) -> None:
        """Fail the tasks of which another thread, such as a query of a standby task, has met damaged files."""
        for task in list(self._table.tasks.values()):
            if (damage := task.damage) is not None:
                self._fail(task, damage)

    def _fail(self, task: RestoringStores, error: Exception) -> None:
        self._table.failed.append((task, error))
        self._forget(task)

    def _forget(self, task: RestoringStores, *, promoted: bool = False) -> None:
        for changelog in self._table.forget(task):
            self._parallel.forget(changelog)
            self._listener_calls.removed(changelog, promoted=promoted)
        if not self._table.active_tasks():
            self._meter.ended(self._clock.monotonic_ms())

    def _corrupted(self, partitions: AbstractSet[TopicPartition], what: str = "does not reach back to") -> None:
        with self._lock:
            for task, changelogs in self._table.tasks_of(partitions):
                text = f"changelog {', '.join(map(str, sorted(changelogs)))} {what} the checkpoint of task {task.id}"
                self._fail(task, TaskCorruptedError(text, {task.id: set(changelogs)}))

    def _checkpoint_if_due(self) -> None:
        if (now := self._clock.monotonic_ms()) < self._next_checkpoint_ms:
            return
        self._next_checkpoint_ms = now + self._settings.commit_interval_ms
        for task in list(self._table.tasks.values()):
            try:
                task.checkpoint(enforce=False)
            except Exception as error:
                self._fail(task, error)
