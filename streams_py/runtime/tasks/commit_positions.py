"""What one task is to commit: the offset of its next record in each input partition, and the times that go with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streams_protocol.types import TopicPartition
from streams_py.ports import OffsetAndMetadata, RawRecord
from streams_py.runtime.tasks.asynchronous.in_flight import InFlight
from streams_py.runtime.tasks.node_times import NodeTimes
from streams_py.runtime.tasks.offset_metadata import (
    UNKNOWN_TIME,
    OffsetMetadata,
    decode_offset_metadata,
    encode_offset_metadata,
)
from streams_py.runtime.tasks.record_loop import InputPositions, RecordLoop

__all__ = ["CommitPositions"]


class CommitPositions:
    """The positions of a task's input partitions: those that are committed, and those that could be.

    ``calls`` of the methods are the records under way outside of the task's thread, if it has any: no commit passes
    them. ``running`` is False when the queues were emptied, so that the consumer's position is too far.
    """

    def __init__(self, loop: RecordLoop, inputs: InputPositions) -> None:
        self._loop = loop
        self._inputs = inputs
        self.committed: dict[TopicPartition, int] = {}
        """Offsets of the last commit, for partitions that were read from."""
        self._offered: dict[TopicPartition, int] | None = None
        self._started_at: dict[TopicPartition, int] = {}
        self._restarted: dict[TopicPartition, RawRecord | None] = {}
        """Partitions whose logs are others than before, with the last record of the former log that still waited."""
        self.processor_metadata: dict[str, int] = {}
        """What processors want to be committed with the offsets, by store name."""
        self._node_times: NodeTimes | None = None

    def read(self, committed: Mapping[TopicPartition, OffsetAndMetadata | None], node_times: NodeTimes) -> int:
        """Take partition times and processors' metadata from the committed offsets, and set the nodes' stream times.
        Returns the stream time of the task in ms."""
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
        """The log of a partition is another one than before, or the consumer went back in it. What was committed says
        nothing about the log, so the new position is committed soon."""
        self._restarted[partition] = self._loop.start_again_at(partition)
        self.committed.pop(partition, None)
        self._started_at.pop(partition, None)

    def passed_over(self) -> bool:
        """True when the consumer has passed over transaction markers, or has a position in another log than before."""
        for partition, queue in self._loop.queues.items():
            position = None if queue.buffer else self._inputs.position(partition)
            if position is not None and position > self._known(partition):
                return True
        return False

    def _known(self, partition: TopicPartition) -> int:
        """The position that the group has, or gets with the next commit in any case."""
        if partition in self.committed:
            return self.committed[partition]
        if partition in self._restarted:
            return -1
        consumed = self._loop.queues[partition].consumed_offset
        return consumed + 1 if consumed >= 0 else self._started_at.get(partition, 0)

    def offsets(self, calls: InFlight | None, *, running: bool) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit, with partition times as metadata. Valid after a flush."""
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self._offered = self._positions(calls, running=running)
        for partition, offset in self._offered.items():
            time_ms = self._loop.queues[partition].partition_time_ms
            if calls is not None:
                time_ms = calls.oldest_ms(time_ms)
            offsets[partition] = self._entry(offset, time_ms)
        return offsets

    def fence(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where one partition stands, for a transaction in which no record was taken: a broker looks at the generation
        of a member only when offsets are sent. Empty while the consumer does not know where it is."""
        for partition, queue in self._loop.queues.items():
            position = self._inputs.position(partition)
            if queue.buffer or queue.consumed_offset >= 0 or (position is not None and position >= 0):
                offset = self._next_offset(partition, running=True)
                if offset is not None:
                    return {partition: self._entry(offset, queue.partition_time_ms)}
        return {}

    def _entry(self, offset: int, time_ms: int) -> OffsetAndMetadata:
        if self._node_times is not None:
            self._node_times.note(self.processor_metadata)
        return OffsetAndMetadata(offset, encode_offset_metadata(OffsetMetadata(time_ms, self.processor_metadata)))

    def note_committed(self, calls: InFlight | None, *, running: bool) -> None:
        """What was to be committed is. Not what could be now: while others committed it, records may have come, and be
        further than what was passed over before them."""
        offered, self._offered = self._offered, None
        self.committed.update(self._positions(calls, running=running) if offered is None else offered)

    def _positions(self, calls: InFlight | None, *, running: bool) -> dict[TopicPartition, int]:
        """Offset of the first record of each partition that is not known to be done; nothing when that is unknown."""
        if calls is not None and calls.holds_everything:
            return {}
        positions = {
            partition: offset
            for partition in self._loop.queues
            if self._has_moved(partition, running=running)
            and (offset := self._next_offset(partition, running=running)) is not None
        }
        if calls is None:
            return positions
        return {partition: calls.lowest_offset(partition, offset) for partition, offset in positions.items()}

    def _has_moved(self, partition: TopicPartition, *, running: bool) -> bool:
        """Whether a record was taken, or something else was passed over."""
        queue = self._loop.queues[partition]
        if queue.consumed_offset >= 0 or partition in self._restarted:
            return True
        position = self._inputs.position(partition) if running and not queue.buffer else None
        return position is not None and position > self._known(partition)

    def _next_offset(self, partition: TopicPartition, *, running: bool) -> int | None:
        queue = self._loop.queues[partition]
        if partition in self._restarted:
            return self._next_of_restarted(partition, running=running)
        if queue.buffer:
            return queue.buffer[0].offset()
        if not running:
            return queue.consumed_offset + 1
        return max(queue.consumed_offset + 1, self._inputs.position(partition) or 0)

    def _next_of_restarted(self, partition: TopicPartition, *, running: bool) -> int | None:
        """While a record of the former log waits, the new log is committed as unread: a member that takes over reads it
        from its beginning."""
        queue, former = self._loop.queues[partition], self._restarted[partition]
        if former is not None and (not running or any(record is former for record in queue.buffer)):
            return 0
        if queue.buffer:
            return queue.buffer[0].offset()
        if running:
            return self._inputs.position(partition)
        return queue.consumed_offset + 1 if queue.consumed_offset >= 0 else None

    def contained(self, *, may_wait: bool) -> dict[TopicPartition, int]:
        """Last offset of each partition that the stores contain the effects of; those of which nothing is known are
        missing. ``may_wait``: records may wait outside, so only what is committed is sure. For any thread."""
        sure = {**self._started_at, **self.committed}
        known = {partition: offset - 1 for partition, offset in sure.items() if offset > 0}
        if not may_wait:
            taken = list(self._loop.queues.items())
            known.update((partition, queue.consumed_offset) for partition, queue in taken if queue.consumed_offset >= 0)
        return known

    def source_progress(self, changelogs: Collection[TopicPartition], *, under_way: bool) -> dict[TopicPartition, int]:
        """Last offset that counts for each source topic that is a changelog. ``under_way``: calls have not ended."""
        progress = {}
        for partition in changelogs:
            queue = self._loop.queues.get(partition)
            if queue is None or queue.consumed_offset < 0:
                continue
            if not under_way:
                progress[partition] = queue.consumed_offset
            elif partition in self.committed:  # what is under way is read again, and must not meet its own future
                progress[partition] = self.committed[partition] - 1
        return progress

    def clear(self) -> None:
        """Nothing that was consumed before counts any more."""
        self.committed.clear()
        self._offered = None
        self._started_at.clear()
        self._restarted.clear()
        self.processor_metadata.clear()
        self._node_times = None
