"""Emission of final results (KIP-825: emit on window close).

After each record, but at most once per wall-clock interval, an operator searches for windows that its stream time has
closed since the last emission. The position is committed with the offsets, so no result is sent twice or lost when the
task moves. The store keeps windows until they were sent, however old they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from streams_py.serdes.windowed import Windowed
from streams_py.topology.declare.nodes import NodeContext
from streams_py.topology.operators.tables import make_change

UNKNOWN_TIME: Final = -1
"""Stream time before the first record."""

_EMIT: Final = "window-aggregate-final-emit"


def time_of_store(node: NodeContext, store: Any, open_ms: int) -> int:
    """Return the minimum stream time, in ms, that the content of a window store proves.

    UNKNOWN_TIME if it proves none. An operator starts with this time. Then the task sets the committed time, which is
    exact, but which a Java member does not update. A window that the store has expired is closed in any case: its
    aggregate is gone, so a record must not start a new one. ``open_ms``: a window is open until stream time exceeds its
    start (for a session: its end) by this time.
    """
    expired_ms: int = store.expired_ms
    return UNKNOWN_TIME if expired_ms < 0 or node.reference_behaviour else expired_ms + open_ms


class Throttle:
    """Allows an action at most once per interval of the task's wall-clock time."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._next_ms = 0

    def is_due(self) -> bool:
        """Whether the interval has elapsed; if so, the next one begins."""
        now_ms = self._node.record.system_time_ms
        if now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + self._node.emit_interval_ms
        return True


class FinalResults:
    """Sends the closed windows of one store.

    ``bounds(close, last close)`` returns the first and last time of the windows that were closed since the last
    emission, or None. ``closed(first, last)`` returns these windows with values and timestamps.
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
        """Send the windows that end before ``close_ms`` and so accept no more records."""
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
        if (node_metrics := self._node.node_metrics) is not None:
            ended_ms = self._node.now_ms()
            node_metrics.emitted(_EMIT, count)
            node_metrics.emission_took(_EMIT, ended_ms - began_ms, ended_ms)
        self._last_close_ms = close_ms
        self._node.processor_metadata[self._store_name] = close_ms
        self._release(bounds[1])
