"""The thread that keeps the global stores of a client up to date (Kafka Streams' ``GlobalStreamThread``).

One per client, if its topology has global stores. It reads all partitions of their topics, without a group. The
client's start waits until every store has reached the end offsets that its topics had at that moment. No other thread
reads the stores before that. Afterwards the thread reads the records that arrive later, also those of new partitions.
If it fails, the client ends in ERROR, and the thread is not replaced. Its stores stay open until the client has stopped
its stream threads, because their last records may join with them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from streams_protocol.types import TopicPartition
from streams_py.errors import OffsetOutOfRangeError, StreamsError
from streams_py.ports import BEGINNING, Clock, RecordConsumer
from streams_py.ports.batches import by_partition
from streams_py.runtime.global_thread.global_task import RECORDS_MAX, GlobalTask, GlobalTasks
from streams_py.runtime.global_thread.progress import GlobalRestore
from streams_py.runtime.global_thread.restoration import Restoration
from streams_py.runtime.global_thread.topics import GlobalTopics, ids_of, partitions_of
from streams_py.runtime.global_thread.waiting import Waiting
from streams_py.runtime.restore.settings import RestoreSettings
from streams_py.system.close_report import place_of
from streams_py.system.printable import named

_log = logging.getLogger("streams_py")

_STOP_MS: Final = 5_000
"""How long a close waits for the thread, in ms."""
_NEW_PARTITIONS_MS: Final = 300_000
"""Interval between checks for new partitions, in ms."""


class GlobalThread:
    """The global thread of a client.

    Args:
        restoring: Progress of the restoration.
        consumer: Creates the consumer, on the thread.
    """

    def __init__(
        self,
        name: str,
        topics: GlobalTopics,
        tasks: GlobalTasks,
        *,
        restoring: GlobalRestore,
        consumer: Callable[[], RecordConsumer],
        clock: Clock,
        settings: RestoreSettings,
    ) -> None:
        self.name = name
        self.stores = tasks.stores
        self.restoring = restoring
        self.started_ms = clock.now_ms()
        self._topics = topics
        self._tasks = tasks
        self._make_consumer = consumer
        self._clock = clock
        self._settings = settings
        self._stopping = threading.Event()
        self._waiting = Waiting(name, self._stopping, clock, settings)
        self._ready = threading.Event()
        self._is_restored = False
        self._wipes = False
        self._closing = threading.Lock()
        self._error: Exception | None = None
        self._on_error: Callable[[Exception], None] = lambda error: None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, on_error: Callable[[Exception], None]) -> bool:
        """Start the thread and wait until the stores are restored. False if :meth:`cancel_restore` came first.

        Args:
            on_error: Called when the thread fails later.

        Raises:
            Exception: The error that stopped the restoration.
        """
        self._on_error = on_error
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
            described = self._waiting.retried(self._topics.describe)
            partitions = partitions_of(described)
            task = self._tasks.create(consumer, partitions, self._waiting)
            self._waiting.retried(task.task.initialize)
            self.stores.use_topics(ids_of(described))
            ends = self._waiting.retried(lambda: self._topics.ends(partitions))
            try:
                self._restoration(consumer, task).run(ends)
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

    def _restoration(self, consumer: RecordConsumer, task: GlobalTask) -> Restoration:
        return Restoration(
            self.name,
            task,
            self.stores,
            consumer,
            self.restoring,
            self._waiting,
            self._clock,
            poll_ms=self._settings.poll_ms,
        )

    def _follow(self, consumer: RecordConsumer, task: GlobalTask, partitions: Sequence[TopicPartition]) -> None:
        starts = {partition: self.stores.restore_position(partition) for partition in partitions}
        consumer.assign({p: 0 if start == BEGINNING else start for p, start in starts.items()})
        next_checkpoint_ms = self._clock.monotonic_ms() + self._settings.commit_interval_ms
        next_check_ms = self._clock.monotonic_ms() + _NEW_PARTITIONS_MS
        read: dict[TopicPartition, int] = {}
        self._topics.watch_ids()
        while not self._stopping.is_set():
            self._check_files()
            if (ids := self._topics.new_ids()) is not None:
                self._check_same(ids)
            if task.task.buffered_records:  # they wait for an unavailable service, and are not in a store yet
                self._waiting.pause()
            else:
                for partition, records in by_partition(consumer.poll(RECORDS_MAX, self._settings.poll_ms)).items():
                    task.task.add_records(partition, records)
                    read[partition] = records[-1].offset() + 1
            task.process()
            if read and not task.task.buffered_records and task.is_acknowledged():
                self.stores.note_positions(read)
                read = {}
            now_ms = self._clock.monotonic_ms()
            if now_ms >= next_checkpoint_ms:
                next_checkpoint_ms = now_ms + self._settings.commit_interval_ms
                self.stores.checkpoint(enforce=False)
            if now_ms >= next_check_ms:
                next_check_ms = now_ms + _NEW_PARTITIONS_MS
                added = self._topics.added(self.name, partitions)
                if added:
                    partitions = [*partitions, *added]
                    task.task.update_input_partitions(partitions)
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
