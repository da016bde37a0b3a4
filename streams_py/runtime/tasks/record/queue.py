"""Records of one input partition that wait for their task (Kafka Streams' ``RecordQueue``).

Records are decoded only when they are needed. A record remains in the buffer until it has been processed. So between
two calls of the record loop, the first offset in the buffer is the offset to commit: no failure can skip a record.

A task with several partitions needs timestamps to choose the next record. There the first usable record of a queue, its
*head*, is decoded ahead. A task with one partition needs no heads, see :class:`RecordLoop`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from streams_protocol.types import TopicPartition
from streams_py.ports import RawRecord
from streams_py.runtime.tasks.record.offset_metadata import UNKNOWN_TIME
from streams_py.serdes import Serde
from streams_py.topology.declare.nodes import Process

_log = logging.getLogger(__name__)


class SourceReader(NamedTuple):
    """How the records of one topic are read.

    ``extract`` is the timestamp extractor; None means the record's own timestamp, which must be valid.
    ``extract_within``: whether the extractor also receives the record's context.
    """

    node: str
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    decode_key: Callable[[bytes], Any]
    decode_value: Callable[[bytes], Any]
    extract: Callable[..., int] | None
    process: Process
    extract_within: bool = False


class RecordQueue:
    """FIFO of one input partition, and facts about the records that were processed.

    ``partition_time_ms``: largest timestamp processed; -1 if unknown. ``consumed_offset``: offset of the last record
    that was processed or skipped; -1 without any. ``next_offset``: lowest offset of the next record. ``paused``:
    whether the consumer was asked to stop fetching.
    """

    __slots__ = (
        "buffer",
        "consumed_offset",
        "head_key",
        "head_timestamp_ms",
        "head_value",
        "idle_deadline_ms",
        "next_offset",
        "partition",
        "partition_time_ms",
        "paused",
        "reader",
        "received",
        "received_bytes",
    )

    def __init__(self, partition: TopicPartition, reader: SourceReader) -> None:
        self.partition = partition
        self.reader = reader
        self.buffer: deque[RawRecord] = deque()
        self.head_key: Any = None
        self.head_value: Any = None
        self.head_timestamp_ms = UNKNOWN_TIME
        self.partition_time_ms = UNKNOWN_TIME
        self.consumed_offset = -1
        self.next_offset = 0
        self.received = 0
        self.received_bytes = 0  # 0 unless bytes are counted
        self.idle_deadline_ms: int | None = None
        self.paused = False

    def only_new(self, records: Sequence[RawRecord]) -> Sequence[RawRecord]:
        """Return the records that have not been delivered before, in ascending order; update the next offset.

        A consumer that goes back on its own (for example when a leader changes) would have records counted twice, and
        the next commit would go back, too. No transaction would detect that. Records are only checked one by one if the
        batch begins too early, or has more records than offsets.
        """
        first, last = records[0].offset(), records[-1].offset()
        if first >= self.next_offset and last - first >= len(records) - 1:
            self.next_offset = last + 1
            return records
        new = []
        for record in records:
            offset = record.offset()
            if offset >= self.next_offset:
                new.append(record)
                self.next_offset = offset + 1
        if len(new) < len(records):
            _log.warning(
                "%s: the consumer delivered %d of %d records (offsets %d to %d) again; ignoring the duplicates",
                self.partition,
                len(records) - len(new),
                len(records),
                first,
                last,
            )
        return new

    def drop(self, count: int) -> None:
        """Remove the first ``count`` records from the buffer."""
        buffer = self.buffer
        if count == len(buffer):
            buffer.clear()
            return
        for _ in repeat(None, count):
            buffer.popleft()

    def clear(self) -> None:
        """Forget records and times. The consumed offset stays, because it must still be committed."""
        self.buffer.clear()
        self.next_offset = self.consumed_offset + 1
        self.head_key = self.head_value = None
        self.partition_time_ms = UNKNOWN_TIME
        self.idle_deadline_ms = None
        self.paused = False
