"""Records of one input partition that wait for their task (Kafka Streams' ``RecordQueue``).

Records stay raw until they are needed. A record remains in the buffer until it has been processed, so between two calls
of the record loop the first offset in the buffer is the one to commit: whatever fails, nothing is skipped.

A task with several partitions has to look at timestamps before it can choose: there the first usable record of a queue
is decoded ahead (its *head*). A task with one partition never needs heads, see ``ActiveTask``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from streams_protocol.types import TopicPartition
from streams_py.ports import RawRecord
from streams_py.runtime.tasks.offset_metadata import UNKNOWN_TIME
from streams_py.serdes import Serde
from streams_py.topology.nodes import Process

__all__ = ["RecordQueue", "SourceReader"]

_log = logging.getLogger(__name__)


class SourceReader(NamedTuple):
    """How the records of one topic are read. ``extract`` None = the record's own timestamp, which must exist;
    ``extract_within``: it takes the context of the record as well."""

    node: str
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    decode_key: Callable[[bytes], Any]
    decode_value: Callable[[bytes], Any]
    extract: Callable[..., int] | None
    process: Process
    extract_within: bool = False


class RecordQueue:
    """FIFO of one input partition and what is remembered of the records taken from it.

    ``partition_time_ms``: largest timestamp taken, -1 unknown. ``consumed_offset``: offset of the last record taken (or
    skipped), -1 when none was. ``next_offset``: what comes next has this offset or a later one. ``paused``: the
    consumer was asked not to fetch more.
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
        self.received_bytes = 0  # when they are counted
        self.idle_deadline_ms: int | None = None
        self.paused = False

    def only_new(self, records: Sequence[RawRecord]) -> Sequence[RawRecord]:
        """Those of ``records`` that have not come before, each after the one before it; notes what comes next.

        A consumer that goes back by itself (when a leader changes, say) would have records counted twice, and the next
        commit would go back with it: no transaction would notice. Only an answer that begins too early, or has more
        records than offsets, is looked at record by record.
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
                "%s: the consumer delivered %d of %d records (offsets %d to %d) again; they are left out",
                self.partition,
                len(records) - len(new),
                len(records),
                first,
                last,
            )
        return new

    def drop(self, count: int) -> None:
        """Take the first ``count`` records out of the buffer."""
        buffer = self.buffer
        if count == len(buffer):
            buffer.clear()
            return
        for _ in repeat(None, count):
            buffer.popleft()

    def clear(self) -> None:
        """Forget records and times (the offset consumed stays: it is still to be committed)."""
        self.buffer.clear()
        self.next_offset = self.consumed_offset + 1
        self.head_key = self.head_value = None
        self.partition_time_ms = UNKNOWN_TIME
        self.idle_deadline_ms = None
        self.paused = False
