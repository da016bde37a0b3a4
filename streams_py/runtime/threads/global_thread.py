"""The thread that keeps the global stores of a client up to date (Kafka Streams' ``GlobalStreamThread``).

One per client, if its topology has global stores. It reads all partitions of their topics, without a group. Starting
the client waits until every store has reached the end its topics had at that moment. Records of global tables are
replayed into their stores (:mod:`streams_py.runtime.restore.source_replay`), others go through the user's processor.
Until then no other thread reads the stores. After that the thread follows the topics, also partitions that they are
given later. When it fails the client ends in ERROR; nobody replaces it. Its
stores stay open until the client has ended its stream threads: what their tasks do last may join with them.
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
from streams_py.outages import level_of_waiting
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
from streams_py.printable import named
from streams_py.rights import TOPIC, missing_right
from streams_py.runtime.batches import by_partition
from streams_py.runtime.closing import place_of
from streams_py.runtime.restore.filling import GLOBAL_TASK, Filling
from streams_py.runtime.restore.source_replay import SourceReplay, source_replays
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.binding import Node
from streams_py.runtime.tasks.collector import RecordCollector
from streams_py.runtime.tasks.task_settings import TaskSettings
from streams_py.runtime.topic_ids import TopicIds
from streams_py.state.global_stores import GlobalStores
from streams_py.topology.stores import StoreBuilder

__all__ = ["GlobalNodes", "GlobalThread", "ProducerOnDemand"]

_log = logging.getLogger("streams_py")

_RECORDS_MAX = 1_000
_FLUSH_STEP_MS = 1_000
_DISK_PAUSE_MS = 2
"""Pause for a disk that has to catch up with what is restored in bulk."""
_STOP_MS = 5_000
"""How long a close waits for the thread to end."""
_IDENTITY_MS = 300_000
"""Interval between checks for new partitions, in ms."""
_OPEN_TRANSACTION_MS = 5_000
"""A partition that can be read no further than this long before its end has an open transaction; a replica that is
behind its leader looks the same for a moment."""


@dataclass(frozen=True, slots=True)
class GlobalNodes:
    """Everything that fills global stores."""

    nodes: Sequence[Node]
    stores: Sequence[StoreBuilder]
    tables: Mapping[str, StoreBuilder]
    """Topic -> store of each global table: its records are replayed while the store is filled."""
    topics: frozenset[str]
    is_global: bool = True


class ProducerOnDemand:
    """A producer that is made when it is first asked for anything: only dead letters need one here."""

    def __init__(self, make: Callable[[], RecordProducer]) -> None:
        self._make = make
        self._made: RecordProducer | None = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = self._make()
        return getattr(self._made, name)

    @property
    def made(self) -> RecordProducer | None:
        """The producer, if it was ever asked for anything."""
        return self._made

    def close(self) -> None:
        """Close it, if it was ever made."""
        if self._made is not None:
            self._made.close()


class GlobalThread:
    """See above. ``producer`` writes what exception handlers ask for (dead letters)."""

    def __init__(
        self,
        name: str,
        nodes: GlobalNodes,
        stores: GlobalStores,
        *,
        filling: Filling,
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
        self.filling = filling
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
        self._is_filled = False
        self._wipes = False
        self._closing = threading.Lock()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> bool:
        """Start, and wait until the stores are filled; False when :meth:`give_up` came before that. Raises what went
        wrong."""
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return not self._stopping.is_set()

    @property
    def is_restored(self) -> bool:
        """True while the stores have all that was in their topics at the start. Thread-safe."""
        return self._is_filled

    @property
    def is_current(self) -> bool:
        """True when the caller runs on this thread, in a processor say."""
        return threading.current_thread() is self._thread

    def give_up(self) -> None:
        """End the filling; a thread that has filled its stores goes on, since tasks read them to their very end. Does
        not wait, and may be called by a signal's handler."""
        if not self._ready.is_set():
            self._stopping.set()

    def stop(self) -> None:
        """End the thread, which is left behind when it hangs in the user's code, and close the stores; a second call
        does nothing."""
        self._stopping.set()
        if self.is_current:  # it has ended the client, which lets go of the directory next
            self._close_stores()
        elif self._thread.is_alive():
            self._thread.join(_STOP_MS / 1000)
            if self._thread.is_alive():
                _log.warning(
                    "%s did not stop within %d ms and is left behind: it is %s",
                    self.name,
                    _STOP_MS,
                    place_of(self._thread.ident),
                )

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # also sys.exit() in a processor: the client waits for this thread
            if self._stopping.is_set():
                _log.debug("%s ended with %r after it was told to", self.name, error)
                return
            cause = error if isinstance(error, Exception) else StreamsError(named(error))
            self._error = cause
            was_ready = self._ready.is_set()
            self._ready.set()
            if was_ready:
                _log.exception("%s failed; the client cannot go on without its global stores", self.name)
                self._on_error(cause)
                self._stopping.wait()  # its tasks read them meanwhile
        finally:
            self._ready.set()
            self._close_stores()

    def _close_stores(self) -> None:
        with self._closing, contextlib.suppress(Exception):  # which the log has
            self._is_filled = False
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
                self._fill(consumer, task, ends, self._replays(collector))
            finally:
                self.filling.finished(self._clock.monotonic_ms())
            self._is_filled = not self._stopping.is_set()
            self._ready.set()
            self._follow(consumer, task, partitions)
            self.stores.checkpoint(enforce=True)
        except OffsetOutOfRangeError as error:
            self._wipes = True
            names = ", ".join(map(str, sorted(error.partitions)))
            raise StreamsError(
                f"{self.name}: {names} does not reach back to where its global store ends; the store is deleted, and "
                "filled from the beginning at the next start"
            ) from error
        finally:
            consumer.close()

    def _replays(self, collector: RecordCollector) -> Mapping[str, SourceReplay]:
        """How the records of each global table's topic become rows. Dead letters are written with ``collector``."""
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
        """Ask a cluster that does not answer again, for as long as a task may wait for one."""
        deadline_ms = self._clock.monotonic_ms() + self._settings.task_timeout_ms
        while True:
            try:
                return step()
            except (BrokerUnavailableError, LockError) as error:
                if self._stopping.is_set():
                    raise
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise TimeoutExceededError(
                        f"{self.name} could not fill the global stores for {self._settings.task_timeout_ms} ms "
                        f"(task.timeout.ms): {error}"
                    ) from error
                _log.log(level_of_waiting(), "%s: %s; trying again", self.name, error)
                self._clock.sleep_ms(self._retry_backoff_ms)

    def _described(self) -> list[tuple[str, tuple[PartitionInfo, ...]]]:
        """The topics. BrokerUnavailableError when one of them cannot be described now, StreamsError when this user may
        not know it; absence takes two answers: a broker that has just started may not know a topic yet."""
        described = self._look_at(self._nodes.topics)
        if described.keys() < self._nodes.topics:
            self._clock.sleep_ms(self._retry_backoff_ms)
            described |= self._look_at(self._nodes.topics - described.keys())
        if missing := sorted(self._nodes.topics - described.keys()):
            raise MissingSourceTopicError(
                f"topic {', '.join(missing)} of a global store does not exist; create it before starting"
            )
        return sorted(described.items())

    def _look_at(self, topics: Collection[str]) -> dict[str, tuple[PartitionInfo, ...]]:
        """Those that exist, as far as the broker that is asked knows."""
        described: dict[str, tuple[PartitionInfo, ...]] = {}
        for topic, found in self._admin.describe_topics(topics).items():
            if not isinstance(found, AdminError):
                described[topic] = found
            elif found.kind is AdminErrorKind.NOT_ALLOWED:
                raise StreamsError(f"a global store cannot be filled: {missing_right('READ', TOPIC, [topic])}")
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

    # -- filling and following ---------------------------------------------------------------------------------

    def _fill(
        self,
        consumer: RecordConsumer,
        task: ActiveTask,
        ends: Mapping[TopicPartition, int],
        replays: Mapping[str, SourceReplay],
    ) -> None:
        self.filling.expect({p: (max(0, self.stores.restore_position(p)), end) for p, end in ends.items()})
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
            while task.buffered_records and not self._stopping.is_set():  # something that it needs is away
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
        """Read partitions from where the stores are up to ``ends``, or to a transaction that stays open: nobody knows
        for how long, and what comes after its beginning is read when it has ended."""
        starts = {partition: self.stores.restore_position(partition) for partition in ends}
        for partition, end in ends.items():
            self.filling.started(partition, max(0, starts[partition]), end)
        open_ends = {p: end for p, end in ends.items() if end > 0 and max(starts[p], 0) < end}
        complete = ends.keys() - open_ends.keys()
        self.stores.note_positions({p: max(starts[p], 0) for p in complete})
        for partition in sorted(complete):
            self.filling.ended(partition)
        consumer.assign({partition: starts[partition] for partition in open_ends})
        held_up_ms: dict[TopicPartition, int] = {}
        reached: dict[TopicPartition, int] = {}
        read: set[TopicPartition] = set()
        while open_ends and not self._stopping.is_set():
            for partition, records in by_partition(self._poll(consumer, read)).items():
                read.add(partition)
                apply(partition, records)
                if self._stopping.is_set() or not self._is_acknowledged(task):
                    return  # perhaps not all of them were applied: they are read again
                self.stores.note_positions({partition: records[-1].offset() + 1})
                self.filling.applied(partition, records, ends[partition], self._clock.monotonic_ms())
            now_ms = self._clock.monotonic_ms()
            for partition, end in list(open_ends.items()):
                position = consumer.position(partition)
                if position is None or (position < end and consumer.lag(partition) != 0):
                    held_up_ms.pop(partition, None)
                    continue
                if position < end:
                    if now_ms - held_up_ms.setdefault(partition, now_ms) < _OPEN_TRANSACTION_MS:
                        continue
                    _log.warning(
                        "%s: %s goes on in a transaction that is not committed: its global store has what comes before "
                        "offset %d now, and the rest up to %d when the transaction has ended",
                        self.name,
                        partition,
                        position,
                        end,
                    )
                del open_ends[partition]
                reached[partition] = position
                self.filling.ended(partition)
        self.stores.note_positions(reached)  # once: what was restored in bulk is brought to the disk for it
        consumer.assign({})

    def _poll(self, consumer: RecordConsumer, read: Collection[TopicPartition]) -> Sequence[RawRecord]:
        """The next records. Where retention has overtaken a partition that was ``read`` from, continue at the beginning
        of its log: filling that starts over each time may never end."""
        try:
            return consumer.poll(_RECORDS_MAX, self._poll_ms)
        except OffsetOutOfRangeError as error:
            if not error.partitions <= error.deleted.intersection(read):
                raise
            for partition in sorted(error.partitions):
                _log.warning(
                    "%s: records of %s were deleted while its global store was filled with them: continuing at the "
                    "beginning of the log",
                    self.name,
                    partition,
                )
                consumer.seek(partition, BEGINNING)
            return []

    def _is_acknowledged(self, task: ActiveTask) -> bool:
        """True when the dead letters of all records so far are written, which are in no store; False when the thread is
        told to end before that. Raises what became of them otherwise, after asking the production exception handler."""
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
        next_look_ms = self._clock.monotonic_ms() + _IDENTITY_MS
        read: dict[TopicPartition, int] = {}
        topic_ids = self._topic_ids
        seen: Mapping[str, str] = {}
        if topic_ids is not None:
            topic_ids.watch(self, self._nodes.topics)
        while not self._stopping.is_set():
            if topic_ids is not None and topic_ids.now is not seen:
                seen = topic_ids.now
                self._check_same(seen)
            if task.buffered_records:  # they wait for something that is away, are in no store yet, and may be many
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
            if now_ms >= next_look_ms:
                next_look_ms = now_ms + _IDENTITY_MS
                added = self._new_partitions(partitions)
                if added:
                    partitions = [*partitions, *added]
                    task.update_input_partitions(partitions)
                    consumer.assign(dict.fromkeys(partitions) | dict.fromkeys(added, 0))

    def _check_same(self, ids: Mapping[str, str]) -> None:
        """StreamsError when a topic was deleted and created again. Tasks read the store, so it is not emptied here."""
        others = self.stores.created_anew(ids)
        if others:
            raise StreamsError(
                f"{self.name}: topic {', '.join(sorted(others))} was deleted and created anew since its global store "
                "was filled from it; the store is emptied, and filled from what the topic has then, at the next start"
            )

    def _new_partitions(self, known: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Partitions that topics have been given."""
        try:
            described = self._described()
        except StreamsError as error:
            _log.debug("%s: it is not known whether its topics are still the same: %s", self.name, error)
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
    task.partitions_to_pause()  # everything is taken at once: there is nothing to pause
    task.punctuate()
