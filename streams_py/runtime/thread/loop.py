"""The loop of a stream thread: poll, process, punctuate, commit, and handle rebalances (Kafka's StreamThread).

It owns its tasks, a record consumer, a producer and a membership of the group. Three more kinds of threads work for it:
the membership's polling thread, the state updater, and threads inside the clients. They never use its running tasks.
They post to its inbox or hand over finished tasks.

Running tasks continue while others restore and while the group rebalances. During a rebalance, the thread commits when
tasks are revoked. It also commits a transaction from time to time, so that the broker does not abort it in a long
rebalance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from streams_protocol.types import TopicPartition
from streams_py.errors import OffsetOutOfRangeError, StateError, TaskCorruptedError, TaskMigratedError
from streams_py.ports import RawRecord
from streams_py.ports.batches import runs_of
from streams_py.runtime.commit.committer import Committer
from streams_py.runtime.commit.pace import CommitPace
from streams_py.runtime.commit.repartition_purge import RepartitionPurge
from streams_py.runtime.group.inbox import Inbox
from streams_py.runtime.group.transport import TaskListener
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.damage import raise_found
from streams_py.runtime.thread.batch_size import BatchSize, Slice
from streams_py.runtime.thread.control import ThreadControl
from streams_py.runtime.thread.parts import ThreadParts
from streams_py.runtime.thread.settings import LoopSettings
from streams_py.runtime.thread.states import ThreadState
from streams_py.runtime.thread.summary import Summary
from streams_py.runtime.thread.task_moves import TaskMoves
from streams_py.system.printable import text_of

_log = logging.getLogger(__name__)

_BUSY_POLL_MS = 10
"""Timeout of a poll while other work is expected soon, in ms."""
_SESSION_MARGIN_MS = 200
"""Time that sent records still have to be written once the membership is unconfirmed, in ms. The member counts its
session timeout from the moment at which it sent a heartbeat. The group counts it from the arrival, which is later."""
_TURN_MAX_MS = 100
"""Maximum duration of processing before the loop checks whether a commit is due, in ms. Without it, records that are
suddenly slow to process could outlast the transaction in every attempt."""
_REBALANCE_GRACE_MS = 10_000
"""How long a shutdown waits for a rebalance to end, in ms. Offsets cannot be committed meanwhile; transactions can, if
necessary."""
_CLOSE_TIMEOUT_MS = 10_000
"""How long the end of a membership may take if the shutdown has no time limit, in ms."""
_UPDATER_CLOSE_MS = 5_000
_SAMPLE_MS = 100
"""Sampling interval for end-to-end latency, in ms."""
_LAGS_MS = 1_000
"""Sampling interval for the lag of input partitions, in ms."""


class _Turn(NamedTuple):
    """Results of a turn: records and punctuations, processing time, and whether tasks may have more records."""

    processed: int
    punctuated: int
    took_ms: int
    more: bool


_NOTHING_DONE = _Turn(0, 0, 0, False)


class StreamLoop:
    """The main loop of a stream thread. Created, run and closed on that thread only. Owns ``parts``."""

    def __init__(
        self,
        name: str,
        parts: ThreadParts,
        *,
        inbox: Inbox[TaskListener],
        control: ThreadControl,
        settings: LoopSettings,
    ) -> None:
        self.parts = parts
        self._name = name
        self._inbox = inbox
        self._control = control
        self._clock = clock = parts.clock
        self._settings = settings
        self._committer = Committer(
            parts.producer,
            parts.transactions,
            parts.transport,
            parts.table,
            clock,
            control.deadline,
            settings.commits,
            parts.known_commits,
        )
        purge = RepartitionPurge(
            parts.admin, parts.repartition_topics, clock, interval_ms=settings.repartition_purge_interval_ms
        )
        self._pace = CommitPace(
            self._committer,
            parts.table,
            parts.transport,
            parts.cache,
            purge,
            clock,
            control.commit_latency,
            settings.pace,
        )
        self.moves = TaskMoves(name, parts, self._committer, control, task_timeout_ms=settings.commits.task_timeout_ms)
        self._batch_size = BatchSize(settings.max_poll_interval_ms)
        self._slice = Slice()
        self._summary = Summary(name, interval_ms=settings.log_summary_interval_ms, now_ms=clock.monotonic_ms())
        self._turned_ms = clock.monotonic_ms()
        self._idle = True  # whether the last turn processed no records
        self._next_sample_ms = self._next_lags_ms = 0

    def run(self) -> None:
        """Join the group and work until a shutdown is requested or an error occurs."""
        self.parts.transport.start()
        while not self._control.is_shutting_down:
            self.iterate()

    def iterate(self) -> None:
        """Run one iteration. Handles task corruption and migration; other errors propagate and stop the thread."""
        try:
            try:
                self._run_once()
            except TaskCorruptedError as error:
                self.moves.revive(error)
        except TaskMigratedError as error:
            _log.warning("%s: tasks migrated to another member: %s; rejoining the group", self._name, error)
            self.moves.lose_everything()
            self.parts.transport.start_over()

    def _run_once(self) -> None:
        parts, control = self.parts, self._control
        self._turned_ms = self._clock.monotonic_ms()
        self._inbox.serve(self.moves)
        self.moves.deferred.raise_worst()
        parts.transport.check()
        self._check_membership()
        parts.transport.turn()
        self.moves.check_topics()
        began_ms = self._clock.monotonic_ms()
        records = self._poll()
        control.poll_latency.add(self._clock.monotonic_ms() - began_ms)
        parts.producer.poll()  # delivery reports would otherwise fill the producer's queue
        if parts.latest_resets.is_waiting:
            parts.latest_resets.log_known(records, parts.consumer.position)
        if records:
            control.poll_records.add(len(records))
            self._distribute(records)
        if control.is_shutting_down or control.state is ThreadState.PARTITIONS_REVOKED:
            return
        polled_ms = self._clock.monotonic_ms()
        while True:
            self.moves.advance()
            try:
                turn = _NOTHING_DONE if control.paused or self._pace.is_full else self._work()
                self._idle = turn.processed == 0
                raise_found(parts.table.running())
                committed = self._pace.commit_if_due()
            except StateError as error:
                if (corrupted := parts.table.damage.in_stores(parts.table.running(), error)) is None:
                    raise
                raise corrupted from error
            now_ms = self._clock.monotonic_ms()
            since_poll_ms = now_ms - polled_ms
            self._summary.add(processed=turn.processed, punctuated=turn.punctuated, committed=committed)
            self._summary.log_if_due(now_ms)
            if not self._batch_size.should_continue(more=turn.more, took_ms=turn.took_ms, since_poll_ms=since_poll_ms):
                break
            if self._inbox.serve(self.moves) or control.is_shutting_down:
                break

    def _check_membership(self) -> None:
        """Start over if records are not written yet although the membership is no longer confirmed.

        They must not be written later: other members may own the tasks by then, and nothing would reject the records.
        """
        parts = self.parts
        if parts.transport.is_member() or not (tasks := parts.table.running()):
            return
        if left := parts.producer.overdue(_SESSION_MARGIN_MS):
            raise TaskCorruptedError(
                f"{left} records were not written before the group may have removed this member; processing again from "
                "the last commit",
                dict.fromkeys((task.id for task in tasks), ()),
            )

    def is_stuck(self) -> bool:
        """Whether the current iteration has taken longer than ``max.poll.interval.ms``. Thread-safe."""
        return self._clock.monotonic_ms() - self._turned_ms > self._settings.max_poll_interval_ms

    # -- records ---------------------------------------------------------------------------------------------

    def _poll(self) -> list[RawRecord]:
        parts = self.parts
        if any(task.calls.are_running for task in parts.table.running()):
            if self._idle:  # wait for an answer, which is more urgent than new records
                parts.background.wait(min(_BUSY_POLL_MS, self._settings.poll_ms))
            timeout_ms = 0
        elif self._control.is_shutting_down:
            timeout_ms = 0
        elif parts.transport.rebalancing or not parts.table.all_ready():
            timeout_ms = min(_BUSY_POLL_MS, self._settings.poll_ms)
        else:
            timeout_ms = self._settings.poll_ms
        began_us = parts.events.now_us()
        try:
            with self._control.blocked:
                return parts.consumer.poll(self._settings.max_poll_records, timeout_ms)
        except OffsetOutOfRangeError as error:
            self.moves.reset_positions(error)
            return []
        finally:
            parts.events.polled(began_us)

    def _distribute(self, records: Sequence[RawRecord]) -> None:
        """Pass each task its records. Consecutive records of one partition are passed together."""
        owners = {partition: task for task in self.parts.table.running() for partition in task.input_partitions}
        full: list[TopicPartition] = []
        for partition, run in runs_of(records, self.moves.only_topic):
            task = owners.get(partition)
            if task is None:
                continue  # revoked after the fetch: its next owner reads it again
            batch = list(run)
            self.parts.key_placement.note(task.id.subtopology, partition, batch, self.parts.producer.partitions_for)
            task.add_records(partition, batch)
            full += task.records.take_to_pause()
        if full:
            self.parts.consumer.pause(full)

    def _work(self) -> _Turn:
        """Process up to n records of each task, then punctuate.

        Does nothing while other members may own the tasks: this thread's records could overwrite the owners' records.
        """
        processed = punctuated = took_ms = 0
        more = False
        parts = self.parts
        tasks = parts.table.running()
        clock, control = self._clock, self._control
        began_ms = clock.monotonic_ms()
        try:
            if began_ms >= self._next_sample_ms:
                self._next_sample_ms = began_ms + _SAMPLE_MS
                for task in tasks:
                    task.records.samples_next = True
            working, n = self._pace.shares(tasks, self._batch_size.n)
            for task in working:
                taken, is_cut = self._process(task, n, began_ms + _TURN_MAX_MS)
                processed += taken
                more = more or is_cut or taken >= n or (taken > 0 and task.calls.are_running)
            processed_ms = clock.monotonic_ms()
            took_ms = processed_ms - began_ms
            control.process_latency.add(took_ms, processed)
            before_ms = processed_ms
            for task in tasks:
                if parts.transport.is_member() and (fired := task.punctuate()):
                    after_ms = clock.monotonic_ms()
                    task.punctuate_latency.add(after_ms - before_ms, fired)
                    punctuated, before_ms = punctuated + fired, after_ms
            control.punctuate_latency.add(before_ms - processed_ms, punctuated)
        finally:  # also if a task fails: the partitions of other tasks would stay paused
            resumed = [partition for task in tasks for partition in task.records.take_to_resume()]
            if resumed:
                parts.consumer.resume(resumed)
        if tasks and began_ms >= self._next_lags_ms:
            self._next_lags_ms = began_ms + _LAGS_MS
            control.input_lags = self._input_lags(tasks)
        parts.events.sample_if_due(tasks, parts.consumer.lag, self._clock.monotonic_ms() - self._pace.last_commit_ms)
        control.processed_records += processed
        if processed:
            control.process_records.add(processed)
        return _Turn(processed, punctuated, took_ms, more)

    def _input_lags(self, tasks: Collection[ActiveTask]) -> dict[TopicPartition, int]:
        """Return the lag of each input partition whose end offset the consumer knows. Sends no request."""
        lag_of = self.parts.consumer.lag
        partitions = (partition for task in tasks for partition in task.input_partitions)
        return {partition: lag for partition in partitions if (lag := lag_of(partition)) is not None}

    def _process(self, task: ActiveTask, records_max: int, until_ms: int) -> tuple[int, bool]:
        """Process records of a task. Return their number, and whether the time limit stopped the task."""
        transport, events, clock, slice_ = self.parts.transport, self.parts.events, self._clock, self._slice
        processed, is_cut = 0, False
        while processed < records_max and not is_cut and transport.is_member():
            left = records_max - processed
            wanted = slice_.size if slice_.size < left else left
            began_ms, taken = clock.monotonic_ms(), 0
            try:
                began_us = events.processing(task)
                taken = task.process(wanted)
                events.processed(task, taken, began_us)
            finally:  # also if the slice failed because it took too long
                ended_ms = clock.monotonic_ms()
                took_ms = ended_ms - began_ms
                slice_.adapt(taken=taken, took_ms=took_ms)
            task.process_latency.add(took_ms, taken)
            processed += taken
            if taken < wanted:
                break
            is_cut = ended_ms >= until_ms
        task.processed_records += processed
        return processed, is_cut

    # -- shutdown --------------------------------------------------------------------------------------------

    def await_rebalance(self) -> None:
        """Wait until a rebalance in progress ends, so that offsets can be committed. Raise its errors."""
        transport = self.parts.transport
        grace_ms = _REBALANCE_GRACE_MS
        if self._committer.is_transactional:
            grace_ms = min(grace_ms, self._settings.pace.rebalance_commit_interval_ms)
        limit = self._clock.monotonic_ms() + grace_ms
        while transport.rebalancing and self._clock.monotonic_ms() < limit and not self._control.deadline.has_passed:
            self._inbox.serve(self.moves)
            self._clock.sleep_ms(_BUSY_POLL_MS)
        self.moves.deferred.raise_worst()

    def close(self, *, clean: bool) -> None:
        """Close everything. ``clean``: commit first."""
        parts = self.parts
        try:
            with parts.transport.ending():
                self._inbox.close()
                updater_ms = min(_UPDATER_CLOSE_MS, max(500, self._time_left_ms()))
                self._quietly("state updater", lambda: parts.updater.close(timeout_ms=updater_ms))
                clean = clean and self._commit_last()
            for error in parts.table.close_all(clean=clean):
                _log.warning("%s: %s", self._name, error)
            self._quietly("task directories", parts.release_locks)
            self._quietly("consumer", parts.consumer.close)
            self._quietly("producer", parts.producer.close)
        finally:  # in any case: other members wait for the tasks
            self._quietly(
                "membership", lambda: parts.transport.close(self._control.leave, timeout_ms=self._time_left_ms())
            )

    def _commit_last(self) -> bool:
        try:
            self._committer.commit_last(self.parts.table.running())
        except (Exception, SystemExit) as error:  # flushing caches runs the application's code
            reason = error if isinstance(error, Exception) else f"sys.exit({error.code!r}) was called"
            _log.warning("%s: last commit failed (%s); its records will be processed again", self._name, reason)
            return False
        return True

    def _time_left_ms(self) -> int:
        return self._control.deadline.left_ms(_CLOSE_TIMEOUT_MS)

    def _quietly(self, what: str, close: Callable[[], None]) -> None:
        try:
            close()
        except Exception as error:
            _log.warning("%s: closing the %s failed: %s", self._name, what, text_of(error))
