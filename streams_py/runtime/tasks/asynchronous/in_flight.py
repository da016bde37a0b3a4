"""Records of one task whose processing goes on outside of its thread: in a coroutine, or in a batch.

Such a record has left its queue. The books kept here make sure that nobody forgets it: it belongs to the task until its
answer was sent on, and until then no commit passes it.

*Which offset does a record under way hold?* Usually that of the input record it was made from: processing that one
again makes it again. A record that came out of a record cache, a suppress buffer or a punctuator was made from many,
whose offsets nobody knows: it holds all positions of its task. So does everything that is made of its answer.

*Whose turn is it?* Some commits are possible only while nothing is under way: in a transaction all of them. Until then
the task *drains*: it takes no more records, and its punctuators wait.

*Order.* Answers are sent on by the task's thread, from the last node to the first: an answer may only enter nodes that
have room, so the number of records under way is bounded whatever the shape of the topology.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from streams_protocol.types import TopicPartition
from streams_py.ports import Clock, Headers, RawRecord
from streams_py.runtime.event_loop import Background
from streams_py.topology.nodes import Process, RecordContext

__all__ = ["Call", "Calls", "InFlight", "Intake"]

_STEP_MS = 20


class Call:
    """One record under way. ``source``: the partition and offset it holds; None: all of the task's."""

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
        """A context of its own, for user code on another thread."""
        context = RecordContext()
        context.topic, context.partition, context.offset = self.topic, self.partition, self.offset
        context.timestamp, context.headers, context.stream_time_ms = self.timestamp_ms, self.headers, stream_time_ms
        return context


class Calls(Protocol):
    """The calls of one node; all methods are called on the task's thread and never wait."""

    def bind(self) -> Process:
        """The function that takes its records."""

    @property
    def room(self) -> int:
        """How many more records it takes; not positive: none."""

    @property
    def is_running(self) -> bool:
        """True when an answer comes that was not there yet, without anything else being done."""

    def hand_over(self, *, now: bool) -> None:
        """Let what was given to it start. ``now``: also what would wait for more records to come."""

    def next_ended(self) -> Call | None:
        """The call whose answer is to be sent on next; it stays that until :meth:`drop`."""

    def drop(self, call: Call) -> None:
        """Its answer was sent on."""

    def sort_ended(self) -> None:
        """Send on in the order of the calls; nothing is running."""

    def send_on(self, call: Call) -> None:
        """Forward the answer, or report the error."""

    def cancel(self) -> None:
        """Start nothing more, and cancel what has started."""


class Intake:
    """How many records a task lets be under way, when their calls have once taken longer than a transaction may: half
    as many as ended in that time, and one more with each commit. It outlives the books, which are new when the task
    starts over."""

    def __init__(self) -> None:
        self._most: int | None = None
        self._since_ms: int | None = None

    def was_too_much(self, ended: int, now_ms: int) -> int:
        """Only so many ended in time; for how many ms it has been like that, without a commit."""
        self._most = max(1, ended // 2)
        if self._since_ms is None:
            self._since_ms = now_ms
        return now_ms - self._since_ms

    def went_well(self) -> None:
        """A commit came through."""
        self._since_ms = None
        if self._most is not None:
            self._most += 1

    def room(self, room: int, under_way: int) -> int:
        """``room``, or what is left of it."""
        return room if self._most is None else min(room, self._most - under_way)


class InFlight:
    """The records under way of one task. ``current_raw``: the input record in process, if there is one."""

    def __init__(
        self,
        record: RecordContext,
        background: Background,
        clock: Clock,
        current_raw: Callable[[], RawRecord | None],
        intake: Intake,
    ) -> None:
        self.live: set[Call] = set()
        self.draining = False
        """True while the task takes no more records, so that a commit becomes possible."""
        self._to_drain = 0
        self.answered = False
        """Whether answers may have been sent on since the last commit, which holds their records back until then."""
        self.nodes: list[Calls] = []
        """Children before their parents."""
        self.background = background
        self.clock = clock
        self._record = record
        self._current_raw = current_raw
        self._intake = intake
        self._sending: Call | None = None
        self._started = 0
        self._per_record = 1  # calls that one record has led to at most, so far
        self._closed = False

    def add(self, calls: Calls) -> Process:
        """One more node, after all that are below it; the function that takes its records."""
        self.nodes.append(calls)
        return calls.bind()

    def begin(self, key: Any, value: Any, timestamp_ms: int) -> Call:
        """Note a record that is on its way from now on."""
        record = self._record
        raw = self.current_raw() or self._current_raw()
        if raw is not None and (record.offset, record.partition, record.topic) != (
            raw.offset(),
            raw.partition(),
            raw.topic(),
        ):
            raw = None  # it comes out of a cache or a buffer
        self._started += 1
        call = Call(key, value, timestamp_ms, record, self._started, raw)
        self.live.add(call)
        return call

    def current_raw(self) -> RawRecord | None:
        """The input record of the answer that is being sent on."""
        return None if self._sending is None else self._sending.raw

    # -- how much may be taken ------------------------------------------------------------------------------------

    def room(self) -> int:
        """How many input records may be taken now: 0 when a node is full, and while the task drains."""
        if self.draining:
            return 0
        room = self._intake.room(min(node.room for node in self.nodes), len(self.live))
        return max(1, room // self._per_record) if room > 0 else 0

    def note_taken(self, records: int, started_before: int) -> None:
        """Learn how many calls a record leads to."""
        if records > 0:
            self._per_record = max(self._per_record, (self._started - started_before) // records)

    @property
    def started(self) -> int:
        """Number of calls so far."""
        return self._started

    # -- sending answers on ---------------------------------------------------------------------------------------

    def send_on(self) -> int:
        """Send on what has ended; how many records that were. One whose sending raised is sent on again."""
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
        """Let everything start that was begun."""
        if not self._closed:
            for node in self.nodes:
                node.hand_over(now=now)

    def await_answers(self, deadline_ms: int | None) -> int:
        """Wait until nothing is under way and send the answers on, in the order of the calls; how many those were.
        With a deadline (monotonic): what has not ended by then stays under way."""
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
        """The same, and for what comes out of the task's caches then, within the same time if it is bounded."""
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
        """Cancel everything. What was under way stays in the books: it is to be processed again by somebody."""
        self._closed = True
        for node in self.nodes:
            node.cancel()

    # -- what may be committed ------------------------------------------------------------------------------------

    def drain(self, *, drains: bool) -> bool:
        """Take no more records until the next commit, or take them again; False when that is so already."""
        if drains is self.draining:
            return False
        self.draining, self._to_drain = drains, len(self.live)
        return True

    def take_fewer(self) -> int:
        """Draining takes too long: when the task starts over, it is to take fewer records at a time. For how many ms
        it has been starting over like that."""
        return self._intake.was_too_much(self._to_drain - len(self.live), self.clock.monotonic_ms())

    def note_committed(self) -> None:
        """A commit came through. One that could not take anything along is followed by another as soon as that can."""
        self.answered = False
        self.draining = self.holds_everything
        self._intake.went_well()

    @property
    def needs_commit(self) -> bool:
        """True when something is under way, or was since the last commit."""
        return self.answered or bool(self.live)

    @property
    def holds_everything(self) -> bool:
        """True when something is under way that came out of a cache, a buffer or a punctuator."""
        return any(call.source is None for call in self.live)

    def lowest_offset(self, partition: TopicPartition, offset: int) -> int:
        """``offset``, or the lowest one of that partition that is under way."""
        held = (call.source[1] for call in self.live if call.source is not None and call.source[0] == partition)
        return min(offset, min(held, default=offset))

    def oldest_ms(self, time_ms: int) -> int:
        """``time_ms``, or the smallest timestamp that is under way: stream time goes on from there after a restart,
        or the records that come again would be late."""
        return min(time_ms, min((call.timestamp_ms for call in self.live), default=time_ms))
