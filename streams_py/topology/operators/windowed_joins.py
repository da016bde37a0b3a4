"""Joins of two streams within a window of time.

Each side has two operators: one that keeps its records in a window store, after it has sent them on, and one that joins
them with what the other side has kept. In left and outer joins a record without a partner waits in a store of its own
until its window is closed; then it is sent on alone. The clock for that is shared by both sides of a task. Answers to
Kafka Streams' ``KStreamJoinWindow``, ``KStreamKStreamJoin`` and ``KStreamKStreamSelfJoin``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from streams_py.topology.formats.join_serdes import JoinSideKey, JoinSideValue
from streams_py.topology.nodes import NodeContext, Process, RecordContext
from streams_py.topology.operators.in_context import at_its_time, within
from streams_py.topology.windows import JoinWindows

__all__ = ["JoinWindowKeeper", "SelfJoin", "SharedJoinTime", "StreamJoin"]

_NO_JOIN: Final = "null key or value in a join"
_TOO_OLD: Final = "older than the records that a join keeps"
_NOTHING_PENDING: Final = 2**63 - 1


class JoinWindowKeeper:
    """Sends a record on, so that it is joined, and then keeps it for the other side's records to come."""

    def __init__(self, store: str) -> None:
        self._store = store

    def bind(self, node: NodeContext) -> Process:
        put, forward, failed, context = node.store(self._store).put, node.forward, node.failed, node.record

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            forward(key, value, timestamp_ms)
            if key is None:
                return
            context.timestamp = timestamp_ms
            try:
                if put(key, value, timestamp_ms) is False:
                    node.dropped(_TOO_OLD)
            except Exception as error:
                failed(error, key, value, timestamp_ms)

        return process


class JoinTime:
    """What both sides of a join in one task know about time, in ms."""

    __slots__ = ("earliest_pending", "next_emit", "stream_time")

    def __init__(self) -> None:
        self.stream_time = -1
        self.earliest_pending = _NOTHING_PENDING
        self.next_emit = 0


class SharedJoinTime:
    """Gives both sides of a join the same :class:`JoinTime` in each task.

    Nodes of a task are bound together, each once, so an entry is needed only between the first and the second side.
    """

    def __init__(self) -> None:
        self._half_bound: dict[int, tuple[RecordContext, JoinTime]] = {}

    def of(self, record: RecordContext) -> JoinTime:
        """The time of the task that ``record`` belongs to."""
        found = self._half_bound.pop(id(record), None)
        if found is not None:
            return found[1]
        time = JoinTime()
        self._half_bound[id(record)] = (record, time)  # kept alive, or another one might get its id
        return time


class StreamJoin:
    """Joins the records of one side with what the other side has kept.

    ``joiner`` takes key, left value, right value. ``pending`` is the name of the store of records that wait for a
    partner ("" in inner joins); ``keeps_this``: records of this side are sent on alone when none came.
    """

    def __init__(
        self,
        other_store: str,
        windows: JoinWindows,
        joiner: Callable[[Any, Any, Any], Any],
        time: SharedJoinTime,
        *,
        is_left: bool,
        keeps_this: bool,
        pending: str,
    ) -> None:
        self._other_store = other_store
        self._windows = windows
        self._joiner = joiner
        self._time = time
        self._is_left = is_left
        self._keeps_this = keeps_this
        self._pending = pending

    def bind(self, node: NodeContext) -> Process:
        windows, is_left, keeps_this = self._windows, self._is_left, self._keeps_this
        joiner = within(node, self._joiner)
        before_ms, after_ms = windows.before_ms, windows.after_ms
        if not is_left:
            before_ms, after_ms = after_ms, before_ms
        fetch = node.store(self._other_store).between
        pending = node.store(self._pending) if self._pending else None
        time = self._time.of(node.record)
        emit_closed = None if pending is None else _emitter(node, pending, time, windows, joiner, after_ms)
        forward, failed, context = node.forward, node.failed, node.record

        def join(key: Any, this: Any, other: Any) -> Any:
            return joiner(key, this, other) if is_left else joiner(key, other, this)

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            if timestamp_ms > time.stream_time:
                time.stream_time = timestamp_ms
            context.timestamp = timestamp_ms
            try:
                if key is None or value is None:
                    if value is None or not keeps_this:
                        node.dropped(_NO_JOIN)
                        return
                    alone = join(key, value, None)
                else:
                    if emit_closed is not None and timestamp_ms == time.stream_time:
                        emit_closed(timestamp_ms)
                    last_ms = max(0, timestamp_ms + after_ms)
                    partner = False
                    for other_ms, other in fetch(key, max(0, timestamp_ms - before_ms), last_ms):
                        partner = True
                        if pending is not None:
                            context.timestamp = timestamp_ms
                            waiting = JoinSideKey(other_ms, not is_left, key)
                            if pending.get(waiting) is not None:
                                pending.put(waiting, None)
                        forward(key, join(key, value, other), max(timestamp_ms, other_ms))
                    if partner or not keeps_this:
                        return
                    if last_ms >= time.stream_time and pending is not None:
                        if timestamp_ms < time.earliest_pending:
                            time.earliest_pending = timestamp_ms
                        place = JoinSideKey(timestamp_ms, is_left, key)
                        pending.put(place, [*(pending.get(place) or ()), JoinSideValue(is_left, value)])
                        return
                    alone = join(key, value, None)
            except Exception as error:
                failed(error, key, value, timestamp_ms)
                return
            forward(key, alone, timestamp_ms)

        return process


def _emitter(
    node: NodeContext,
    pending: Any,
    time: JoinTime,
    windows: JoinWindows,
    joiner: Callable[[Any, Any, Any], Any],
    after_ms: int,
) -> Callable[[int], None]:
    """Sends on what has waited in vain. ``after_ms``: of the side whose records ask for it."""
    interval_ms = node.emit_interval_ms
    forward, context, now_ms, grace_ms = node.forward, node.record, node.now_ms, windows.grace_ms

    def emit_closed(timestamp_ms: int) -> None:
        # As in Kafka Streams the sum wraps around: when nothing is known to be pending, after a restart for example,
        # the store is looked at.
        closes_ms = _wrapped(time.earliest_pending + after_ms + grace_ms)
        if closes_ms >= time.stream_time:
            return
        now = now_ms()
        if now < time.next_emit:
            return
        time.next_emit = now + interval_ms
        time.earliest_pending = _NOTHING_PENDING
        open_sides: set[bool] = set()
        emitted: JoinSideKey | None = None
        # Value by value, as Kafka Streams walks: the second value of a place may end the walk too, at its time.
        for place, (_, value) in ((place, value) for place, values in pending.all() for value in values):
            time.earliest_pending = place.timestamp
            if len(open_sides) == 2:
                break
            look_ms = windows.after_ms if place.is_left else windows.before_ms
            if place.timestamp + look_ms + grace_ms >= time.stream_time:
                open_sides.add(place.is_left)
                continue
            joined = joiner(place.key, value, None) if place.is_left else joiner(place.key, None, value)
            forward(place.key, joined, place.timestamp)
            # Deleted when the next one is emitted, all values of a place at once: after a failure in between they are
            # emitted again rather than lost.
            if emitted is not None and emitted != place:
                context.timestamp = timestamp_ms
                pending.put(emitted, None)
            emitted = place
        if emitted is not None:
            context.timestamp = timestamp_ms
            pending.put(emitted, None)

    return emit_closed


def _wrapped(number: int) -> int:
    return number - (1 << 64) if number > _NOTHING_PENDING else number


class SelfJoin:
    """A stream joined with itself, over one store: each record with earlier ones in both roles, and with itself."""

    def __init__(self, store: str, windows: JoinWindows, joiner: Callable[[Any, Any, Any], Any]) -> None:
        self._store = store
        self._windows = windows
        self._joiner = joiner

    def bind(self, node: NodeContext) -> Process:
        windows, joiner, fetch = self._windows, within(node, self._joiner), node.store(self._store).between
        before_ms, after_ms, retention_ms = windows.before_ms, windows.after_ms, windows.retention_ms
        forward, failed = node.forward, node.failed
        stream_time_ms = -1

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            nonlocal stream_time_ms
            if key is None or value is None:
                node.dropped(_NO_JOIN)
                return
            stream_time_ms = max(stream_time_ms, timestamp_ms)
            try:
                with_itself = timestamp_ms > stream_time_ms - retention_ms + 1  # as in KStreamKStreamSelfJoin
                for other_ms, other in fetch(key, max(0, timestamp_ms - before_ms), max(0, timestamp_ms + after_ms)):
                    forward(key, joiner(key, value, other), max(timestamp_ms, other_ms))
                for other_ms, other in fetch(key, max(0, timestamp_ms - after_ms), max(0, timestamp_ms + before_ms)):
                    if with_itself and other_ms > timestamp_ms:
                        with_itself = False
                        forward(key, joiner(key, value, value), timestamp_ms)
                    forward(key, joiner(key, other, value), max(timestamp_ms, other_ms))
                if with_itself:
                    forward(key, joiner(key, value, value), timestamp_ms)
            except Exception as error:
                failed(error, key, value, timestamp_ms)

        return at_its_time(node, process, self._joiner)
