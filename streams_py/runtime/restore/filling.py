"""How far the filling of global stores is before anything runs, and who hears of it (as Kafka Streams' restore listener
does). One client may need minutes for them, and its start waits for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streams_protocol.types import TaskId, TopicPartition
from streams_py.ports import RawRecord
from streams_py.runtime.restore.listener import RestoreListener
from streams_py.runtime.restore.progress import RestoreMeter, RestoreProgress

__all__ = ["GLOBAL_TASK", "Filling"]

GLOBAL_TASK = TaskId(-1, -1)
"""Kafka Streams' id of what is no task of a group."""


class Filling:
    """Noted on the thread that fills the stores, which calls ``listener``; :meth:`progress` is for any thread.
    ``stores``: the store of each topic."""

    def __init__(self, name: str, stores: Mapping[str, str], listener: RestoreListener) -> None:
        self._stores = stores
        self._listener = listener
        self._left: Mapping[TopicPartition, int] = {}
        self._totals: dict[TopicPartition, int] = {}
        self._meter = RestoreMeter(name, lambda: {GLOBAL_TASK: sum(self._left.values())})

    def progress(self) -> RestoreProgress:
        """As of the last batch."""
        return self._meter.progress()

    def expect(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """All that is to be read: offsets from the first up to, not including, the second."""
        self._left = {partition: max(0, end - start) for partition, (start, end) in spans.items()}

    def started(self, partition: TopicPartition, start: int, end: int) -> None:
        self._totals[partition] = 0
        self._listener.on_restore_start(partition, self._stores[partition.topic], start, end)

    def applied(self, partition: TopicPartition, records: Sequence[RawRecord], end: int, now_ms: int) -> None:
        """These records are in the store; offsets up to, not including, ``end`` are wanted."""
        last = records[-1].offset()
        self._left = {**self._left, partition: max(0, end - last - 1)}
        self._totals[partition] += len(records)
        self._meter.count(records, now_ms)
        self._listener.on_batch_restored(partition, self._stores[partition.topic], last, len(records))

    def ended(self, partition: TopicPartition) -> None:
        """What follows is read when everything runs."""
        self._left = {**self._left, partition: 0}
        self._listener.on_restore_end(partition, self._stores[partition.topic], self._totals[partition])

    def finished(self, now_ms: int) -> None:
        """All of them are filled, or nobody waits for that any more."""
        self._left = {}
        self._meter.ended(now_ms)
