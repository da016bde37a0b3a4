"""The offsets to commit for one task: its next offset in each input partition, and the times stored with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streams_protocol.types import TopicPartition
from streams_py.ports import OffsetAndMetadata, RawRecord
from streams_py.runtime.tasks.asynchronous.in_flight import InFlight
from streams_py.runtime.tasks.record.loop import InputPositions, RecordLoop
from streams_py.runtime.tasks.record.node_times import NodeTimes
from streams_py.runtime.tasks.record.offset_metadata import (
    UNKNOWN_TIME,
    OffsetMetadata,
    decode_offset_metadata,
    encode_offset_metadata,
)


class CommitPositions:
    """The positions of a task's input partitions: committed positions, and positions that could be committed.

    Several methods have these parameters:

    * ``calls``: the task's records in flight outside of its thread, if any. No commit passes them.
    * ``queues_are_valid``: False once the queues were emptied. The consumer's position is then too far ahead.
    """

    def __init__(self, loop: RecordLoop, inputs: InputPositions) -> None:
        self._loop = loop
        self._inputs = inputs
        self.committed: dict[TopicPartition, int] = {}
        """Offsets of the last commit, for partitions that were read from."""
        self._offered: dict[TopicPartition, int] | None = None
        self._started_at: dict[TopicPartition, int] = {}
        self._restarted: dict[TopicPartition, RawRecord | None] = {}
        """Partitions whose logs were replaced, with the last record of the former log that is still in the queue."""
        self.processor_metadata: dict[str, int] = {}
        """Numbers that processors want to commit with the offsets, by store name."""
        self._node_times: NodeTimes | None = None

    def read(self, committed: Mapping[TopicPartition, OffsetAndMetadata | None], node_times: NodeTimes) -> int:
        """Read partition times and processors' numbers from the committed offsets, and set the nodes' stream times.

        Return the stream time of the task in ms.
        """
        stream_time_ms = UNKNOWN_TIME
        for partition, queue in self._loop.queues.items():
            entry = committed.get(partition)
            if entry is None:
                continue
            self._started_at[partition] = queue.next_offset = entry.offset
            metadata = decode_offset_metadata(entry.metadata)
            queue.partition_time_ms = metadata.partition_time_ms
            stream_time_ms = max(stream_time_ms, metadata.partition_time_ms)
            for name, value in metadata.processors.items():
                self.processor_metadata[name] = max(value, self.processor_metadata.get(name, value))
        node_times.restore(self.processor_metadata)
        self._node_times = node_times
        return stream_time_ms

    def start_again_at(self, partition: TopicPartition) -> None:
        """Handle a replaced log, or a consumer that went back: the committed offset no longer belongs to the log.

        The new position is committed soon.
        """
        self._restarted[partition] = self._loop.start_again_at(partition)
        self.committed.pop(partition, None)
        self._started_at.pop(partition, None)

    def passed_over(self) -> bool:
        """Whether the consumer has skipped transaction markers, or has a position in a replaced log."""
        for partition, queue in self._loop.queues.items():
            position = None if queue.buffer else self._inputs.position(partition)
            if position is not None and position > self._known(partition):
                return True
        return False

    def _known(self, partition: TopicPartition) -> int:
        """Return the position that the group has, or will have after the next commit in any case."""
        if partition in self.committed:
            return self.committed[partition]
        if partition in self._restarted:
            return -1
        consumed = self._loop.queues[partition].consumed_offset
        return consumed + 1 if consumed >= 0 else self._started_at.get(partition, 0)

    def offsets(self, calls: InFlight | None, *, queues_are_valid: bool) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit, with partition times as metadata. Valid after a flush."""
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self._offered = self._positions(calls, queues_are_valid=queues_are_valid)
        for partition, offset in self._offered.items():
            time_ms = self._loop.queues[partition].partition_time_ms
            if calls is not None:
                time_ms = calls.oldest_ms(time_ms)
            offsets[partition] = self._entry(offset, time_ms)
        return offsets

    def fence(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the position of one partition, for a transaction in which no record was processed.

        A broker checks a member's generation only if the transaction sends offsets. Empty while the consumer does not
        know its position.
        """
        for partition, queue in self._loop.queues.items():
            position = self._inputs.position(partition)
            if queue.buffer or queue.consumed_offset >= 0 or (position is not None and position >= 0):
                offset = self._next_offset(partition, queues_are_valid=True)
                if offset is not None:
                    return {partition: self._entry(offset, queue.partition_time_ms)}
        return {}

    def _entry(self, offset: int, time_ms: int) -> OffsetAndMetadata:
        if self._node_times is not None:
            self._node_times.note(self.processor_metadata)
        return OffsetAndMetadata(offset, encode_offset_metadata(OffsetMetadata(time_ms, self.processor_metadata)))

    def note_committed(self, calls: InFlight | None, *, queues_are_valid: bool) -> None:
        """Note that the offered offsets are committed.

        The current positions may already be further ahead: records may have arrived while the commit was running.
        """
        offered, self._offered = self._offered, None
        self.committed.update(self._positions(calls, queues_are_valid=queues_are_valid) if offered is None else offered)

    def _positions(self, calls: InFlight | None, *, queues_are_valid: bool) -> dict[TopicPartition, int]:
        """Return the offset of the first unfinished record of each partition; empty if that is unknown."""
        if calls is not None and calls.holds_everything:
            return {}
        positions = {
            partition: offset
            for partition in self._loop.queues
            if self._has_moved(partition, queues_are_valid=queues_are_valid)
            and (offset := self._next_offset(partition, queues_are_valid=queues_are_valid)) is not None
        }
        if calls is None:
            return positions
        return {partition: calls.lowest_offset(partition, offset) for partition, offset in positions.items()}

    def _has_moved(self, partition: TopicPartition, *, queues_are_valid: bool) -> bool:
        """Whether a record was processed or something was skipped."""
        queue = self._loop.queues[partition]
        if queue.consumed_offset >= 0 or partition in self._restarted:
            return True
        position = self._inputs.position(partition) if queues_are_valid and not queue.buffer else None
        return position is not None and position > self._known(partition)

    def _next_offset(self, partition: TopicPartition, *, queues_are_valid: bool) -> int | None:
        queue = self._loop.queues[partition]
        if partition in self._restarted:
            return self._next_of_restarted(partition, queues_are_valid=queues_are_valid)
        if queue.buffer:
            return queue.buffer[0].offset()
        if not queues_are_valid:
            return queue.consumed_offset + 1
        return max(queue.consumed_offset + 1, self._inputs.position(partition) or 0)

    def _next_of_restarted(self, partition: TopicPartition, *, queues_are_valid: bool) -> int | None:
        """Return the next offset of a partition whose log was replaced.

        While a record of the former log is in the queue, offset 0 is committed, so that a new owner reads the new log
        from its beginning.
        """
        queue, former = self._loop.queues[partition], self._restarted[partition]
        if former is not None and (not queues_are_valid or any(record is former for record in queue.buffer)):
            return 0
        if queue.buffer:
            return queue.buffer[0].offset()
        if queues_are_valid:
            return self._inputs.position(partition)
        return queue.consumed_offset + 1 if queue.consumed_offset >= 0 else None

    def contained(self, *, may_wait: bool) -> dict[TopicPartition, int]:
        """Return the last offset of each partition whose effects are in the stores, if known. Thread-safe.

        Args:
            may_wait: Whether records may wait in asynchronous calls, so that only committed offsets are certain.
        """
        sure = {**self._started_at, **self.committed}
        known = {partition: offset - 1 for partition, offset in sure.items() if offset > 0}
        if not may_wait:
            taken = list(self._loop.queues.items())
            known.update((partition, queue.consumed_offset) for partition, queue in taken if queue.consumed_offset >= 0)
        return known

    def source_progress(self, changelogs: Collection[TopicPartition], *, under_way: bool) -> dict[TopicPartition, int]:
        """Return the last valid offset of each source topic that is a changelog. ``under_way``: calls are running."""
        progress = {}
        for partition in changelogs:
            queue = self._loop.queues.get(partition)
            if queue is None or queue.consumed_offset < 0:
                continue
            if not under_way:
                progress[partition] = queue.consumed_offset
            elif partition in self.committed:  # records in flight are read again: their table must not be newer
                progress[partition] = self.committed[partition] - 1
        return progress

    def clear(self) -> None:
        """Forget all records that were consumed before."""
        self.committed.clear()
        self._offered = None
        self._started_at.clear()
        self._restarted.clear()
        self.processor_metadata.clear()
        self._node_times = None
