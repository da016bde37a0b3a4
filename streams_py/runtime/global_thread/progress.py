"""Progress of the restoration of global stores, and its reports to the restore listener, as in Kafka Streams.

A client may need minutes for it, and its start waits until it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streams_protocol.types import TaskId, TopicPartition
from streams_py.ports import RawRecord
from streams_py.runtime.restore.listener import RestoreListener
from streams_py.runtime.restore.progress import RestoreMeter, RestoreProgress

GLOBAL_TASK = TaskId(-1, -1)
"""The task id that Kafka Streams uses for global stores, which belong to no task of a group."""


class GlobalRestore:
    """Progress of restoring the global stores.

    The thread that restores the stores updates it and calls ``listener``. :meth:`progress` is thread-safe.

    Args:
        stores: The store of each topic.
    """

    def __init__(self, name: str, stores: Mapping[str, str], listener: RestoreListener) -> None:
        self._stores = stores
        self._listener = listener
        self._left: Mapping[TopicPartition, int] = {}
        self._totals: dict[TopicPartition, int] = {}
        self._meter = RestoreMeter(name, lambda: {GLOBAL_TASK: sum(self._left.values())})

    def progress(self) -> RestoreProgress:
        """Return the progress as of the last batch."""
        return self._meter.progress()

    def expect(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Set the offsets to read: from the first up to, not including, the second."""
        self._left = {partition: max(0, end - start) for partition, (start, end) in spans.items()}

    def started(self, partition: TopicPartition, start: int, end: int) -> None:
        self._totals[partition] = 0
        self._listener.on_restore_start(partition, self._stores[partition.topic], start, end)

    def applied(self, partition: TopicPartition, records: Sequence[RawRecord], end: int, now_ms: int) -> None:
        """Note that these records are in the store. Offsets up to, not including, ``end`` will be restored."""
        last = records[-1].offset()
        self._left = {**self._left, partition: max(0, end - last - 1)}
        self._totals[partition] += len(records)
        self._meter.count(records, now_ms)
        self._listener.on_batch_restored(partition, self._stores[partition.topic], last, len(records))

    def ended(self, partition: TopicPartition) -> None:
        """Note that a partition is complete. Later records are read while the client runs."""
        self._left = {**self._left, partition: 0}
        self._listener.on_restore_end(partition, self._stores[partition.topic], self._totals[partition])

    def finished(self, now_ms: int) -> None:
        """Note that all stores are restored, or that the restoration was cancelled."""
        self._left = {}
        self._meter.ended(now_ms)
