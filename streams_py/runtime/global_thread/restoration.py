"""Restoring the global stores at the client's start: reading their topics up to the end offsets of that moment.

Records of global tables are replayed into their stores (:mod:`streams_py.runtime.tasks.record.source_replay`); records
of other global stores go through the user's processor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from streams_protocol.types import TopicPartition
from streams_py.errors import OffsetOutOfRangeError
from streams_py.ports import BEGINNING, Clock, RawRecord, RecordConsumer
from streams_py.ports.batches import by_partition
from streams_py.runtime.global_thread.global_task import RECORDS_MAX, GlobalTask
from streams_py.runtime.global_thread.progress import GlobalRestore
from streams_py.runtime.global_thread.waiting import Waiting
from streams_py.state.tasks.global_stores import GlobalStores

_log = logging.getLogger("streams_py")

_DISK_PAUSE_MS: Final = 2
"""Pause until the disk has caught up with a bulk restoration, in ms."""
_OPEN_TRANSACTION_MS: Final = 5_000
"""A partition whose last readable offset stays before its end for this long has an open transaction, in ms. A replica
that is behind its leader looks the same for a moment."""


class Restoration:
    """One restoration of the global stores, on the global thread.

    Args:
        name: Name of the thread, for messages.
        poll_ms: Longest wait for records.
    """

    def __init__(
        self,
        name: str,
        task: GlobalTask,
        stores: GlobalStores,
        consumer: RecordConsumer,
        progress: GlobalRestore,
        waiting: Waiting,
        clock: Clock,
        *,
        poll_ms: int,
    ) -> None:
        self._name = name
        self._task = task
        self._stores = stores
        self._consumer = consumer
        self._progress = progress
        self._waiting = waiting
        self._clock = clock
        self._poll_ms = poll_ms

    def run(self, ends: Mapping[TopicPartition, int]) -> None:
        """Restore the stores up to these end offsets. Returns early if the thread must stop."""
        stores, task = self._stores, self._task
        self._progress.expect({p: (max(0, stores.restore_position(p)), end) for p, end in ends.items()})
        self._read_to({p: end for p, end in ends.items() if task.is_table(p)}, self._replay)
        self._waiting.until(stores.flush_restored, poll_ms=_DISK_PAUSE_MS)
        task.task.complete_restoration({})
        self._read_to({p: end for p, end in ends.items() if not task.is_table(p)}, task.process_restored)

    def _replay(self, partition: TopicPartition, records: Sequence[RawRecord]) -> None:
        self._waiting.until(lambda: not self._stores.awaits_disk, poll_ms=_DISK_PAUSE_MS)
        rows = self._task.replayed(partition, records)
        self._stores.restore(partition, rows, in_bulk=True, last=records[-1].offset())

    def _read_to(
        self, ends: Mapping[TopicPartition, int], apply: Callable[[TopicPartition, Sequence[RawRecord]], None]
    ) -> None:
        """Read partitions from the stores' positions up to ``ends``, or to a transaction that stays open.

        The duration of such a transaction is unknown. Records after its first record are read once it has ended. A
        partition that is complete is paused, and its later records are read when the client runs.
        """
        starts = {partition: self._stores.restore_position(partition) for partition in ends}
        for partition, end in ends.items():
            self._progress.started(partition, max(0, starts[partition]), end)
        open_ends = {p: end for p, end in ends.items() if end > 0 and max(starts[p], 0) < end}
        complete = ends.keys() - open_ends.keys()
        self._stores.note_positions({p: max(starts[p], 0) for p in complete})
        for partition in sorted(complete):
            self._progress.ended(partition)
        self._consumer.assign({partition: starts[partition] for partition in open_ends})
        behind_since_ms: dict[TopicPartition, int] = {}
        reached: dict[TopicPartition, int] = {}
        read: set[TopicPartition] = set()
        while open_ends and not self._waiting.is_stopping():
            for partition, records in by_partition(self._poll(read)).items():
                read.add(partition)
                apply(partition, records)
                if self._waiting.is_stopping() or not self._task.is_acknowledged():
                    return  # perhaps not all were applied; they are read again
                self._stores.note_positions({partition: records[-1].offset() + 1})
                self._progress.applied(partition, records, ends[partition], self._clock.monotonic_ms())
            for partition, end in list(open_ends.items()):
                position = self._end_reached(partition, end, behind_since_ms)
                if position is not None:
                    del open_ends[partition]
                    reached[partition] = position
                    self._consumer.pause([partition])  # else later records would move the store past `reached`
                    self._progress.ended(partition)
        # Together, because a position after a transaction's marker flushes the records that were restored in bulk.
        self._stores.note_positions(reached)
        self._consumer.assign({})

    def _end_reached(
        self, partition: TopicPartition, end: int, behind_since_ms: dict[TopicPartition, int]
    ) -> int | None:
        """Return the position if it is at ``end``, or before a transaction that stays open; None if records follow."""
        position = self._consumer.position(partition)
        if position is None or (position < end and self._consumer.lag(partition) != 0):
            behind_since_ms.pop(partition, None)
            return None
        if position < end:
            now_ms = self._clock.monotonic_ms()
            if now_ms - behind_since_ms.setdefault(partition, now_ms) < _OPEN_TRANSACTION_MS:
                return None
            _log.warning(
                "%s: %s has an open transaction: its global store has the records before "
                "offset %d now, and gets the records up to %d when the transaction has ended",
                self._name,
                partition,
                position,
                end,
            )
        return position

    def _poll(self, read: Collection[TopicPartition]) -> Sequence[RawRecord]:
        """Return the next records.

        If retention has deleted records of a partition that was already read, continue at the beginning of its log. If
        the restoration started over each time, it might never end.
        """
        try:
            return self._consumer.poll(RECORDS_MAX, self._poll_ms)
        except OffsetOutOfRangeError as error:
            if not error.partitions <= error.deleted.intersection(read):
                raise
            for partition in sorted(error.partitions):
                _log.warning(
                    "%s: records of %s were deleted while its global store was being restored: continuing at the "
                    "beginning of the log",
                    self._name,
                    partition,
                )
                self._consumer.seek(partition, BEGINNING)
            return []
