"""Records of one task that are being processed outside of its thread: in a coroutine, or in a batch.

Such a record has left its queue. This module makes sure that it is not lost: it belongs to the task until its answer
has been forwarded, and until then no commit passes it.

*Which offset does a record in flight hold back?* Usually the offset of its input record, because processing that record
again creates it again. A record from a record cache, a suppress buffer or a punctuator was created from many records
with unknown offsets: it holds back all positions of its task. The same is true for all records created from its answer.

*Draining.* Some commits are possible only while no record is in flight: within a transaction all of them. Before such a
commit the task *drains*: it processes no new records, and its punctuators wait.

*Order.* The task's thread forwards answers, for the last node first. An answer may only enter nodes that have room. So
the number of records in flight is bounded, whatever the shape of the topology.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from streams_protocol.types import TopicPartition
from streams_py.ports import Clock, Headers, RawRecord
from streams_py.runtime.tasks.asynchronous.event_loop import Background
from streams_py.topology.declare.nodes import Process, RecordContext

_STEP_MS = 20


class Call:
    """One record in flight. ``source``: partition and offset that it holds back; None: all partitions of the task."""

    __slots__ = (
        "answer", "deadline_s", "ended", "error", "headers", "key", "lane", "number", "offset", "partition", "raw",
        "source", "timestamp_ms", "topic", "value",
    )  # fmt: skip

    def __init__(
        self, key: Any, value: Any, timestamp_ms: int, record: RecordContext, number: int, raw: RawRecord | None
    ) -> None:
        self.key = key
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.topic = record.topic
        self.partition = record.partition
        self.offset = record.offset
        self.headers: Headers = record.headers
        self.number = number
        self.raw = raw
        self.source = None if raw is None else (TopicPartition(raw.topic(), raw.partition()), raw.offset())
        self.lane: Hashable = None
        self.deadline_s = 0.0  # by the event loop's clock
        self.answer: Any = None
        self.error: Exception | None = None
        self.ended = False

    def context(self, stream_time_ms: int) -> RecordContext:
        """Return a separate record context, for user code on another thread."""
        context = RecordContext()
        context.topic, context.partition, context.offset = self.topic, self.partition, self.offset
        context.timestamp, context.headers, context.stream_time_ms = self.timestamp_ms, self.headers, stream_time_ms
        return context


class Calls(Protocol):
    """The calls of one node. All methods are called on the task's thread and never block."""

    def bind(self) -> Process:
        """Return the function that accepts the node's records."""

    @property
    def room(self) -> int:
        """Number of records that the node can still accept; none if not positive."""

    @property
    def is_running(self) -> bool:
        """Whether an answer will arrive without any further call."""

    def hand_over(self, *, now: bool) -> None:
        """Start accepted records. ``now``: also start calls that would otherwise wait for more records."""

    def next_ended(self) -> Call | None:
        """Return the call whose answer is forwarded next. It stays the same until :meth:`drop`."""

    def drop(self, call: Call) -> None:
        """Remove a call whose answer was forwarded."""

    def sort_ended(self) -> None:
        """Sort the finished calls by the order of their records. No call may be running."""

    def send_on(self, call: Call) -> None:
        """Forward the answer, or report the error."""

    def cancel(self) -> None:
        """Start no more calls, and cancel the running ones."""


class InFlightLimit:
    """Limit of a task's records in flight, once its calls have taken longer than a transaction may.

    The limit is then half the number of calls that ended in that time. Each commit raises it by one. This object
    outlives :class:`InFlight`, which is new when the task starts over.
    """

    def __init__(self) -> None:
        self._most: int | None = None
        self._since_ms: int | None = None

    def reduce(self, ended: int, now_ms: int) -> int:
        """Reduce the limit, because only ``ended`` calls ended in time. Return the time in ms since the last commit."""
        self._most = max(1, ended // 2)
        if self._since_ms is None:
            self._since_ms = now_ms
        return now_ms - self._since_ms

    def increase(self) -> None:
        """Raise the limit after a commit."""
        self._since_ms = None
        if self._most is not None:
            self._most += 1

    def room(self, room: int, under_way: int) -> int:
        """Return ``room``, or less if the limit is lower."""
        return room if self._most is None else min(room, self._most - under_way)


class InFlight:
    """The records in flight of one task. ``current_raw`` returns the input record in process, if there is one."""

    def __init__(
        self,
        record: RecordContext,
        background: Background,
        clock: Clock,
        current_raw: Callable[[], RawRecord | None],
        limit: InFlightLimit,
    ) -> None:
        self.live: set[Call] = set()
        self.draining = False
        """Whether the task processes no new records, so that a commit becomes possible."""
        self._to_drain = 0
        self.answered = False
        """Whether answers may have been forwarded since the last commit. The next commit releases their records."""
        self.nodes: list[Calls] = []
        """Nodes, children before their parents."""
        self.background = background
        self.clock = clock
        self._record = record
        self._current_raw = current_raw
        self._limit = limit
        self._sending: Call | None = None
        self._started = 0
        self._per_record = 1  # maximum number of calls per input record so far
        self._closed = False

    def add(self, calls: Calls) -> Process:
        """Add a node after all nodes downstream of it. Return the function that accepts its records."""
        self.nodes.append(calls)
        return calls.bind()

    def begin(self, key: Any, value: Any, timestamp_ms: int) -> Call:
        """Register a record that is in flight from now on."""
        record = self._record
        raw = self.current_raw() or self._current_raw()
        if raw is not None and (record.offset, record.partition, record.topic) != (
            raw.offset(),
            raw.partition(),
            raw.topic(),
        ):
            raw = None  # the record comes from a cache or a buffer
        self._started += 1
        call = Call(key, value, timestamp_ms, record, self._started, raw)
        self.live.add(call)
        return call

    def current_raw(self) -> RawRecord | None:
        """Return the input record of the answer that is being forwarded."""
        return None if self._sending is None else self._sending.raw

    # -- how many records may be processed ------------------------------------------------------------------------

    def room(self) -> int:
        """Return how many input records may be processed now: 0 if a node is full or the task drains."""
        if self.draining:
            return 0
        room = self._limit.room(min(node.room for node in self.nodes), len(self.live))
        return max(1, room // self._per_record) if room > 0 else 0

    def note_taken(self, records: int, started_before: int) -> None:
        """Learn how many calls an input record causes."""
        if records > 0:
            self._per_record = max(self._per_record, (self._started - started_before) // records)

    @property
    def started(self) -> int:
        """Number of calls so far."""
        return self._started

    # -- forwarding answers ---------------------------------------------------------------------------------------

    def send_on(self) -> int:
        """Forward finished answers and return their number. An answer whose forwarding raised is forwarded again."""
        self.answered = self.answered or bool(self.live)
        count = 0
        for number, node in enumerate(self.nodes):
            below = self.nodes[:number]
            while (call := node.next_ended()) is not None and all(other.room > 0 for other in below):
                self._send_on(node, call)
                count += 1
        self.hand_over()
        return count

    def _send_on(self, node: Calls, call: Call) -> None:
        record = self._record
        record.topic, record.partition, record.offset = call.topic, call.partition, call.offset
        record.timestamp, record.headers = call.timestamp_ms, call.headers
        self._sending = call
        try:
            node.send_on(call)
        finally:
            self._sending = None
        node.drop(call)
        self.live.discard(call)

    def hand_over(self, *, now: bool = False) -> None:
        """Start all calls that were registered."""
        if not self._closed:
            for node in self.nodes:
                node.hand_over(now=now)

    def await_answers(self, deadline_ms: int | None) -> int:
        """Wait until no record is in flight, and forward the answers in the order of the calls. Return their number.

        Args:
            deadline_ms: Monotonic time at which to stop waiting; later calls stay in flight. None: no limit.
        """
        count = 0
        while self.live and not self._closed:
            self.hand_over(now=True)
            if self._wait(deadline_ms):
                for node in self.nodes:
                    node.sort_ended()
            sent = self.send_on()
            count += sent
            if not sent and deadline_ms is not None and self.clock.monotonic_ms() >= deadline_ms:
                break
        return count

    def await_all(self, within_ms: int | None, flush_caches: Callable[[], None]) -> int:
        """Wait as :meth:`await_answers` does, for ``within_ms`` at most; return the number of answers.

        With a time limit, also flush the task's caches, and wait for the calls that the flushed records start.
        """
        if within_ms is None:
            return self.await_answers(None)
        deadline_ms = self.clock.monotonic_ms() + within_ms
        count = self.await_answers(deadline_ms)
        while not self.live:
            flush_caches()
            if not self.live:
                break
            count += self.await_answers(deadline_ms)
        return count

    def _wait(self, deadline_ms: int | None) -> bool:
        while any(node.is_running for node in self.nodes):
            if deadline_ms is not None and self.clock.monotonic_ms() >= deadline_ms:
                return False
            self.background.wait(_STEP_MS)
        return True

    def cancel(self) -> None:
        """Cancel all calls. Their records stay registered, because they must be processed again."""
        self._closed = True
        for node in self.nodes:
            node.cancel()

    # -- commits --------------------------------------------------------------------------------------------------

    def drain(self, *, drains: bool) -> bool:
        """Stop processing new records until the next commit, or continue. False if nothing changes."""
        if drains is self.draining:
            return False
        self.draining, self._to_drain = drains, len(self.live)
        return True

    def take_fewer(self) -> int:
        """Limit the records in flight once the task starts over, because draining takes too long.

        Return for how many ms the task has been starting over for this reason.
        """
        return self._limit.reduce(self._to_drain - len(self.live), self.clock.monotonic_ms())

    def note_committed(self) -> None:
        """Note a commit. If a commit could not include any offset, another follows as soon as it can."""
        self.answered = False
        self.draining = self.holds_everything
        self._limit.increase()

    @property
    def needs_commit(self) -> bool:
        """Whether a record is in flight, or was since the last commit."""
        return self.answered or bool(self.live)

    @property
    def holds_everything(self) -> bool:
        """Whether a record from a cache, a buffer or a punctuator is in flight."""
        return any(call.source is None for call in self.live)

    def lowest_offset(self, partition: TopicPartition, offset: int) -> int:
        """Return ``offset``, or the lowest offset of that partition that is in flight."""
        held = (call.source[1] for call in self.live if call.source is not None and call.source[0] == partition)
        return min(offset, min(held, default=offset))

    def oldest_ms(self, time_ms: int) -> int:
        """Return ``time_ms``, or the smallest timestamp in flight if it is smaller.

        After a restart, stream time continues from there. Otherwise the records in flight would then be late.
        """
        return min(time_ms, min((call.timestamp_ms for call in self.live), default=time_ms))
