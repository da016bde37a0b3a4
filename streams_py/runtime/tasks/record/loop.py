"""The record path: from the queues of a task's input partitions into its nodes.

Source: Kafka Streams' ``PartitionGroup`` and the processing half of ``StreamTask``. Every record pays for this code, so
it is written for speed. A single input partition needs no choice between records: :meth:`RecordLoop._run_one` reads
straight from its queue with everything in local variables. With several partitions the record with the smallest
timestamp is next, and the task waits for partitions that may still deliver older records (KIP-353, KIP-695:
``max.task.idle.ms``).

A record stays in its queue until it has been processed, so a record whose processing raised is not consumed.
:meth:`_run_one` removes the processed records from the queue together at the end, because until then its iterator needs
them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, repeat
from operator import length_hint
from typing import Any, Protocol

from streams_protocol.types import TopicPartition
from streams_py.errors import StreamsError
from streams_py.ports import Clock, RawRecord
from streams_py.ports.record_headers import headers_of, headers_of_all
from streams_py.runtime.tasks.record.failures import Failures
from streams_py.runtime.tasks.record.measuring import bytes_of
from streams_py.runtime.tasks.record.offset_metadata import UNKNOWN_TIME
from streams_py.runtime.tasks.record.queue import RecordQueue, SourceReader
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.metrics.averages import Sampled

NEVER_WAIT = -1
"""``max.task.idle.ms``: process buffered records without waiting for other partitions."""

_NONE: frozenset[TopicPartition] = frozenset()


class InputPositions(Protocol):
    """The part of the consumer that a task uses; every RecordConsumer has it."""

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record to be delivered; None if it is not known yet."""

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of records on the broker that were not delivered yet; None if unknown."""


class RecordLoop:
    """Queues of one task, and the loop that empties them.

    Args:
        buffered_max: Queue length above which a partition is paused.
        idle_max_ms: How long to wait for an empty but caught-up partition while others have records. -1: never wait,
            not even for records that are known to exist.
        counts_bytes: Whether to count the bytes of the records read.
    """

    def __init__(
        self,
        record: RecordContext,
        failures: Failures,
        inputs: InputPositions,
        clock: Clock,
        *,
        buffered_max: int,
        idle_max_ms: int,
        counts_bytes: bool = False,
    ) -> None:
        self._record = record
        self._failures = failures
        self._inputs = inputs
        self._clock = clock
        self._buffered_max = buffered_max
        self._idle_max_ms = idle_max_ms
        self._counts_bytes = counts_bytes
        self.queues: dict[TopicPartition, RecordQueue] = {}
        self.progressed = False
        """Whether a record was processed; a commit resets it."""
        self.enforced = 0
        """Number of records processed although a partition without records might have delivered an older record."""
        self.end_to_end: dict[str, Sampled] = {}
        """Age of records when they are processed, in ms, by source node.

        This is a sample: only the first record of some calls of :meth:`run`. Reading the clock for each record would
        slow down every record.
        """
        self.samples_next = True
        self._only: RecordQueue | None = None  # the queue of a task that needs no choice
        self._heads: list[tuple[int, int, RecordQueue]] = []  # timestamp, number of the queue; a heap
        self._order: dict[TopicPartition, int] = {}
        self._headless: list[RecordQueue] = []
        self._to_pause: set[TopicPartition] = set()
        self._to_resume: set[TopicPartition] = set()
        self._batch: Sequence[RawRecord] = ()  # records being processed
        self._rest: Iterator[RawRecord] = iter(())  # of the batch, after the record in process

    def current_raw(self) -> RawRecord | None:
        """Return the record in process."""
        batch = self._batch
        return batch[len(batch) - length_hint(self._rest) - 1] if batch else None

    def set_readers(self, readers: Mapping[TopicPartition, SourceReader]) -> None:
        """Read exactly these partitions. Queues of partitions that stay are kept."""
        self.queues = {partition: self._queue(partition, readers[partition]) for partition in sorted(readers)}
        self.end_to_end = {r.node: self.end_to_end.get(r.node) or Sampled() for r in readers.values()}
        self._order = {partition: order for order, partition in enumerate(self.queues)}
        only = next(iter(self.queues.values())) if len(self.queues) == 1 else None
        self._only = None if only is None or only.reader.extract is not None else only
        self._heads.clear()
        self._headless = list(self.queues.values())
        self._to_pause.intersection_update(self.queues)
        self._to_resume.intersection_update(self.queues)

    def _queue(self, partition: TopicPartition, reader: SourceReader) -> RecordQueue:
        queue = self.queues.get(partition)
        if queue is None:
            return RecordQueue(partition, reader)
        queue.reader = reader
        return queue

    def clear(self) -> None:
        """Forget all times and all records that were read but not processed."""
        for queue in self.queues.values():
            queue.clear()
        self._heads.clear()
        self._headless = list(self.queues.values())
        self._to_pause.clear()
        self._to_resume.clear()
        self._record.stream_time_ms = UNKNOWN_TIME

    # -- adding records ---------------------------------------------------------------------------------

    def add(self, partition: TopicPartition, records: Sequence[RawRecord]) -> None:
        """Append records of one partition, in offset order."""
        queue = self.queues[partition]
        records = queue.only_new(records)
        queue.buffer.extend(records)
        queue.received += len(records)
        if self._counts_bytes:
            queue.received_bytes += bytes_of(records)
        if not queue.paused and len(queue.buffer) > self._buffered_max:
            queue.paused = True
            self._to_pause.add(partition)
            self._to_resume.discard(partition)

    def start_again_at(self, partition: TopicPartition) -> RawRecord | None:
        """Accept any offset from this partition from now on, if it is read here.

        Return the last buffered record, which comes from the former log; None if the queue is empty.
        """
        queue = self.queues.get(partition)
        if queue is None:
            return None
        queue.next_offset = 0
        if queue.buffer:
            return queue.buffer[-1]
        queue.consumed_offset = -1
        return None

    def take_to_pause(self) -> frozenset[TopicPartition]:
        """Return the partitions whose queue has become too long since the last call."""
        if not self._to_pause:
            return _NONE
        taken = frozenset(self._to_pause)
        self._to_pause.clear()
        return taken

    def take_to_resume(self) -> frozenset[TopicPartition]:
        """Return the partitions whose queue has room again since the last call."""
        if not self._to_resume:
            return _NONE
        taken = frozenset(self._to_resume)
        self._to_resume.clear()
        return taken

    # -- processing records -----------------------------------------------------------------------------

    def run(self, max_records: int) -> int:
        """Process up to ``max_records`` records and return their number. A record that raises does not count."""
        only = self._only
        if only is None and self._headless:
            self._find_heads()  # once is enough: no records are added while this runs
        if not (self._heads if only is None else only.buffer):
            return 0
        sample = self._next(only) if self.samples_next else None
        taken = self._run_many(max_records) if only is None else self._run_one(only, max_records)
        if taken and sample is not None:
            self.samples_next = False
            node, timestamp_ms = sample
            if timestamp_ms >= 0:
                now_ms = self._clock.now_ms()
                self.end_to_end[node].add(now_ms - timestamp_ms, now_ms)
        return taken

    def _next(self, only: RecordQueue | None) -> tuple[str, int]:
        """Return source node and timestamp of the next record."""
        if only is not None:
            return only.reader.node, only.buffer[0].timestamp()[1]
        timestamp_ms, _, queue = self._heads[0]
        return queue.reader.node, timestamp_ms

    def _run_one(self, queue: RecordQueue, max_records: int) -> int:
        batch = list(islice(queue.buffer, max_records))
        reader = queue.reader
        decode_key, decode_value, process = reader.decode_key, reader.decode_value, reader.process
        record = self._record
        record.topic, record.partition = queue.partition
        record.system_time_ms = self._clock.now_ms()
        partition_time = queue.partition_time_ms
        rest = iter(batch)
        self._batch, self._rest = batch, rest
        # Reads the headers of all records, so that raw.headers() is cheap.
        some_have_headers = any(headers_of_all(batch))
        ended = False
        try:
            for raw in rest:
                key = raw.key()
                value = raw.value()
                try:
                    if key is not None:
                        key = decode_key(key)
                    if value is not None:
                        value = decode_value(value)
                except Exception as error:
                    self._failures.undecodable(reader, raw, error)
                    continue
                timestamp = raw.timestamp()[1]
                if timestamp > partition_time:
                    partition_time = timestamp
                    if timestamp > record.stream_time_ms:
                        record.stream_time_ms = timestamp
                elif timestamp < 0:
                    raise self._failures.no_timestamp(reader, raw)
                record.offset = raw.offset()
                record.timestamp = timestamp
                record.headers = raw.headers() or () if some_have_headers else ()
                process(key, value, timestamp)
            ended = True
        except StreamsError:
            raise
        except Exception as error:
            raise self._failures.unexpected(error, reader.node) from error
        finally:
            taken = len(batch) if ended else len(batch) - length_hint(rest) - 1
            self._batch = ()
            queue.partition_time_ms = partition_time
            if taken:
                queue.drop(taken)
                self._note_taken(queue, batch[taken - 1])
        return taken

    def _note_taken(self, queue: RecordQueue, raw: RawRecord) -> None:
        queue.consumed_offset = raw.offset()
        self.progressed = True
        if queue.paused and len(queue.buffer) <= self._buffered_max:
            queue.paused = False
            if queue.partition in self._to_pause:
                self._to_pause.discard(queue.partition)  # it is not paused in the consumer yet
            else:
                self._to_resume.add(queue.partition)

    def _run_many(self, max_records: int) -> int:
        record = self._record
        heads = self._heads
        count = 0
        enforced = False
        enough = len(self.queues) or 1  # number of heads needed to choose; a pattern may match no topic yet
        for _ in repeat(None, max_records):
            if len(heads) < enough:
                if not heads or not self.ready():
                    break
                enough = len(heads)
                enforced = self._idle_max_ms != NEVER_WAIT
                if enough == 1 and heads[0][2].reader.extract is None:  # no choice, as with one partition
                    queue = heads.pop()[2]
                    self._headless.append(queue)
                    waiting = len(queue.buffer)
                    try:
                        return count + self._run_one(queue, max_records - count)
                    finally:
                        self.enforced += (waiting - len(queue.buffer)) * enforced
            timestamp, order, queue = heads[0]
            raw, reader = queue.buffer[0], queue.reader
            if not count:
                record.system_time_ms = self._clock.now_ms()
            record.topic, record.partition = queue.partition
            record.offset = raw.offset()
            record.timestamp = timestamp
            record.headers = headers_of(raw) or ()
            if timestamp > queue.partition_time_ms:
                queue.partition_time_ms = timestamp
                if timestamp > record.stream_time_ms:
                    record.stream_time_ms = timestamp
            self._batch = (raw,)
            try:
                reader.process(queue.head_key, queue.head_value, timestamp)
            except StreamsError:
                raise
            except Exception as error:
                raise self._failures.unexpected(error, reader.node) from error
            finally:
                self._batch = ()
            count += 1
            if enforced:
                self.enforced += 1
            queue.buffer.popleft()
            self._note_taken(queue, raw)
            try:
                has_head = self._decode_head(queue)
            except BaseException:
                heapq.heappop(heads)  # its record was processed, and the next record is not decoded yet
                self._headless.append(queue)
                raise
            if has_head:
                heapq.heapreplace(heads, (queue.head_timestamp_ms, order, queue))
            else:
                heapq.heappop(heads)
                self._headless.append(queue)
        return count

    def is_tied(self) -> bool:
        """Whether the two smallest timestamps of the queues' heads are equal."""
        if len(self.queues) < 2:
            return False
        self._find_heads()
        smallest = heapq.nsmallest(2, (head[0] for head in self._heads))
        return len(smallest) == 2 and smallest[0] == smallest[1]

    def _find_heads(self) -> None:
        """Decode the first record of each queue that has received records since it became empty."""
        headless = self._headless
        for queue in list(headless):
            if self._decode_head(queue):
                headless.remove(queue)  # before the next queue, which may raise
                queue.idle_deadline_ms = None
                heapq.heappush(self._heads, (queue.head_timestamp_ms, self._order[queue.partition], queue))

    def _decode_head(self, queue: RecordQueue) -> bool:
        """Decode the first usable record of the queue as its head, skipping others. Return False without one.

        Skipped records count as processed, so that their offsets are committed.
        """
        reader, buffer = queue.reader, queue.buffer
        decode_key, decode_value, extract = reader.decode_key, reader.decode_value, reader.extract
        queue.head_key = queue.head_value = None
        while buffer:
            raw = buffer[0]
            key, value = raw.key(), raw.value()
            try:
                if key is not None:
                    key = decode_key(key)
                if value is not None:
                    value = decode_value(value)
            except Exception as error:
                self._failures.undecodable(reader, raw, error)
                self._skip(queue)
                continue
            timestamp = raw.timestamp()[1]
            if extract is not None or timestamp < 0:
                extracted = time_of(reader, raw, key, value, queue.partition_time_ms, self._failures)
                if extracted is None:
                    self._skip(queue)
                    continue
                timestamp = extracted
            queue.head_key, queue.head_value, queue.head_timestamp_ms = key, value, timestamp
            return True
        return False

    def _skip(self, queue: RecordQueue) -> None:
        self._note_taken(queue, queue.buffer.popleft())

    def has_input(self) -> bool:
        """Whether records wait in a queue or on the broker. True if the lag of an empty partition is unknown."""
        return any(queue.buffer or self._inputs.lag(queue.partition) != 0 for queue in self.queues.values())

    # -- waiting for other partitions -------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether the next record may be processed now, although some partitions may have no buffered records.

        An empty partition makes the task wait while the broker has records of it, or may have. Then the task waits for
        ``idle_max_ms`` more, in case a producer is late. A deadline that has passed stays valid until the partition
        delivers again. So an idle partition delays the task once, not for every record.
        """
        queues = self.queues.values()
        if self._idle_max_ms == NEVER_WAIT:
            return any(queue.buffer for queue in queues)
        now_ms: int | None = None
        empty = 0
        for queue in queues:
            if queue.buffer:
                queue.idle_deadline_ms = None
                continue
            empty += 1
            lag = self._inputs.lag(queue.partition)
            if lag is None or lag > 0:
                queue.idle_deadline_ms = None
                return False
            if now_ms is None:
                now_ms = self._clock.monotonic_ms()  # the wall clock may be set back
            if queue.idle_deadline_ms is None:
                queue.idle_deadline_ms = now_ms + self._idle_max_ms
            if now_ms < queue.idle_deadline_ms:
                return False
        return empty < len(self.queues)


def time_of(
    reader: SourceReader, raw: RawRecord, key: Any, value: Any, partition_time_ms: int, failures: Failures
) -> int | None:
    """Return the timestamp of a decoded record, from its source's extractor if it has one. None drops the record.

    Raises:
        StreamsError: The extractor failed, or the source has no extractor and the record no valid timestamp.
    """
    timestamp_ms = raw.timestamp()[1]
    if reader.extract is None:
        if timestamp_ms < 0:
            raise failures.no_timestamp(reader, raw)
        return timestamp_ms
    try:
        about = (_context_of(raw),) if reader.extract_within else ()
        extracted = reader.extract(key, value, timestamp_ms, partition_time_ms, *about)
        if not isinstance(extracted, int):
            raise TypeError(f"it returned {extracted!r}; a timestamp must be an int, in milliseconds")
    except Exception as error:
        raise failures.extractor_failed(reader, raw, error) from error
    if extracted < 0:
        failures.passed_over(reader, raw, "the timestamp extractor returned no timestamp")
        return None
    return extracted


def _context_of(raw: RawRecord) -> RecordContext:
    """Return the context of a record that is not in process yet, for a timestamp extractor."""
    context = RecordContext()
    context.topic, context.partition, context.offset = raw.topic(), raw.partition(), raw.offset()
    context.timestamp, context.headers = raw.timestamp()[1], tuple(headers_of(raw) or ())
    return context
