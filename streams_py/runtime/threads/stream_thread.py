"""The loop of one stream thread: poll, process, punctuate, commit - and give way to rebalances (Kafka's StreamThread).

A stream thread owns its tasks, a record consumer, a producer and a membership of the group. Three more threads work for
it: the membership's polling thread, the state updater, and what the clients run inside. They never touch its running
tasks; they post to its inbox or hand finished tasks over.

Running tasks keep running while others restore and while the group rebalances. Nothing is committed during a rebalance,
except what is being revoked.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import OffsetOutOfRangeError, TaskCorruptedError, TaskMigratedError
from streams_py.member.assignment import Tasks
from streams_py.ports import Clock, OffsetAndMetadata, RawRecord
from streams_py.runtime.latency import Latency
from streams_py.runtime.states import ThreadState, thread_may_go
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.deferred_errors import DeferredErrors
from streams_py.runtime.threads.batch_size import BatchSize, Slice
from streams_py.runtime.threads.committing import Committer
from streams_py.runtime.threads.inbox import Inbox
from streams_py.runtime.threads.revocation import Revocation
from streams_py.runtime.threads.startup import TaskStarter
from streams_py.runtime.threads.summary import Summary
from streams_py.runtime.threads.task_table import TaskTable
from streams_py.runtime.threads.thread_parts import LoopSettings, ThreadParts

__all__ = ["StreamThread"]

_log = logging.getLogger(__name__)

_BUSY_POLL_MS = 10
"""How long to wait for records while something else is expected to happen any moment."""
_REBALANCE_GRACE_MS = 10_000
"""How long a shutdown waits for a rebalance to end: offsets cannot be committed meanwhile."""
_LAST_COMMIT_TIMEOUT_MS = 10_000
_UPDATER_CLOSE_MS = 5_000
_COMMIT_BACKOFF_MS = 100
"""Pause after a commit that was not taken: each try flushes the caches and the producer."""


class StreamThread:
    """One stream thread. ``open_parts`` is called on it first; ``on_state`` hears every change of state, ``on_error``
    is asked on this thread when it fails, ``on_end`` is called last."""

    def __init__(
        self,
        name: str,
        index: int,
        *,
        clock: Clock,
        settings: LoopSettings,
        open_parts: Callable[[StreamThread], ThreadParts],
        on_state: Callable[[StreamThread, ThreadState], None],
        on_error: Callable[[StreamThread, Exception], None],
        on_end: Callable[[StreamThread], None],
    ) -> None:
        self.name = name
        self.index = index
        self.inbox = Inbox()
        self.failed = False
        self.replace = False
        """Set by the client when a new thread is to take this one's place."""
        self._clock = clock
        self._settings = settings
        self._open_parts = open_parts
        self._on_state, self._on_error, self._on_end = on_state, on_error, on_end
        self._state = ThreadState.CREATED
        self._state_lock = threading.Lock()
        self._parts: ThreadParts
        self._committer: Committer
        self._starter: TaskStarter
        self._revocation: Revocation
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._pace = BatchSize(settings.max_poll_interval_ms)
        self._slice = Slice()
        self._summary = Summary(name, interval_ms=settings.log_summary_interval_ms, now_ms=clock.monotonic_ms())
        self._shutdown = threading.Event()
        self._shutdown_deadline_ms: int | None = None
        self._leave_group = False
        self._paused = False
        self._stop_application = False
        self._last_commit_ms = 0
        self._next_commit_try_ms = 0
        self._last_purge_ms = 0
        self._deferred = DeferredErrors()
        self._only_topic: str | None = None
        """The topic that is read, if it is only one."""
        self.last_error: Exception | None = None
        """The last error that stopped nothing, such as a failing task assignor."""
        self.reported_errors = 0
        self.processed_records = 0
        self.started_ms = clock.now_ms()
        self.commit_latency = Latency()

    # -- called from other threads -------------------------------------------------------------------------

    @property
    def state(self) -> ThreadState:
        """State of the thread."""
        return self._state

    @property
    def table(self) -> TaskTable | None:
        """Its tasks; None before it has started."""
        return self._parts.table if hasattr(self, "_parts") else None

    @property
    def parts(self) -> ThreadParts | None:
        """What it works with; None before it has started."""
        return getattr(self, "_parts", None)

    def start(self) -> None:
        """Start the loop; does nothing when it was shut down before."""
        if self._go(ThreadState.STARTING) is ThreadState.CREATED:
            self._thread.start()

    def shut_down(self, *, leave_group: bool = False, timeout_ms: int | None = None) -> None:
        """Ask it to end; returns at once. ``timeout_ms`` bounds how long it may wait for the broker."""
        if timeout_ms is not None:
            self._shutdown_deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._leave_group = self._leave_group or leave_group
        self._shutdown.set()
        if self._go(ThreadState.PENDING_SHUTDOWN) is ThreadState.CREATED:
            self._go(ThreadState.DEAD)  # it never ran, and never will

    def wait(self, timeout_s: float | None) -> bool:
        """Until it has ended; False when ``timeout_s`` is over first."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def ident(self) -> int | None:
        """Python's number of the thread; None before it was started."""
        return self._thread.ident

    @property
    def is_current(self) -> bool:
        """True when the caller runs on this thread, or on the state updater's that works for it: waiting for this
        thread's end there would never end."""
        if threading.current_thread() is self._thread:
            return True
        return hasattr(self, "_parts") and self._parts.updater.is_current

    def request_application_shutdown(self) -> None:
        """Carry "shut down the application" to the leader with the next subscription."""
        self._stop_application = True
        if hasattr(self, "_parts"):
            self._parts.rebalance.request_application_shutdown()

    def report(self, error: Exception) -> None:
        """Note an error that stops nothing."""
        self.reported_errors += 1
        self.last_error = error

    def pause(self, paused: bool) -> None:
        """Stop (or go on) processing, punctuating and restoring; membership stays alive."""
        self._paused = paused
        if hasattr(self, "_parts"):
            self._parts.updater.pause(paused)

    # -- the loop ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        clean = False
        try:
            if not self._shutdown.is_set():
                self._open()
            while not self._shutdown.is_set():
                self._iterate()
            clean = self._await_rebalance()
        except BaseException as error:
            self._fail(error)
        self._close(clean=clean)

    def _open(self) -> None:
        parts = self._parts = self._open_parts(self)
        task_timeout_ms = self._settings.task_timeout_ms
        self._committer = Committer(
            parts.producer,
            parts.membership,
            self._clock,
            task_timeout_ms=task_timeout_ms,
            gives_up=self._out_of_time,
            check_sends=self._check_sends,
        )
        self._starter = TaskStarter(
            parts.table, parts.membership, parts.start_positions, self._clock, task_timeout_ms=task_timeout_ms
        )
        self._revocation = Revocation(self.name, parts.table, self._committer, parts.events, self._deferred)
        parts.updater.pause(self._paused)
        if self._stop_application:
            parts.rebalance.request_application_shutdown()
        self._last_commit_ms = self._last_purge_ms = self._clock.monotonic_ms()
        parts.membership.start()

    def _iterate(self) -> None:
        """One turn; corruption and migration are dealt with here, other errors end the thread."""
        try:
            try:
                self._run_once()
            except TaskCorruptedError as error:
                self._revive(error)
        except TaskMigratedError as error:
            _log.warning("%s: tasks migrated to another member: %s; joining again", self.name, error)
            self._lose_everything()
            self._parts.membership.rejoin_as_new_member()

    def _run_once(self) -> None:
        parts = self._parts
        self.inbox.serve()
        self._deferred.raise_worst()
        parts.membership.check()
        parts.rebalance.rejoin_if_due(parts.membership)
        records = self._poll()
        parts.producer.poll()  # reports that nobody fetches fill the producer's queue
        if records:
            self._distribute(records)
        if self._shutdown.is_set() or self._state is ThreadState.PARTITIONS_REVOKED:
            return
        polled_ms = self._clock.monotonic_ms()
        while True:
            self._advance_tasks()
            processed, punctuated = (0, 0) if self._paused else self._work()
            committed = self._commit_if_due()
            now_ms = self._clock.monotonic_ms()
            since_poll_ms = now_ms - polled_ms
            self._summary.add(processed=processed, punctuated=punctuated, committed=committed)
            self._summary.log_if_due(now_ms)
            if not self._pace.goes_on(
                processed=processed, punctuated=punctuated, committed=committed, since_poll_ms=since_poll_ms
            ):
                break
            if self.inbox.serve() or self._shutdown.is_set():
                break

    def _poll(self) -> list[RawRecord]:
        parts = self._parts
        if self._shutdown.is_set():
            timeout_ms = 0
        elif parts.rebalance.in_progress or not parts.table.all_ready():
            timeout_ms = min(_BUSY_POLL_MS, self._settings.poll_ms)
        else:
            timeout_ms = self._settings.poll_ms
        try:
            return parts.consumer.poll(self._settings.max_poll_records, timeout_ms)
        except OffsetOutOfRangeError as error:
            for partition in error.partitions:
                position = parts.start_positions.after_reset(partition)
                _log.warning("offset of %s is gone from the broker; starting at %s", partition, _words(position))
                parts.consumer.seek(partition, position)
            return []

    def _distribute(self, records: Sequence[RawRecord]) -> None:
        """Give each task its records; a run of records of one partition is handed over at once."""
        owners = {partition: task for task in self._parts.table.running() for partition in task.input_partitions}
        full: list[TopicPartition] = []
        kind = type(records[0])
        # The consumer delivers what it reads and nothing else, so with one topic nobody has to look at each record's.
        only = self._only_topic
        by_topic = groupby(records, kind.topic) if only is None else ((only, records),)
        for topic, of_topic in by_topic:
            for number, run in groupby(of_topic, kind.partition):
                partition = TopicPartition(topic, number)
                task = owners.get(partition)
                if task is None:
                    continue  # revoked between the fetch and now: its next owner reads it again
                task.add_records(partition, list(run))
                full += task.partitions_to_pause()
        if full:
            self._parts.consumer.pause(full)

    def _work(self) -> tuple[int, int]:
        """Process up to n records of each task, punctuate; how many records and punctuations. Nothing while others may
        own the tasks: what this thread made of them could overwrite what the new owners make."""
        processed = punctuated = 0
        parts = self._parts
        tasks = parts.table.running()
        try:
            for task in tasks:
                processed += self._process(task, self._pace.n)
            for task in tasks:
                if parts.membership.is_member():
                    punctuated += task.punctuate()
        finally:  # also when a task fails: its neighbours' partitions stay paused otherwise
            resumed = [partition for task in tasks for partition in task.partitions_to_resume()]
            if resumed:
                parts.consumer.resume(resumed)
        if parts.events is not None:
            age_ms = self._clock.monotonic_ms() - self._last_commit_ms
            parts.events.sample_if_due(tasks, parts.consumer.lag, age_ms)
        self.processed_records += processed
        return processed, punctuated

    def _process(self, task: ActiveTask, records_max: int) -> int:
        membership, events, clock, slice_ = self._parts.membership, self._parts.events, self._clock, self._slice
        processed = 0
        while processed < records_max and membership.is_member():
            wanted = min(records_max - processed, slice_.size)
            began_ms = clock.monotonic_ms()
            taken = task.process(wanted) if events is None else events.process(task, wanted)
            slice_.adapt(taken=taken, took_ms=clock.monotonic_ms() - began_ms)
            processed += taken
            if taken < wanted:
                break
        return processed

    # -- tasks on their way to running -----------------------------------------------------------------------

    def _advance_tasks(self) -> None:
        table = self._parts.table
        if table.all_ready():
            table.raise_failed()
            if self._state is ThreadState.PARTITIONS_ASSIGNED and not self._parts.rebalance.in_progress:
                self._go(ThreadState.RUNNING)
            return
        table.initialize_pending()
        table.raise_failed()
        if self._starter.start_restored():
            self._read()

    def _read(self) -> None:
        """Let the consumer read exactly the partitions of running tasks, new ones from where they begin."""
        new = self._starter.take_positions()
        read = {
            partition: new.get(partition) for task in self._parts.table.running() for partition in task.input_partitions
        }
        self._parts.consumer.assign(read)
        topics = {partition.topic for partition in read}
        self._only_topic = topics.pop() if len(topics) == 1 else None

    # -- commits ---------------------------------------------------------------------------------------------

    def _commit_if_due(self) -> int:
        """Commit by interval or on request; how many tasks, -1 while a rebalance forbids it."""
        if self._parts.rebalance.in_progress:
            return -1
        now = self._clock.monotonic_ms()
        running = self._parts.table.running()
        due = now - self._last_commit_ms > self._settings.commit_interval_ms
        if now < self._next_commit_try_ms or not (due or any(task.commit_requested for task in running)):
            return 0
        committed = self._committer.commit(running)
        if committed < 0:
            self._next_commit_try_ms = self._clock.monotonic_ms() + _COMMIT_BACKOFF_MS
        if committed > 0:
            self.commit_latency.add(self._clock.monotonic_ms() - now)
        if due and committed >= 0:
            self._last_commit_ms = self._clock.monotonic_ms()
            self._purge_repartition_topics(running)
        return max(committed, 0)

    def _check_sends(self) -> bool:
        """Ask the production handler about refused records, through any task: they share the producer. True when it
        had records written instead."""
        for task in self._parts.table.all():
            if isinstance(task, ActiveTask):
                return task.check_sends()
        self._parts.producer.check()
        return False

    def _purge_repartition_topics(self, tasks: Sequence[ActiveTask]) -> None:
        now = self._clock.monotonic_ms()
        if now - self._last_purge_ms <= self._settings.repartition_purge_interval_ms:
            return
        self._last_purge_ms = now
        offsets = {
            partition: offset
            for task in tasks
            for partition, offset in task.committed_positions().items()
            if partition.topic in self._parts.repartition_topics
        }
        if offsets:
            self._parts.admin.delete_records(offsets)

    # -- rebalance: called through the inbox, on this thread ---------------------------------------------------

    def prepare_revocation(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Stop the tasks concerned, flush what they made; the offsets to commit."""
        if partitions:
            self._starter.forget()
            self._go(ThreadState.PARTITIONS_REVOKED)
        return self._revocation.prepare(partitions)

    def finish_revocation(self, error: Exception | None) -> None:
        """The offsets are committed (or not): checkpoint, suspend, stop reading."""
        self._revocation.finish(error)
        self._deferred.attempt(self._read)

    def lose_partitions(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Membership was lost: drop every active without committing."""
        self._lose_everything()

    def complete_rebalance(self, tasks: Tasks | None, failure: Exception | None) -> None:
        """End of a rebalance: make ``tasks`` the tasks of this thread (None: keep them), or fail."""
        if tasks is not None:
            self._deferred.attempt(lambda: self._parts.table.assign(tasks.active, tasks.standby))
        if failure is not None:
            self._deferred.add(failure)
        self._deferred.attempt(self._parts.release_locks)
        self._deferred.attempt(self._read)
        self._go(ThreadState.PARTITIONS_ASSIGNED)

    def offset_sums(self) -> Mapping[TaskId, int]:
        """What the subscription reports. Thread-safe."""
        return self._parts.offset_sums()

    # -- trouble ---------------------------------------------------------------------------------------------

    def _lose_everything(self) -> None:
        self._starter.forget()
        self._parts.table.lose_actives()
        self._parts.producer.reset()
        self._read()

    def _revive(self, error: TaskCorruptedError) -> None:
        """Start corrupted tasks over; commit the healthy ones first."""
        _log.warning("%s: %s; restoring", self.name, error)
        corrupted = dict(error.tasks)
        self._starter.forget()
        try:
            if not self._parts.rebalance.in_progress:
                healthy = [task for task in self._parts.table.running() if task.id not in corrupted]
                self._committer.commit(healthy)
        except TaskCorruptedError as more:
            corrupted.update(more.tasks)
        finally:  # also when this is no member any more: corrupted standbys stay, and nobody else would start them over
            self._committer.settle()
            self._parts.table.revive(corrupted)
            self._read()
            if self._state is ThreadState.RUNNING:
                self._go(ThreadState.PARTITIONS_ASSIGNED)

    def _fail(self, error: BaseException) -> None:
        if self._shutdown.is_set() and isinstance(error, TaskMigratedError | TaskCorruptedError):
            _log.warning("%s: ends without committing: %s", self.name, error)
            return
        self.failed = True
        self._leave_group = True  # so that its tasks move at once
        cause = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        _log.error("%s failed: %s", self.name, cause, exc_info=cause)
        try:
            self._on_error(self, cause)
        except Exception:
            _log.exception("the uncaught-exception handler itself failed")

    # -- the end ---------------------------------------------------------------------------------------------

    def _await_rebalance(self) -> bool:
        """Let a rebalance in progress end, so that offsets can be committed."""
        if not hasattr(self, "_parts"):
            return False
        rebalance = self._parts.rebalance
        limit = self._clock.monotonic_ms() + _REBALANCE_GRACE_MS
        while rebalance.in_progress and self._clock.monotonic_ms() < limit and not self._out_of_time():
            self.inbox.serve()
            self._clock.sleep_ms(_BUSY_POLL_MS)
        self._deferred.raise_worst()
        return True

    def _out_of_time(self) -> bool:
        deadline = self._shutdown_deadline_ms
        return self._shutdown.is_set() and deadline is not None and self._clock.monotonic_ms() >= deadline

    def _close(self, *, clean: bool) -> None:
        self._go(ThreadState.PENDING_SHUTDOWN)
        if hasattr(self, "_parts"):
            parts = self._parts
            parts.rebalance.close()
            self.inbox.close()
            parts.updater.close(timeout_ms=min(_UPDATER_CLOSE_MS, max(500, self._time_left_ms())))
            clean = clean and self._final_commit()
            for error in parts.table.close_all(clean=clean):
                _log.warning("%s: %s", self.name, error)
            self._quietly("task directories", parts.release_locks)
            self._quietly("consumer", parts.consumer.close)
            self._quietly("producer", parts.producer.close)
            self._quietly(
                "membership",
                lambda: parts.membership.leave_and_close(
                    leave_group=self._leave_group, timeout_ms=self._time_left_ms()
                ),
            )
        self._go(ThreadState.DEAD)
        self._on_end(self)

    def _final_commit(self) -> bool:
        running = self._parts.table.running()
        try:
            needing = [task for task in running if task.commit_needed]
            offsets = self._committer.prepare(needing)
            if offsets:
                self._parts.membership.commit(offsets, timeout_ms=self._time_left_ms())
            self._committer.finish(running, enforce_checkpoint=True)
        except Exception as error:
            _log.warning("%s: last commit failed (%s); its records will be processed again", self.name, error)
            return False
        return True

    def _time_left_ms(self) -> int:
        if self._shutdown_deadline_ms is None:
            return _LAST_COMMIT_TIMEOUT_MS
        return max(0, self._shutdown_deadline_ms - self._clock.monotonic_ms())

    def _quietly(self, what: str, close: Callable[[], None]) -> None:
        try:
            close()
        except Exception as error:
            _log.warning("%s: closing the %s failed: %s", self.name, what, error)

    def _go(self, new: ThreadState) -> ThreadState | None:
        """Change the state, if that is possible from the current one, which is the result then; else None."""
        with self._state_lock:
            old = self._state
            if old is new or not thread_may_go(old, new):
                return None
            self._state = new
        self._on_state(self, new)
        return old


def _words(position: int) -> str:
    return "the beginning" if position == -2 else "the end"
