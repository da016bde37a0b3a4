"""Emission of results that have become final (KIP-825: emit on window close).

After each record, but at most once per interval of the wall clock, an operator looks for windows that its stream time
has closed since the last time. How far it got is committed with the offsets, so that nothing is sent twice or forgotten
when the task moves. Until windows were sent, their store keeps them, however old they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from streams_py.serdes.windowed import Windowed
from streams_py.topology.declare.nodes import NodeContext
from streams_py.topology.operators.tables import make_change

__all__ = ["UNKNOWN_TIME", "FinalResults", "Throttle", "time_of_store"]

UNKNOWN_TIME: Final = -1
"""Before the first record."""

_EMIT: Final = "window-aggregate-final-emit"


def time_of_store(node: NodeContext, store: Any, open_ms: int) -> int:
    """The least stream time, in ms, that the content of a window store proves; UNKNOWN_TIME when it proves none.

    An operator starts with this time. The task then sets the committed one, which is exact, but which a Java member
    does not keep up to date. A window that the store has expired is closed in any case: its aggregate is gone, so a
    record must not begin another one. ``open_ms``: a window is open as long as stream time has not passed its start (a
    session's end) by this.
    """
    expired_ms: int = store.expired_ms
    return UNKNOWN_TIME if expired_ms < 0 or node.reference_behaviour else expired_ms + open_ms


class Throttle:
    """Says yes at most once per interval of the wall clock, as the task read it for the record in process."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._next_ms = 0

    def is_due(self) -> bool:
        """True when the interval has passed; the next one begins."""
        now_ms = self._node.record.system_time_ms
        if now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + self._node.emit_interval_ms
        return True


class FinalResults:
    """Sends closed windows of one store.

    ``bounds(close, last close)`` gives the first and the last time of what was closed since the last emission (None:
    nothing), ``closed(first, last)`` the windows with values and timestamps.
    """

    def __init__(
        self,
        node: NodeContext,
        store_name: str,
        bounds: Callable[[int, int], tuple[int, int] | None],
        closed: Callable[[int, int], Iterable[tuple[Windowed[Any], Any, int]]],
        release: Callable[[int], None],
    ) -> None:
        self._node = node
        self._store_name = store_name
        self._bounds = bounds
        self._closed = closed
        self._release = release
        self._throttle = Throttle(node)
        self._last_close_ms = UNKNOWN_TIME
        node.on_init(self._remember)

    def _remember(self) -> None:
        last_close_ms = self._node.processor_metadata.get(self._store_name)
        if last_close_ms is None:
            return
        self._last_close_ms = last_close_ms
        bounds = self._bounds(last_close_ms, UNKNOWN_TIME)
        if bounds is not None:
            self._release(bounds[1])

    def emit(self, close_ms: int) -> None:
        """Windows that end before ``close_ms`` take no more records."""
        if not self._throttle.is_due():
            return
        last_ms = self._last_close_ms
        if last_ms != UNKNOWN_TIME and last_ms >= close_ms:
            return
        bounds = self._bounds(close_ms, last_ms)
        if bounds is None:
            return
        began_ms = self._node.now_ms()
        forward, count = self._node.forward, 0
        for windowed, value, timestamp_ms in self._closed(*bounds):
            forward(windowed, make_change((value, None)), timestamp_ms)
            count += 1
        if (figures := self._node.figures) is not None:
            ended_ms = self._node.now_ms()
            figures.emitted(_EMIT, count)
            figures.emission_took(_EMIT, ended_ms - began_ms, ended_ms)
        self._last_close_ms = close_ms
        self._node.processor_metadata[self._store_name] = close_ms
        self._release(bounds[1])
