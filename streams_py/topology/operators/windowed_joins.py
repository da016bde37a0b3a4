"""Joins of two streams within a time window.

Each side has two operators. One forwards its records and then stores them in a window store. The other joins them with
the stored records of the other side. In left and outer joins a record without a partner waits in a separate store until
its window is closed, and is then sent alone. Both sides of a task share one stream time. Source: Kafka Streams'
``KStreamJoinWindow``, ``KStreamKStreamJoin`` and ``KStreamKStreamSelfJoin``.

**Windows.** The window of a record ends at the last timestamp that a partner may have, but not before the record
itself. It is closed when stream time exceeds its end by more than the grace period. A record whose own window is closed
is late and is dropped. A record that can have a result without a partner accepts no partner after its window is closed.
So it has either that result or results with partners.

Kafka Streams behaves differently (see ``NodeContext.reference_behaviour``). It joins late records as long as its stores
have partners. In a left or outer join, it sends a record that is older than stream time by the size of the window alone
and immediately, although partners may arrive within the grace period.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from streams_py.topology.declare.in_context import at_its_time, within
from streams_py.topology.declare.nodes import NodeContext, Process, RecordContext
from streams_py.topology.declare.windows import JoinWindows
from streams_py.topology.formats.join_serdes import JoinSideKey, JoinSideValue

_NO_JOIN: Final = "null key or value in a join"
_LATE: Final = "the window of a join is closed"
_TOO_OLD: Final = "older than the records that a join keeps"
_NOTHING_PENDING: Final = 2**63 - 1
_MAYBE_PENDING: Final = -1


class JoinTime:
    """The times that both sides of a join share in one task, in ms."""

    __slots__ = ("earliest_pending", "next_emit", "stream_time")

    def __init__(self) -> None:
        self.stream_time = -1
        self.earliest_pending = _NOTHING_PENDING
        self.next_emit = 0


class JoinRule:
    """The common parts of the operators of one join: windows, kept sides, and stream time.

    ``keeps_left`` and ``keeps_right``: records of that side have a result without a partner. ``of_one_stream`` is set
    when the topology is built and both sides are the same stream. Then the windows of both roles of a record end at the
    same time, so the join needs to store the record only once.
    """

    def __init__(self, windows: JoinWindows, *, keeps_left: bool, keeps_right: bool) -> None:
        self.windows = windows
        self.keeps_left = keeps_left
        self.keeps_right = keeps_right
        self.of_one_stream = False

    def keeps(self, *, is_left: bool) -> bool:
        """Whether records of a side have a result without a partner."""
        return self.keeps_left if is_left else self.keeps_right

    def open_ms(self, *, is_left: bool) -> int:
        """Return how long after a record of a side its window accepts records."""
        windows = self.windows
        if self.of_one_stream:
            return windows.reach_ms + windows.grace_ms
        return windows.open_ms(is_left=is_left)

    def time(self, record: RecordContext) -> JoinTime:
        """Return the times of the join in the task of ``record``."""
        found: JoinTime = record.shared.setdefault(self, JoinTime())
        return found


class JoinWindowKeeper:
    """Drops late records, forwards the others to the join, and then stores them for the other side."""

    replayable = True

    def __init__(self, store: str, rule: JoinRule, *, is_left: bool) -> None:
        self._store = store
        self._rule = rule
        self._is_left = is_left

    def bind(self, node: NodeContext) -> Process:
        put, forward, failed, context = node.store(self._store).put, node.forward, node.failed, node.record
        time, open_ms = self._rule.time(context), self._rule.open_ms(is_left=self._is_left)
        if node.reference_behaviour:
            open_ms = _NOTHING_PENDING

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            if timestamp_ms > time.stream_time:
                time.stream_time = timestamp_ms
            elif timestamp_ms + open_ms < time.stream_time and key is not None and value is not None:
                node.dropped(_LATE)
                return
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


class StreamJoin:
    """Joins the records of one side with the stored records of the other side.

    ``joiner`` is called with key, left value and right value. ``pending`` is the name of the store of records that wait
    for a partner ("" in inner joins).
    """

    replayable = True

    def __init__(
        self, other_store: str, rule: JoinRule, joiner: Callable[[Any, Any, Any], Any], *, is_left: bool, pending: str
    ) -> None:
        self._other_store = other_store
        self._rule = rule
        self._joiner = joiner
        self._is_left = is_left
        self._pending = pending

    def bind(self, node: NodeContext) -> Process:
        rule, is_left, reference = self._rule, self._is_left, node.reference_behaviour
        windows, keeps_this = rule.windows, rule.keeps(is_left=is_left)
        joiner = within(node, self._joiner)
        before_ms, after_ms = windows.before_ms, windows.after_ms
        if not is_left:
            before_ms, after_ms = after_ms, before_ms
        fetch = node.store(self._other_store).between
        pending = node.store(self._pending) if self._pending else None
        time = rule.time(node.record)
        if is_left:
            _remember(node, self._other_store, time)
        # A partner of a kept side whose window is closed already has a result.
        other_open_ms = rule.open_ms(is_left=not is_left)
        if reference or not rule.keeps(is_left=not is_left):
            other_open_ms = _NOTHING_PENDING
        emit_closed = None if pending is None else _emitter(node, pending, rule, joiner, is_left=is_left)
        forward, failed, context = node.forward, node.failed, node.record

        def join(key: Any, this: Any, other: Any) -> Any:
            return joiner(key, this, other) if is_left else joiner(key, other, this)

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
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
                    last_ms = timestamp_ms + after_ms
                    if last_ms < 0 and reference:
                        last_ms = 0
                    partner = False
                    open_from_ms = time.stream_time - other_open_ms
                    for other_ms, other in fetch(key, timestamp_ms - before_ms, last_ms) if last_ms >= 0 else ():
                        if other_ms < open_from_ms:
                            continue
                        partner = True
                        if pending is not None:
                            context.timestamp = timestamp_ms
                            waiting = JoinSideKey(other_ms, not is_left, key)
                            if pending.get(waiting) is not None:
                                pending.put(waiting, None)
                        forward(key, join(key, value, other), max(timestamp_ms, other_ms))
                    if partner or not keeps_this:
                        return
                    if pending is not None and (not reference or last_ms >= time.stream_time):
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


def _remember(node: NodeContext, store: str, time: JoinTime) -> None:
    """Commit the stream time of a join with the offsets."""

    def observe(time_ms: int) -> None:
        time.stream_time = max(time.stream_time, time_ms)

    node.remembers(store, lambda: time.stream_time, observe)


def _emitter(
    node: NodeContext, pending: Any, rule: JoinRule, joiner: Callable[[Any, Any, Any], Any], *, is_left: bool
) -> Callable[[int], None]:
    """Return a function that sends records that found no partner until their window closed.

    ``is_left`` is the side whose records trigger it.
    """
    interval_ms, windows, time = node.emit_interval_ms, rule.windows, rule.time(node.record)
    left_open_ms, right_open_ms = rule.open_ms(is_left=True), rule.open_ms(is_left=False)
    first_open_ms = min(left_open_ms, right_open_ms)
    reference = node.reference_behaviour
    if reference:
        left_open_ms, right_open_ms = windows.after_ms + windows.grace_ms, windows.before_ms + windows.grace_ms
        first_open_ms = left_open_ms if is_left else right_open_ms
    else:
        time.earliest_pending = _MAYBE_PENDING  # the store may have entries from before the task moved here
    forward, context = node.forward, node.record

    def emit_closed(timestamp_ms: int) -> None:
        closes_ms = time.earliest_pending + first_open_ms
        if reference:  # the sum overflows, so the loop usually reads the store if no pending record is known
            closes_ms = _wrapped(closes_ms)
        if closes_ms >= time.stream_time:
            return
        now_ms = context.system_time_ms
        if now_ms < time.next_emit:
            return
        time.next_emit = now_ms + interval_ms
        time.earliest_pending = _NOTHING_PENDING
        open_sides: set[bool] = set()
        emitted: JoinSideKey | None = None
        # Value by value, as in Kafka Streams: the second value of a key may end the loop, too.
        for place, (_, value) in ((place, value) for place, values in pending.all() for value in values):
            if reference:
                time.earliest_pending = place.timestamp
            if len(open_sides) == 2:
                break
            if place.timestamp + (left_open_ms if place.is_left else right_open_ms) >= time.stream_time:
                open_sides.add(place.is_left)
                time.earliest_pending = min(time.earliest_pending, place.timestamp)
                continue
            joined = joiner(place.key, value, None) if place.is_left else joiner(place.key, None, value)
            forward(place.key, joined, place.timestamp)
            # A key is deleted with all its values when the next key is emitted. So after a failure in between, the
            # values are emitted again, not lost.
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
    """A stream joined with itself, with one store.

    It gives the results of two operators with two stores, in the same order. Each record is first the left one of a
    pair, with the records that are already stored. Then it is the right one, with those records and with itself.
    """

    replayable = True

    def __init__(self, store: str, rule: JoinRule, joiner: Callable[[Any, Any, Any], Any]) -> None:
        self._store = store
        self._rule = rule
        self._joiner = joiner

    def bind(self, node: NodeContext) -> Process:
        if node.reference_behaviour:
            return self._bind_reference(node)
        rule, windows, joiner = self._rule, self._rule.windows, within(node, self._joiner)
        fetch = node.store(self._store).between
        before_ms, after_ms, contains_itself = windows.before_ms, windows.after_ms, windows.contains_itself
        time, open_ms = rule.time(node.record), rule.open_ms(is_left=True)
        _remember(node, self._store, time)
        left_open_ms = open_ms if rule.keeps_left else _NOTHING_PENDING
        right_open_ms = open_ms if rule.keeps_right else _NOTHING_PENDING
        forward, failed = node.forward, node.failed
        keeps_left, keeps_right = rule.keeps_left, rule.keeps_right

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            if value is None or (key is None and not (keeps_left or keeps_right)):
                node.dropped(_NO_JOIN)
                return
            if key is None:
                try:
                    if keeps_left:
                        forward(key, joiner(key, value, None), timestamp_ms)
                    if keeps_right:
                        forward(key, joiner(key, None, value), timestamp_ms)
                except Exception as error:
                    failed(error, key, value, timestamp_ms)
                return
            first_ms, last_ms, open_from_ms = timestamp_ms - before_ms, timestamp_ms + after_ms, time.stream_time
            try:
                for other_ms, other in fetch(key, first_ms, last_ms) if last_ms >= 0 else ():
                    if other_ms >= open_from_ms - right_open_ms:
                        forward(key, joiner(key, value, other), max(timestamp_ms, other_ms))
                first_ms, last_ms = timestamp_ms - after_ms, timestamp_ms + before_ms
                with_itself = contains_itself
                for other_ms, other in fetch(key, first_ms, last_ms) if last_ms >= 0 else ():
                    if with_itself and other_ms > timestamp_ms:
                        with_itself = False
                        forward(key, joiner(key, value, value), timestamp_ms)
                    if other_ms >= open_from_ms - left_open_ms:
                        forward(key, joiner(key, other, value), max(timestamp_ms, other_ms))
                if with_itself:
                    forward(key, joiner(key, value, value), timestamp_ms)
            except Exception as error:
                failed(error, key, value, timestamp_ms)

        return at_its_time(node, process, self._joiner)

    def _bind_reference(self, node: NodeContext) -> Process:
        windows, joiner, fetch = self._rule.windows, within(node, self._joiner), node.store(self._store).between
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
