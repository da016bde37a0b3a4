"""The thread that keeps the global stores of a client up to date (Kafka Streams' ``GlobalStreamThread``).

One per client, if its topology has global stores. It reads all partitions of their topics, without a group. The
client's start waits until every store has reached the end offsets that its topics had at that moment. Records of global
tables are replayed into their stores (:mod:`streams_py.runtime.tasks.record.source_replay`); records of other global
stores go through the user's processor. No other thread reads the stores before that. Afterwards the thread follows the
topics and partitions that are added later. If it fails, the client ends in ERROR, and the thread is not replaced. Its
stores stay open until the client has stopped its stream threads, because their last records may join with them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from streams_protocol.types import TopicPartition
from streams_py.errors import (
    BrokerUnavailableError,
    LockError,
    MissingSourceTopicError,
    OffsetOutOfRangeError,
    StreamsError,
    TimeoutExceededError,
)
from streams_py.ports import (
    BEGINNING,
    Admin,
    AdminError,
    AdminErrorKind,
    Clock,
    PartitionInfo,
    RawRecord,
    RecordConsumer,
    RecordProducer,
)
from streams_py.ports.batches import by_partition
from streams_py.ports.outages import level_of_waiting
from streams_py.ports.rights import TOPIC, missing_right
from streams_py.runtime.global_thread.progress import GLOBAL_TASK, GlobalRestore
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.record.binding import Node
from streams_py.runtime.tasks.record.collector import RecordCollector
from streams_py.runtime.tasks.record.source_replay import SourceReplay, source_replays
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.runtime.thread.topic_ids import TopicIds
from streams_py.state.tasks.global_stores import GlobalStores
from streams_py.system.close_report import place_of
from streams_py.system.printable import named
from streams_py.topology.declare.stores import StoreBuilder

_log = logging.getLogger("streams_py")

_RECORDS_MAX = 1_000
_FLUSH_STEP_MS = 1_000
_DISK_PAUSE_MS = 2
"""Pause until the disk has caught up with a bulk restoration, in ms."""
_STOP_MS = 5_000
"""How long a close waits for the thread, in ms."""
_IDENTITY_MS = 300_000
"""Interval between checks for new partitions, in ms."""
_OPEN_TRANSACTION_MS = 5_000
"""A partition whose last readable offset stays before its end for this long has an open transaction, in ms. A replica
that is behind its leader looks the same for a moment."""


@dataclass(frozen=True, slots=True)
class GlobalNodes:
    """The nodes and stores that feed the global stores."""

    nodes: Sequence[Node]
    stores: Sequence[StoreBuilder]
    tables: Mapping[str, StoreBuilder]
    """Topic -> store of each global table. Its records are replayed while the store is restored."""
    topics: frozenset[str]
    is_global: bool = True


class ProducerOnDemand:
    """A producer that is created at its first use: only dead letters need it here."""

    def __init__(self, make: Callable[[], RecordProducer]) -> None:
        self._make = make
        self._made: RecordProducer | None = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = self._make()
        return getattr(self._made, name)

    @property
    def made(self) -> RecordProducer | None:
        """The producer, if it was created."""
        return self._made

    def close(self) -> None:
        """Close the producer, if it was created."""
        if self._made is not None:
            self._made.close()


class GlobalThread:
    """The global thread of a client. ``producer`` writes the records of exception handlers (dead letters)."""

    def __init__(
        self,
        name: str,
        nodes: GlobalNodes,
        stores: GlobalStores,
        *,
        restoring: GlobalRestore,
        settings: TaskSettings,
        consumer: Callable[[], RecordConsumer],
        producer: ProducerOnDemand,
        admin: Admin,
        clock: Clock,
        poll_ms: int,
        commit_interval_ms: int,
        retry_backoff_ms: int,
        on_error: Callable[[Exception], None],
        topic_ids: TopicIds | None = None,
    ) -> None:
        self.name = name
        self._topic_ids = topic_ids
        self.stores = stores
        self.restoring = restoring
        self.started_ms = clock.now_ms()
        self._nodes = nodes
        self._settings = settings
        self._make_consumer = consumer
        self.producer = producer
        self._admin = admin
        self._clock = clock
        self._poll_ms = poll_ms
        self._commit_interval_ms = commit_interval_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._on_error = on_error
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._is_restored = False
        self._wipes = False
        self._closing = threading.Lock()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> bool:
        """Start the thread and wait until the stores are restored. False if :meth:`cancel_restore` came first.

        Raises:
            Exception: The error that stopped the restoration.
        """
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return not self._stopping.is_set()

    @property
    def is_restored(self) -> bool:
        """Whether the stores have everything that was in their topics at the start. Thread-safe."""
        return self._is_restored

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread, for example in a processor."""
        return threading.current_thread() is self._thread

    def cancel_restore(self) -> None:
        """Cancel the restoration. Does not wait, and may be called by a signal handler.

        A thread that has finished the restoration continues, because tasks read its stores until the end.
        """
        if not self._ready.is_set():
            self._stopping.set()

    def stop(self) -> None:
        """Stop the thread and close the stores. A second call does nothing.

        A thread that hangs in user code is abandoned.
        """
        self._stopping.set()
        if self.is_current:  # this thread closes the client, which releases the directory next
            self._close_stores()
        elif self._thread.is_alive():
            self._thread.join(_STOP_MS / 1000)
            if self._thread.is_alive():
                _log.warning(
                    "%s did not stop within %d ms and is abandoned: it is %s",
                    self.name,
                    _STOP_MS,
                    place_of(self._thread.ident),
                )

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # includes sys.exit() in a processor: the client waits for this thread
            if self._stopping.is_set():
                _log.debug("%s ended with %r while it was being stopped", self.name, error)
                return
            cause = error if isinstance(error, Exception) else StreamsError(named(error))
            self._error = cause
            was_ready = self._ready.is_set()
            self._ready.set()
            if was_ready:
                _log.exception("%s failed; the client cannot continue without its global stores", self.name)
                self._on_error(cause)
                self._stopping.wait()  # the client's tasks read the stores meanwhile
        finally:
            self._ready.set()
            self._close_stores()

    def _close_stores(self) -> None:
        with self._closing, contextlib.suppress(Exception):  # close() logs its errors
            self._is_restored = False
            wipes, self._wipes = self._wipes, False
            self.stores.close(wipe=wipes)

    def _work(self) -> None:
        consumer = self._make_consumer()
        try:
            described = self._retried(self._described)
            partitions = [TopicPartition(topic, info.partition) for topic, infos in described for info in infos]
            collector = RecordCollector(GLOBAL_TASK, cast("RecordProducer", self.producer), self._settings)
            task = self._task(consumer, partitions, collector)
            self._retried(task.initialize)
            self.stores.use_topics(_ids(described))
            ends = self._retried(lambda: self._ends(partitions))
            try:
                self._restore_all(consumer, task, ends, self._replays(collector))
            finally:
                self.restoring.finished(self._clock.monotonic_ms())
            self._is_restored = not self._stopping.is_set()
            self._ready.set()
            self._follow(consumer, task, partitions)
            self.stores.checkpoint(enforce=True)
        except OffsetOutOfRangeError as error:
            self._wipes = True
            names = ", ".join(map(str, sorted(error.partitions)))
            raise StreamsError(
                f"{self.name}: {names} no longer has the records that follow those in its global store; the store "
                "is deleted, and restored from the beginning at the next start"
            ) from error
        finally:
            consumer.close()

    def _replays(self, collector: RecordCollector) -> Mapping[str, SourceReplay]:
        """Return how to replay the records of each global table's topic. ``collector`` writes dead letters."""
        nodes = self._nodes
        return source_replays(GLOBAL_TASK, nodes.nodes, nodes.tables, self._settings, collector)

    def _task(
        self, consumer: RecordConsumer, partitions: Sequence[TopicPartition], collector: RecordCollector
    ) -> ActiveTask:
        return ActiveTask(
            GLOBAL_TASK,
            self._nodes,
            partitions,
            self.stores,
            collector=collector,
            clock=self._clock,
            inputs=consumer,
            settings=self._settings,
        )

    def _retried(self, step: Callable[[], Any]) -> Any:
        """Retry a request to the cluster for as long as a task may wait for an answer (``task.timeout.ms``)."""
        deadline_ms = self._clock.monotonic_ms() + self._settings.task_timeout_ms
        while True:
            try:
                return step()
            except (BrokerUnavailableError, LockError) as error:
                if self._stopping.is_set():
                    raise
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise TimeoutExceededError(
                        f"{self.name} could not restore the global stores for {self._settings.task_timeout_ms} ms "
                        f"(task.timeout.ms): {error}"
                    ) from error
                _log.log(level_of_waiting(), "%s: %s; retrying", self.name, error)
                self._clock.sleep_ms(self._retry_backoff_ms)

    def _described(self) -> list[tuple[str, tuple[PartitionInfo, ...]]]:
        """Return the topics and their partitions.

        A topic counts as missing after two answers: a broker that has just started may not know it yet.

        Raises:
            BrokerUnavailableError: A topic cannot be described now.
            StreamsError: The user may not describe a topic, or a topic does not exist.
        """
        described = self._existing(self._nodes.topics)
        if described.keys() < self._nodes.topics:
            self._clock.sleep_ms(self._retry_backoff_ms)
            described |= self._existing(self._nodes.topics - described.keys())
        if missing := sorted(self._nodes.topics - described.keys()):
            raise MissingSourceTopicError(
                f"topic {', '.join(missing)} of a global store does not exist; create it before starting"
            )
        return sorted(described.items())

    def _existing(self, topics: Collection[str]) -> dict[str, tuple[PartitionInfo, ...]]:
        """Return the topics that exist according to one answer."""
        described: dict[str, tuple[PartitionInfo, ...]] = {}
        for topic, found in self._admin.describe_topics(topics).items():
            if not isinstance(found, AdminError):
                described[topic] = found
            elif found.kind is AdminErrorKind.NOT_ALLOWED:
                raise StreamsError(f"a global store cannot be restored: {missing_right('READ', TOPIC, [topic])}")
            elif found.kind is not AdminErrorKind.UNKNOWN_TOPIC:
                raise BrokerUnavailableError(f"topic {topic} cannot be described now: {found.message}")
        return described

    def _ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        ends = self._admin.list_offsets(partitions)
        known = {partition: end for partition, end in ends.items() if not isinstance(end, AdminError)}
        unknown = sorted(set(partitions) - known.keys())
        if unknown:
            raise BrokerUnavailableError(f"end offset of {unknown[0]} is not available")
        return known

    # -- restoring and following ---------------------------------------------------------------------------------

    def _restore_all(
        self,
        consumer: RecordConsumer,
        task: ActiveTask,
        ends: Mapping[TopicPartition, int],
        replays: Mapping[str, SourceReplay],
    ) -> None:
        self.restoring.expect({p: (max(0, self.stores.restore_position(p)), end) for p, end in ends.items()})
        tables = {p: end for p, end in ends.items() if p.topic in self._nodes.tables}

        def restore(partition: TopicPartition, records: Sequence[RawRecord]) -> None:
            self._restore(partition, records, replays[partition.topic])

        self._read_to(consumer, tables, restore, task)
        while not self.stores.flush_restored() and not self._stopping.is_set():
            self._clock.sleep_ms(_DISK_PAUSE_MS)
        task.complete_restoration({})
        others = {p: end for p, end in ends.items() if p.topic not in self._nodes.tables}

        def process(partition: TopicPartition, records: Sequence[RawRecord]) -> None:
            task.add_records(partition, records)
            _process_all(task)
            while task.buffered_records and not self._stopping.is_set():  # a service that the task needs is unavailable
                self._clock.sleep_ms(self._retry_backoff_ms)
                _process_all(task)

        self._read_to(consumer, others, process, task)

    def _restore(self, partition: TopicPartition, records: Sequence[RawRecord], replay: SourceReplay) -> None:
        while self.stores.awaits_disk and not self._stopping.is_set():
            self._clock.sleep_ms(_DISK_PAUSE_MS)
        rows = self._retried(lambda: replay.replayed(records))
        self.stores.restore(partition, rows, in_bulk=True, last=records[-1].offset())

    def _read_to(
        self,
        consumer: RecordConsumer,
        ends: Mapping[TopicPartition, int],
        apply: Callable[[TopicPartition, Sequence[RawRecord]], None],
        task: ActiveTask,
    ) -> None:
        """Read partitions from the stores' positions up to ``ends``, or to a transaction that stays open.

        The duration of such a transaction is unknown. Records after its first record are read once it has ended.
        """
        starts = {partition: self.stores.restore_position(partition) for partition in ends}
        for partition, end in ends.items():
            self.restoring.started(partition, max(0, starts[partition]), end)
        open_ends = {p: end for p, end in ends.items() if end > 0 and max(starts[p], 0) < end}
        complete = ends.keys() - open_ends.keys()
        self.stores.note_positions({p: max(starts[p], 0) for p in complete})
        for partition in sorted(complete):
            self.restoring.ended(partition)
        consumer.assign({partition: starts[partition] for partition in open_ends})
        behind_since_ms: dict[TopicPartition, int] = {}
        reached: dict[TopicPartition, int] = {}
        read: set[TopicPartition] = set()
        while open_ends and not self._stopping.is_set():
            for partition, records in by_partition(self._poll(consumer, read)).items():
                read.add(partition)
                apply(partition, records)
                if self._stopping.is_set() or not self._is_acknowledged(task):
                    return  # perhaps not all were applied; they are read again
                self.stores.note_positions({partition: records[-1].offset() + 1})
                self.restoring.applied(partition, records, ends[partition], self._clock.monotonic_ms())
            now_ms = self._clock.monotonic_ms()
            for partition, end in list(open_ends.items()):
                position = consumer.position(partition)
                if position is None or (position < end and consumer.lag(partition) != 0):
                    behind_since_ms.pop(partition, None)
                    continue
                if position < end:
                    if now_ms - behind_since_ms.setdefault(partition, now_ms) < _OPEN_TRANSACTION_MS:
                        continue
                    _log.warning(
                        "%s: %s has an open transaction: its global store has the records before "
                        "offset %d now, and gets the records up to %d when the transaction has ended",
                        self.name,
                        partition,
                        position,
                        end,
                    )
                del open_ends[partition]
                reached[partition] = position
                self.restoring.ended(partition)
        self.stores.note_positions(reached)  # only once: it flushes bulk-restored records to disk
        consumer.assign({})

    def _poll(self, consumer: RecordConsumer, read: Collection[TopicPartition]) -> Sequence[RawRecord]:
        """Return the next records.

        If retention has deleted records of a partition that was already read, continue at the beginning of its log. If
        the restoration started over each time, it might never end.
        """
        try:
            return consumer.poll(_RECORDS_MAX, self._poll_ms)
        except OffsetOutOfRangeError as error:
            if not error.partitions <= error.deleted.intersection(read):
                raise
            for partition in sorted(error.partitions):
                _log.warning(
                    "%s: records of %s were deleted while its global store was being restored: continuing at the "
                    "beginning of the log",
                    self.name,
                    partition,
                )
                consumer.seek(partition, BEGINNING)
            return []

    def _is_acknowledged(self, task: ActiveTask) -> bool:
        """Whether the dead letters of all records so far are written. False if the thread is stopped first.

        Dead letters are in no store. Raises other errors of sends, after calling the production exception handler.
        """
        producer = self.producer.made
        if producer is None:
            return True
        while not self._stopping.is_set():
            is_flushed = not producer.flush(_FLUSH_STEP_MS)
            if not task.check_sends() and is_flushed:
                return True
        return False

    def _follow(self, consumer: RecordConsumer, task: ActiveTask, partitions: Sequence[TopicPartition]) -> None:
        starts = {partition: self.stores.restore_position(partition) for partition in partitions}
        consumer.assign({p: 0 if start == BEGINNING else start for p, start in starts.items()})
        next_checkpoint_ms = self._clock.monotonic_ms() + self._commit_interval_ms
        next_check_ms = self._clock.monotonic_ms() + _IDENTITY_MS
        read: dict[TopicPartition, int] = {}
        topic_ids = self._topic_ids
        seen: Mapping[str, str] = {}
        if topic_ids is not None:
            topic_ids.watch(self, self._nodes.topics)
        while not self._stopping.is_set():
            self._check_files()
            if topic_ids is not None and topic_ids.now is not seen:
                seen = topic_ids.now
                self._check_same(seen)
            if task.buffered_records:  # they wait for an unavailable service, and are not in a store yet
                self._clock.sleep_ms(self._retry_backoff_ms)
            else:
                for partition, records in by_partition(consumer.poll(_RECORDS_MAX, self._poll_ms)).items():
                    task.add_records(partition, records)
                    read[partition] = records[-1].offset() + 1
            _process_all(task)
            if read and not task.buffered_records and self._is_acknowledged(task):
                self.stores.note_positions(read)
                read = {}
            now_ms = self._clock.monotonic_ms()
            if now_ms >= next_checkpoint_ms:
                next_checkpoint_ms = now_ms + self._commit_interval_ms
                self.stores.checkpoint(enforce=False)
            if now_ms >= next_check_ms:
                next_check_ms = now_ms + _IDENTITY_MS
                added = self._new_partitions(partitions)
                if added:
                    partitions = [*partitions, *added]
                    task.update_input_partitions(partitions)
                    consumer.assign(dict.fromkeys(partitions) | dict.fromkeys(added, 0))

    def _check_files(self) -> None:
        """Raise StreamsError if any thread has met damaged files. Tasks read the stores, so they stay open here."""
        if (damage := self.stores.damage) is not None:
            raise StreamsError(
                f"{self.name}: files of the global stores are damaged; they are set aside when the client has stopped, "
                f"and the next start restores the stores from their topics: {damage}"
            ) from damage

    def _check_same(self, ids: Mapping[str, str]) -> None:
        """Raise StreamsError if a topic was recreated. Tasks read the store, so it is not cleared here."""
        others = self.stores.recreated_topics(ids)
        if others:
            raise StreamsError(
                f"{self.name}: topic {', '.join(sorted(others))} was deleted and created again since its global store "
                "was restored from it; at the next start the store is cleared and restored from the new topic"
            )

    def _new_partitions(self, known: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return partitions that were added to the topics."""
        try:
            described = self._described()
        except StreamsError as error:
            _log.debug("%s: cannot check its topics for new partitions: %s", self.name, error)
            return []
        added = sorted(
            {TopicPartition(topic, info.partition) for topic, infos in described for info in infos} - {*known}
        )
        if added:
            _log.info("%s: reading new partitions: %s", self.name, ", ".join(map(str, added)))
        return added


def _ids(described: Sequence[tuple[str, Sequence[PartitionInfo]]]) -> dict[str, str | None]:
    return {topic: infos[0].topic_id for topic, infos in described}


def _process_all(task: ActiveTask) -> None:
    while task.process(_RECORDS_MAX):
        pass
    task.partitions_to_pause()  # nothing to pause: all records were processed
    task.punctuate()
