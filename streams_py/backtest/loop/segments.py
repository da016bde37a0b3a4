"""A history as segments: pieces that can be lived through independently of each other, on as many cores as there are.

Every ``SITUATIONS`` recorded situations of a group are one segment. It starts with the first of them, as it was
recorded; what happened between the last of one segment and the first of the next is replayed in neither. Where a
segment is cut depends on the history alone, so every engine makes the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from streams_protocol import DecodeError
from streams_py.backtest.inputs import ReplayInput, read_input
from streams_py.backtest.loop.outside import OutsideEvent, Segment, outside_event

__all__ = ["SITUATIONS", "Segments"]

SITUATIONS: Final = 128


class Segments:
    """A fold over the situations of one group, in the order in which they were. Memory: a situation, and the events of
    a segment."""

    def __init__(self) -> None:
        self._number = 0
        self._start: ReplayInput | None = None
        self._last: ReplayInput | None = None
        self._events: list[OutsideEvent] = []

    def add(self, text: str) -> Iterator[str]:
        """The next situation; yields the segment that ends before it, if one does and if anything happened in it."""
        number = self._number
        self._number += 1
        if number % SITUATIONS == 0:
            yield from self.finish()
        try:
            situation = read_input(text)
        except DecodeError:
            return  # said by whoever decides it
        if not situation.lag_ok:
            return  # nothing is known about lags in it; who came or left is still seen in the next one
        if self._start is None or self._last is None:
            self._start = self._last = situation
            return
        event = outside_event(self._last, situation)
        self._last = situation
        if event is not None:
            self._events.append(event)

    def finish(self) -> Iterator[str]:
        """The segment that has been begun, if anything happened in it."""
        if self._start is not None and self._events:
            yield Segment(self._start, tuple(self._events)).canonical()
        self._start = self._last = None
        self._events = []
