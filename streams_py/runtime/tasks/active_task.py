"""An active task: receives records, processes them with its nodes, and reports the offsets to commit.

Source: Kafka Streams' ``StreamTask``. The parts: :class:`RecordLoop` (queues and the record path),
:class:`NodeServices` (what nodes may use), :class:`Punctuators`, :class:`TaskCalls` (asynchronous calls),
:class:`Failures` (handlers), :class:`RecordCollector` (sends), :class:`CommitPositions` (offsets to commit) and
:class:`TaskStores` (state). This class connects them, retries when a service is unavailable, and tracks whether a
commit is needed.

A commit has three steps, because one flush of the producer and one request serve all tasks of a thread:
:meth:`ActiveTask.flush_caches`, then the thread flushes the producer and commits
:meth:`ActiveTask.committable_offsets`, then :meth:`ActiveTask.post_commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar

from streams_protocol import LATEST_OFFSET
from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, StreamsError, TaskCorruptedError
from streams_py.ports import OffsetAndMetadata, RawRecord
from streams_py.runtime.tasks.asynchronous.in_flight import InFlight
from streams_py.runtime.tasks.asynchronous.task_calls import TaskCalls
from streams_py.runtime.tasks.record.binding import BoundTopology, bind_nodes
from streams_py.runtime.tasks.record.collector import RecordCollector
from streams_py.runtime.tasks.record.failures import Failures
from streams_py.runtime.tasks.record.loop import InputPositions, RecordLoop
from streams_py.runtime.tasks.record.node_services import NodeServices, SharedServices
from streams_py.runtime.tasks.record.node_times import NodeTimes
from streams_py.runtime.tasks.record.positions import CommitPositions
from streams_py.runtime.tasks.record.punctuation import Punctuators
from streams_py.runtime.tasks.record.sources import source_readers
from streams_py.runtime.tasks.retries import Retries
from streams_py.runtime.tasks.task import Task, TaskNodes, TaskPhase
from streams_py.runtime.tasks.task_metrics import TaskMetrics
from streams_py.state.tasks.interface import TaskStores
from streams_py.topology.declare.nodes import ProcessorNode, RecordContext


class ActiveTask(Task):
    """One active task. It belongs to one stream thread, which makes all calls.

    Args:
        collector: Sends the task's records. It has the settings of the task.
        inputs: The consumer of the input partitions.
        shared: Services that the nodes share with the nodes of other tasks.
    """

    is_active: ClassVar[bool] = True

    def __init__(
        self,
        id: TaskId,
        nodes: TaskNodes,
        input_partitions: Collection[TopicPartition],
        stores: TaskStores,
        *,
        collector: RecordCollector,
        inputs: InputPositions,
        shared: SharedServices,
    ) -> None:
        settings, clock = collector.settings, shared.clock
        super().__init__(id, nodes, input_partitions, stores, settings)
        self.settings = settings
        self.record = RecordContext()
        self._collector = collector
        self._clock = clock
        self._failures = Failures(id, self.record, collector, self._current_raw)
        self.records = RecordLoop(
            self.record,
            self._failures,
            inputs,
            clock,
            buffered_max=settings.buffered_records_per_partition,
            idle_max_ms=settings.max_task_idle_ms,
            counts_bytes=settings.is_measured,
        )
        self.calls = TaskCalls(self.record, shared.background, clock, self.records.current_raw)
        self.punctuators = Punctuators(self.record, clock)
        self.positions = CommitPositions(self.records, inputs)
        self._services = NodeServices(
            self.record,
            stores,
            shared,
            collector,
            failures=self._failures,
            punctuators=self.punctuators,
            calls=self.calls,
            processor_metadata=self.positions.processor_metadata,
        )
        self.metrics = TaskMetrics(self.records, self._services.sent)
        self.bound: BoundTopology | None = None  # while it is open
        self.processed_records = 0
        self._half_done = False
        """Whether a record was processed in part since the last commit."""
        self._retries, self._start_retries = Retries(id, settings, clock), Retries(id, settings, clock)

    def _current_raw(self) -> RawRecord | None:
        return self.calls.current_raw()

    # -- life -------------------------------------------------------------------------------------------

    def complete_restoration(self, committed: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Bind and initialise the nodes and run: all changelogs are restored.

        Args:
            committed: The group's committed offsets of the input partitions, with stream time in their metadata. Other
                partitions are ignored.

        Raises:
            BrokerUnavailableError: The call may be repeated; it then creates new processors.
            TaskCorruptedError: The same under exactly-once. It names this task, among others.
        """
        self._check(TaskPhase.RESTORING)
        self.stores.attach(self.record, self._collector.changelog_writer)
        self.calls.forget()
        self.bound = bound = bind_nodes(self.nodes.nodes, self._services)
        self._set_readers(bound)
        stores = {store.name: self.stores.store(store.name) for store in self.nodes.stores}
        self.record.stream_time_ms = self.positions.read(committed, NodeTimes.of(self.id, bound, stores, self.settings))
        try:
            bound.init()
        except (BrokerUnavailableError, TaskCorruptedError) as error:
            self._forget_processors(bound)
            self._start_retries.record_start_failure(error)
            raise
        self._start_retries.reset()
        self.stores.checkpoint(enforce=True)
        self._go(TaskPhase.RUNNING)

    @property
    def may_start(self) -> bool:
        """Whether :meth:`complete_restoration` may be called; False during the pause after a failed initialisation."""
        return not self._start_retries.is_paused()

    def _set_readers(self, bound: BoundTopology) -> None:
        topics = {partition.topic for partition in self.input_partitions}
        readers = source_readers(self.nodes.nodes, self.settings, topics, bound.sources)
        self.records.set_readers({partition: readers[partition.topic] for partition in self.input_partitions})

    def update_input_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions from now on. Buffered records of partitions that stay are kept."""
        super().update_input_partitions(partitions)
        if self.bound is not None and self._phase is TaskPhase.RUNNING:
            self._set_readers(self.bound)

    def suspend(self) -> None:
        """Close the processors and empty the buffers; stores stay open. Then raise an error of a ``close``, if any."""
        was_running = self._phase is TaskPhase.RUNNING
        super().suspend()
        if not was_running or self.bound is None:
            return
        self.records.clear()
        error = self._forget_processors(self.bound)
        if error is not None:
            raise error

    def _forget_processors(self, bound: BoundTopology) -> Exception | None:
        self.bound = None
        self.calls.cancel()
        self.punctuators.clear()
        return bound.close()

    def resume(self) -> None:
        """Change from SUSPENDED to RESTORING, because the partitions were assigned again."""
        self._check(TaskPhase.SUSPENDED)
        self.stores.roll_back()
        self._forget_consumed()
        self._retries.reset()
        self._start_retries.reset()
        self._go(TaskPhase.RESTORING)

    def revive(self, *, corrupted: Collection[TopicPartition] = ()) -> None:
        """Start over, as for every task. Records that were consumed before no longer count."""
        super().revive(corrupted=corrupted)
        self._collector.started_over()
        self._forget_consumed()
        self._retries.note_progress()

    def _forget_consumed(self) -> None:
        self.records.queues.clear()
        self.calls.forget()
        self._forget_effects()
        self.positions.clear()

    def _forget_effects(self) -> None:
        self.records.progressed = self._half_done = self.punctuators.were_called = False
        self._services.commit_requested = False

    # -- records ----------------------------------------------------------------------------------------

    def add_records(self, partition: TopicPartition, records: Sequence[RawRecord]) -> None:
        """Buffer records of one input partition, in offset order."""
        self.records.add(partition, records)

    def oldest_waiting_ms(self) -> int | None:
        """Return the smallest timestamp of the next records of all partitions; None if no record waits."""
        queues = self.records.queues.values()
        return min((queue.buffer[0].timestamp()[1] for queue in queues if queue.buffer), default=None)

    def has_input(self) -> bool:
        """Whether records wait in the queues or on the broker, or may wait there."""
        return self.records.has_input()

    def process(self, max_records: int) -> int:
        """Process up to ``max_records`` records and return the number of records that were processed.

        Answers of asynchronous calls are forwarded first and count as well. The result is 0 without records, while the
        task waits for a partition, and while the maximum number of asynchronous calls is running. If the broker does
        not answer, the next call tries the same record again.

        Raises:
            TimeoutExceededError: The broker has not answered for ``task.timeout.ms``.
        """
        if self._phase is not TaskPhase.RUNNING or self._retries.is_paused():
            return 0
        loop = self.records
        progressed, loop.progressed = loop.progressed, False
        try:
            calls = self.calls.in_flight
            taken = loop.run(max_records) if calls is None else self._process_async(calls, max_records)
        except BrokerUnavailableError as error:
            if loop.progressed:  # records before this one
                self._retries.note_progress()
            half_done = not self._failures.was_unread(error)
            self._half_done = self._half_done or half_done  # its writes must be acknowledged before they are committed
            self._retries.record_failure(error, half_done=half_done)
            return 0
        except StreamsError as error:
            error.task_id = error.task_id or self.id
            raise
        finally:
            loop.progressed = loop.progressed or progressed
        if taken:
            self._retries.note_progress()
        return taken

    def _process_async(self, calls: InFlight, max_records: int) -> int:
        self.record.system_time_ms = self._clock.now_ms()
        count = self._sent_on(calls.send_on)
        if room := min(calls.room(), max_records):
            started = calls.started
            taken = self.records.run(room)
            calls.note_taken(taken, started)
            count += taken
        calls.hand_over()
        return count

    def _sent_on(self, send_on: Callable[[], int]) -> int:
        try:
            return send_on()
        except StreamsError:
            raise
        except Exception as error:
            raise self._failures.unexpected(error, "below an asynchronous call") from error

    def await_answers(self, within_ms: int | None = None) -> int:
        """Wait for asynchronous calls and forward their answers until no call is running; return the number of answers.

        It blocks the thread, so call it only in tests and when the task is revoked.

        Args:
            within_ms: Time limit. Calls that have not finished by then are abandoned. With a limit, caches are
                flushed as well.
        """
        calls = self.calls.in_flight
        if calls is None or self._phase is not TaskPhase.RUNNING:
            return 0
        try:
            return self._sent_on(lambda: calls.await_all(within_ms, self.flush_caches))
        except BrokerUnavailableError as error:
            if self.settings.exactly_once:
                self._retries.record_failure(error)  # raises: the transaction has a part of the work
            raise

    @property
    def buffered_records(self) -> int:
        """Number of records in the queues."""
        return sum(len(queue.buffer) for queue in self.records.queues.values())

    @property
    def dropped_records(self) -> int:
        """Number of records dropped by handlers, operators and partitioners (metric ``dropped-records-total``)."""
        return self._failures.dropped_records

    # -- punctuation ------------------------------------------------------------------------------------

    def punctuate(self) -> int:
        """Call the punctuators that are due, by stream time first. Return how many were called.

        A punctuator that an unavailable broker interrupted is called again. Punctuators wait while the task drains,
        because their records could keep the drain from ending.
        """
        if not self.punctuators or self._phase is not TaskPhase.RUNNING:
            return 0
        if self._retries.is_paused() or self.calls.are_draining:
            return 0
        try:
            fired = self.punctuators.fire()
        except BrokerUnavailableError as error:
            self._retries.record_failure(error)
            return 0
        if fired:
            self._retries.note_progress()
        return fired

    def check_sends(self) -> bool:
        """Raise errors of rejected records, after calling the production exception handler.

        Return True if the handler had other records written instead; they must be flushed, too.
        """
        return self._collector.check()

    # -- commits ----------------------------------------------------------------------------------------

    @property
    def commit_requested(self) -> bool:
        """Whether a processor has requested a commit."""
        return self._services.commit_requested and self._phase is TaskPhase.RUNNING

    @property
    def commit_needed(self) -> bool:
        """Whether something happened since the last commit. Skipped transaction markers count."""
        touched = self.records.progressed or self._half_done or self.punctuators.were_called or self.calls.need_commit
        return touched or self.positions.passed_over()

    def flush_caches(self) -> None:
        """Write and forward the dirty entries of the record caches.

        The stores follow in the order of the nodes that use them: a flush may add entries to caches downstream.
        """
        if self._phase is not TaskPhase.RUNNING:
            return
        try:
            self.stores.flush_caches(self._stores_in_order())
        except StreamsError as error:
            if self.settings.exactly_once and isinstance(error, BrokerUnavailableError):
                self._retries.record_failure(error)  # raises: the transaction has a part of the work
            error.task_id = error.task_id or self.id
            raise

    def _stores_in_order(self) -> list[str]:
        nodes = self.nodes.nodes
        return list(dict.fromkeys(name for node in nodes if isinstance(node, ProcessorNode) for name in node.stores))

    def committable_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offset of the next record of each partition that was read, with metadata. Valid after a flush."""
        return self.positions.offsets(self.calls.in_flight, queues_are_valid=self._phase is TaskPhase.RUNNING)

    def post_commit(self, *, enforce_checkpoint: bool, acked: Mapping[TopicPartition, int]) -> None:
        """Handle a successful commit. ``acked``: highest acknowledged offset per changelog partition, of all tasks."""
        self.positions.note_committed(self.calls.in_flight, queues_are_valid=self._phase is TaskPhase.RUNNING)
        touched = self._half_done or self.punctuators.were_called
        self._retries.note_commit(took_records=self.records.progressed, touched=touched)
        self._forget_effects()
        self.calls.note_committed()
        if self._phase is TaskPhase.CREATED or self._phase is TaskPhase.CLOSED:
            return
        progress = {partition: acked[partition] for partition in self.stores.changelog_partitions & acked.keys()}
        progress |= self.positions.source_progress(self.stores.source_changelogs, under_way=self.calls.are_running)
        self.stores.update_offsets(progress)
        self.stores.commit(self.positions.committed)
        self.stores.checkpoint(enforce=enforce_checkpoint)

    def write_uncommitted(self, acked: Mapping[TopicPartition, int]) -> None:
        """Write the stores' memory to disk before the input is committed; valid after a flush."""
        logs = self.stores.changelog_partitions - self.stores.source_changelogs  # the group commits the source topics
        self.stores.update_offsets({partition: acked[partition] for partition in logs & acked.keys()})
        self.stores.commit({})

    def contained_positions(self) -> dict[TopicPartition, int]:
        """Return the last offset of each input partition that the stores contain, if known. Thread-safe."""
        return self.positions.contained(may_wait=self.calls.in_flight is not None)

    def offset_sum(self) -> int | None:
        """Return the offset sum, as for every task; -2 while running, because no copy is further ahead."""
        return LATEST_OFFSET if self._phase is TaskPhase.RUNNING else super().offset_sum()
