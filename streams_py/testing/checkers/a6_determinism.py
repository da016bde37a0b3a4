"""A6: the same input gives the same bytes, in any order of the members.

One assign step in a few is run again, by a fresh leader, with members and topics in another order. That other
processes and other hash seeds give the same bytes is for the campaign to compare (fingerprints of runs).
"""

from __future__ import annotations

import random

from streams_py.testing.checkers.observation import Checker, Published

__all__ = ["Determinism"]

_ONE_IN = 6


class Determinism(Checker):
    """Whoever leads next must decide the same, or leadership itself moves tasks; and what cannot be repeated cannot be
    searched for."""

    promise = "A6"

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0

    def published(self, seen: Published) -> None:
        self._steps += 1
        if seen.again is None or seen.failure is not None or self._steps % _ONE_IN != 1:
            return
        repeated = seen.again(random.Random(self._steps))
        if repeated is None:
            return
        self.looked += 1
        different = sorted(m for m in seen.assignments if repeated.get(m) != seen.assignments[m])
        if different:
            self.report(seen.at_ms, f"the same step gives other bytes for {', '.join(different)}")
