"""A6: the same input gives the same bytes, in any order of the members.

One in several assign steps is repeated by a new leader, with members and topics in another order. The campaign
compares the fingerprints of runs to check that other processes with other hash seeds give the same bytes.
"""

from __future__ import annotations

import random

from streams_py.testing.checkers.observation import Checker, Published

_ONE_IN = 6


class Determinism(Checker):
    """Checks that assignments are deterministic.

    Otherwise a change of the leader would move tasks, and a failed run could not be repeated.
    """

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
        self.checks += 1
        different = sorted(m for m in seen.assignments if repeated.get(m) != seen.assignments[m])
        if different:
            self.report(seen.at_ms, f"the same step gives other bytes for {', '.join(different)}")
