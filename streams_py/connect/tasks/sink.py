"""The thread of a sink task: read, convert, put, and commit offsets. At least once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from streams_protocol.types import TopicPartition
from streams_py.connect.api import RetriableError, SinkRecord, SinkTask
from streams_py.connect.ports import SinkConsumer, SinkListener
from streams_py.connect.tasks.task import TaskStart, TaskThread
from streams_py.errors import BrokerUnavailableError, ProcessingError
from streams_py.ports import RawRecord
from streams_py.ports.record_headers import headers_of
from streams_py.system.printable import text_of

_log = logging.getLogger("streams_py.connect")

_BATCH = 3_000
_POLL_MS = 200


class SinkTaskThread(TaskThread):
    """Runs one sink task. Also its SinkTaskContext and its consumer's listener."""

    def __init__(self, start: TaskStart, *, task: SinkTask, subscribe: Callable[[SinkListener], SinkConsumer]) -> None:
        super().__init__(start)
        self._task = task
        self._subscribe = subscribe
        self._consumer: SinkConsumer | None = None
        self._put: dict[TopicPartition, int] = {}  # offset after the last record that the task has accepted
        self._committed: dict[TopicPartition, int] = {}
        self._first: dict[TopicPartition, int] = {}  # first record that was read since the partition was assigned
        self._open: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()  # paused by the task
        self._batch: list[SinkRecord] = []  # records to put (again)
        self._retry_at_s = 0.0
        self._timeout_s: float | None = None
        self._commit_asked = False
        self._all_paused = False
        self._next_flush_s = 0.0
        self._rewound: dict[TopicPartition, int] = {}
        self._failed_inside = False  # the task has raised: its records may not have arrived, so nothing is committed

    # -- SinkTaskContext -----------------------------------------------------------------------------------------------

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._open)

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._rewound.update(offsets)

    def timeout(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000

    def pause(self, *partitions: TopicPartition) -> None:
        self._paused |= set(partitions)
        if self._consumer is not None:
            self._consumer.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._paused -= set(partitions)
        if self._consumer is not None and not self._all_paused:
            self._consumer.resume(partitions)

    def request_commit(self) -> None:
        self._commit_asked = True

    # -- SinkListener --------------------------------------------------------------------------------------------------

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._open |= set(partitions)
        if partitions:
            self._task.open(partitions)
        self._all_paused = False  # new partitions are not paused; the loop pauses them if necessary

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        gone = set(partitions) & self._open
        if not gone:
            return
        try:
            if not self._failed_inside:
                self._commit(gone)
        finally:
            self._drop(gone)
            self._task.close(gone)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        gone = set(partitions) & self._open
        self._drop(gone)
        if gone:
            self._task.close(gone)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self._task.initialize(self)
        started = False
        try:
            self.start_task(self._task, self._props)
            started = True
            self._consumer = self._subscribe(self)
            self._next_flush_s = time.monotonic() + self._settings.flush_interval_s
            self._loop(self._consumer)
        except Exception:
            self._failed_inside = True
            raise
        finally:
            self.close()  # commits and closes the open partitions
            if started:
                self._task.stop()

    def close(self) -> None:
        consumer = self._consumer
        if consumer is not None:
            consumer.close()

    def _loop(self, consumer: SinkConsumer) -> None:
        while not self._stopping.is_set():
            paused = self.is_paused()
            self._hold(consumer, paused or bool(self._batch))
            records = consumer.poll(_BATCH, _POLL_MS)
            if records:
                if len(self._first) < len(self._open):
                    self._note_first(records)
                self._batch += [record for raw in records if (record := self._converted(raw)) is not None]
                if not self._batch:
                    self._note(records)
            if self._batch and not paused and time.monotonic() >= self._retry_at_s:
                self._deliver()
            self._rewind(consumer)
            if self._commit_asked or time.monotonic() >= self._next_flush_s:
                self._commit(set(self._open))

    def _deliver(self) -> None:
        batch = self._batch
        try:
            self._task.put(batch)
        except RetriableError as error:
            wait_s = self._settings.retry_backoff_s if self._timeout_s is None else self._timeout_s
            self._timeout_s = None
            self._retry_at_s = time.monotonic() + wait_s
            _log.warning("%s: put failed; retrying in %.1f s: %s", self.job, wait_s, error)
            return
        last = {(record.topic, record.partition): record.offset for record in batch}
        for (topic, partition), offset in last.items():
            self._put[TopicPartition(topic, partition)] = offset + 1
        self._batch = []

    def _converted(self, raw: RawRecord) -> SinkRecord | None:
        topic, kind_and_ms = raw.topic(), raw.timestamp()
        try:
            key = self._settings.key_converter.decode(topic, raw.key())
            value = self._settings.value_converter.decode(topic, raw.value())
        except Exception as error:
            where = f"{topic}-{raw.partition()} at offset {raw.offset()}"
            if not self._settings.tolerates_errors:
                raise ProcessingError(
                    f"{self.job}: the record {where} cannot be converted: {text_of(error)}; check key.converter and "
                    "value.converter, or skip such records with errors.tolerance=all"
                ) from error
            _log.warning("%s: skipping the record %s (errors.tolerance=all): %s", self.job, where, text_of(error))
            return None
        return SinkRecord(
            topic,
            raw.partition(),
            raw.offset(),
            key,
            value,
            kind_and_ms[1] if kind_and_ms[0] else None,
            tuple(headers_of(raw) or ()),
        )

    def _note_first(self, records: Sequence[RawRecord]) -> None:
        for raw in records:
            self._first.setdefault(TopicPartition(raw.topic(), raw.partition()), raw.offset())

    def _note(self, records: Sequence[RawRecord]) -> None:
        for raw in records:
            self._put[TopicPartition(raw.topic(), raw.partition())] = raw.offset() + 1

    def _hold(self, consumer: SinkConsumer, hold: bool) -> None:
        """Pause or resume all partitions, to wait or retry without leaving the consumer group."""
        if hold and not self._all_paused and self._open:
            consumer.pause(self._open)
            self._all_paused = True
        elif not hold and self._all_paused:
            consumer.resume(self._open - self._paused)
            self._all_paused = False

    def _rewind(self, consumer: SinkConsumer) -> None:
        rewound, self._rewound = self._rewound, {}
        for partition, offset in rewound.items():
            if partition in self._open:
                consumer.seek(partition, offset)
                self._put[partition] = offset
                self._batch = [r for r in self._batch if (r.topic, r.partition) != partition]

    def _commit(self, partitions: set[TopicPartition]) -> None:
        self._commit_asked = False
        if partitions == self._open:
            self._next_flush_s = time.monotonic() + self._settings.flush_interval_s
        taken = {partition: at for partition, at in self._put.items() if partition in partitions}
        if not taken or self._abandoned or self._consumer is None:
            return
        try:
            flushed = self._task.pre_commit(taken)
        except RetriableError as error:
            _log.warning("%s: pre_commit failed; putting its records again: %s", self.job, error)
            # As in Kafka Connect: the task may have dropped records that it could not write.
            self._rewound.update({tp: self._committed.get(tp, self._first[tp]) for tp in taken})
            return
        wanted = {tp: at for tp, at in flushed.items() if tp in partitions}
        new = {partition: at for partition, at in wanted.items() if self._committed.get(partition) != at}
        try:
            self._consumer.commit(new)
        except BrokerUnavailableError as error:
            _log.warning("%s: commit failed: %s; records may be put again", self.job, error)
            return
        self._committed.update(new)

    def _drop(self, partitions: set[TopicPartition]) -> None:
        self._open -= partitions
        self._paused -= partitions
        for partition in partitions:
            self._put.pop(partition, None)
            self._committed.pop(partition, None)
            self._first.pop(partition, None)
            self._rewound.pop(partition, None)
        self._batch = [r for r in self._batch if TopicPartition(r.topic, r.partition) not in partitions]
