"""Divides a history into segments, which can be replayed independently of each other, on any number of cores.

A segment has ``SITUATIONS`` recorded situations of a group. It starts with the first one as recorded. Events between
the last situation of a segment and the first one of the next segment are not replayed. The division depends only on the
history, so every engine creates the same segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from streams_protocol import DecodeError
from streams_py.backtest.inputs import ReplayInput, read_input
from streams_py.backtest.loop.outside import OutsideEvent, Segment, outside_event

SITUATIONS: Final = 128


class Segments:
    """Creates segments from the situations of one group, in their order.

    It keeps one situation and the events of one segment in memory.
    """

    def __init__(self) -> None:
        self._number = 0
        self._start: ReplayInput | None = None
        self._last: ReplayInput | None = None
        self._events: list[OutsideEvent] = []

    def add(self, text: str) -> Iterator[str]:
        """Add a situation. Yields the segment that ends before it, if any, and if it has events."""
        number = self._number
        self._number += 1
        if number % SITUATIONS == 0:
            yield from self.finish()
        try:
            situation = read_input(text)
        except DecodeError:
            return  # the kernel reports it
        if not situation.lag_ok:
            return  # its lags are unknown; the next situation still shows which clients joined or left
        if self._start is None or self._last is None:
            self._start = self._last = situation
            return
        event = outside_event(self._last, situation)
        self._last = situation
        if event is not None:
            self._events.append(event)

    def finish(self) -> Iterator[str]:
        """Yield the current segment, if it has events."""
        if self._start is not None and self._events:
            yield Segment(self._start, tuple(self._events)).canonical()
        self._start = self._last = None
        self._events = []
