"""The thread of a source task: poll, convert, send, and write offsets. At least once."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from streams_protocol.types import TopicPartition
from streams_py.connect.api import JsonMap, OffsetReader, RetriableError, SourceRecord, SourceTask
from streams_py.connect.ports import Delivered, Producer
from streams_py.connect.stores.configs import TargetState
from streams_py.connect.stores.offsets import OffsetStore, offset_key
from streams_py.connect.tasks.task import TaskStart, TaskThread
from streams_py.errors import StreamsError

_log = logging.getLogger("streams_py.connect")

_PAUSE_POLL_S = 0.2


class Acknowledgements:
    """The source offsets that may be written.

    For each source partition, this is the last offset up to which all records are acknowledged.
    """

    def __init__(self) -> None:
        self._waiting: dict[bytes, deque[list[object]]] = {}
        self._ready: dict[bytes, JsonMap] = {}

    def add(self, key: bytes, offset: JsonMap) -> list[object]:
        """Register a sent record.

        Pass the returned entry to :meth:`done` when the record has arrived.
        """
        entry: list[object] = [False, offset]
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = deque()
        waiting.append(entry)
        return entry

    def done(self, key: bytes, entry: list[object]) -> None:
        entry[0] = True
        waiting = self._waiting[key]
        while waiting and waiting[0][0]:
            self._ready[key] = waiting.popleft()[1]  # type: ignore[assignment]  # an entry's second item
        if not waiting:
            del self._waiting[key]

    def take(self) -> dict[bytes, JsonMap]:
        """Return offsets that may be written and have not been taken yet."""
        ready, self._ready = self._ready, {}
        return ready

    def put_back(self, offsets: Mapping[bytes, JsonMap]) -> None:
        """Keep offsets that could not be written."""
        self._ready = {**offsets, **self._ready}


class _Refused(NamedTuple):
    """A record that the broker rejected together with its batch."""

    record: SourceRecord
    key: bytes
    entry: list[object]
    encoded_key: bytes | None
    value: bytes | None


class SourceTaskThread(TaskThread):
    """Runs one source task. Also its SourceTaskContext."""

    def __init__(self, start: TaskStart, *, task: SourceTask, producer: Producer, offsets: OffsetStore) -> None:
        super().__init__(start)
        self._id = start.job
        self._task = task
        self._producer = producer
        self._offsets = offsets
        self._acknowledged = Acknowledgements()
        self._failure: Exception | None = None
        self._refused: deque[_Refused] = deque()
        """Records to send again, each in its own batch."""
        self._stop_once = threading.Lock()
        self._started = False
        self._stop_called = False
        self._next_flush_s = 0.0
        self._last_key: tuple[JsonMap, bytes] = {}, offset_key(self._id.connector, {})

    @property
    def offset_reader(self) -> OffsetReader:
        return self._offsets.reader(self._id.connector)

    def interrupt(self) -> None:
        self._stop_task()

    def close(self) -> None:
        self._producer.close()

    def run(self) -> None:
        self._task.initialize(self)
        self.start_task(self._task, self._props)
        with self._stop_once:
            self._started = True  # from now on stop() may be called: start() has created what it needs
        try:
            self._next_flush_s = time.monotonic() + self._settings.flush_interval_s
            self._loop()
        finally:
            try:
                self._stop_task()
            finally:
                self._finish()

    def _finish(self) -> None:
        try:
            if self._producer.flush(int(self._settings.flush_timeout_s * 1000)):
                _log.warning("%s: some records were not acknowledged in time and will be sent again", self.job)
            self._send_alone()
        finally:
            self._commit()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            paused = self.is_paused()
            if paused:
                with self._changed:
                    self._changed.wait_for(
                        lambda: self._stopping.is_set() or self._target is TargetState.STARTED, _PAUSE_POLL_S
                    )
            else:
                self._poll_once()
            self._producer.poll(0)
            self._send_alone()
            if self._failure is not None:
                raise self._failure
            if time.monotonic() >= self._next_flush_s:
                self._commit()

    def _poll_once(self) -> None:
        try:
            records = self._task.poll()
        except RetriableError as error:
            _log.warning("%s: poll failed; retrying: %s", self.job, error)
            self._stopping.wait(self._settings.retry_backoff_s)
            return
        for record in records or ():
            self._send(record)

    def _send(self, record: SourceRecord) -> None:
        settings, key = self._settings, self._key_of(record)
        entry = self._acknowledged.add(key, record.source_offset)

        def delivered(error: Exception | None, where: TopicPartition) -> None:
            if error is None:
                self._arrived(record, key, entry, where)
            elif settings.tolerates_errors:
                self._refused.append(_Refused(record, key, entry, encoded_key, value))
            elif self._failure is None:
                self._failure = error

        try:
            encoded_key = settings.key_converter.encode(record.topic, record.key)
            value = settings.value_converter.encode(record.topic, record.value)
        except Exception as error:
            if not settings.tolerates_errors:
                raise
            self._skip(record, key, entry, error)
            return
        try:
            self._produce(record, encoded_key, value, delivered)
        except StreamsError as error:
            if not settings.tolerates_errors or self._stopping.is_set():
                raise
            self._skip(record, key, entry, error)

    def _produce(
        self, record: SourceRecord, encoded_key: bytes | None, value: bytes | None, on_delivery: Delivered
    ) -> None:
        self._producer.send(
            record.topic,
            encoded_key,
            value,
            on_delivery,
            partition=record.partition,
            timestamp_ms=record.timestamp,
            headers=record.headers,
        )

    def _arrived(self, record: SourceRecord, key: bytes, entry: list[object], where: TopicPartition) -> None:
        self._acknowledged.done(key, entry)
        self._notify(lambda: self._task.commit_record(record, where))

    def _send_alone(self) -> None:
        """Send rejected records again, each in its own batch. Skips records rejected twice.

        A broker rejects a whole batch, although usually only one of its records is the cause.
        """
        while self._refused:
            if self._producer.flush(int(self._settings.flush_timeout_s * 1000)):
                return  # the cluster does not answer; try again later
            refused = self._refused.popleft()
            self._produce(refused.record, refused.encoded_key, refused.value, partial(self._delivered_alone, refused))
            self._producer.flush(int(self._settings.flush_timeout_s * 1000))

    def _delivered_alone(self, refused: _Refused, error: Exception | None, where: TopicPartition) -> None:
        if error is None:
            self._arrived(refused.record, refused.key, refused.entry, where)
        else:
            self._skip(refused.record, refused.key, refused.entry, error)

    def _key_of(self, record: SourceRecord) -> bytes:
        """Return the key of the record's partition.

        Keeps the last one, because it is usually the same.
        """
        partition, key = self._last_key
        if record.source_partition != partition:
            key = offset_key(self._id.connector, record.source_partition)
            self._last_key = dict(record.source_partition), key
        return key

    def _skip(self, record: SourceRecord, key: bytes, entry: list[object], error: Exception) -> None:
        _log.warning("%s: skipping a record for %s (errors.tolerance=all): %s", self.job, record.topic, error)
        self._acknowledged.done(key, entry)
        self._notify(lambda: self._task.commit_record(record, None))

    def _notify(self, call: Callable[[], None]) -> None:
        """Inform the task about something that has happened already.

        A RetriableError does not stop the task.
        """
        try:
            call()
        except RetriableError as error:
            _log.warning("%s: the task failed to handle a commit: %s", self.job, error)

    def _commit(self) -> None:
        self._next_flush_s = time.monotonic() + self._settings.flush_interval_s
        offsets = self._acknowledged.take()
        if not offsets or self._abandoned:
            return
        try:
            self._offsets.write(offsets, self._settings.flush_timeout_s)
        except StreamsError as error:
            _log.warning("%s: writing offsets failed; retrying later: %s", self.job, error)
            self._acknowledged.put_back(offsets)
            return
        self._notify(self._task.commit)

    def _stop_task(self) -> None:
        with self._stop_once:
            if self._stop_called or not self._started:
                return
            self._stop_called = True
        self._task.stop()
