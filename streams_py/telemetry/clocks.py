"""Estimates the clock errors of processes relative to the broker.

Every record has the time of its writer, and the append time of the broker. The difference is the error of the writer's
clock plus the delay of sending, which is never negative. So the smallest difference of an hour is close to the clock
error. The second smallest difference is an independent estimate, so the distance of the two shows the precision.

The broker's clock may go back (another broker leads the partition), or producers may set the times. The largest step
back of append times within an hour is then added to the uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_WINDOW_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000


class Clocks:
    """The clock errors of the processes of one group, over a sliding hour of append time.

    Only differences that can still become the smallest or second smallest of an hour are kept. A difference with two
    smaller later ones cannot.
    """

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        state: Mapping[str, Any] = given or {"kept": {}, "back": [0, 0]}
        self._kept: dict[str, list[list[int]]] = {
            process: [list(entry) for entry in entries] for process, entries in state["kept"].items()
        }
        self._back_ms, self._back_until_ms = state["back"]
        self._now_ms = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain values: process -> (time, difference, number of smaller later differences), and the step back.

        The step back of append times is a pair: its size in ms, and the time until which it counts.
        """
        kept = {process: self._kept[process] for process in sorted(self._kept)}
        return {"kept": kept, "back": [self._back_ms, self._back_until_ms]}

    def seen(self, append_ms: int, now_ms: int) -> None:
        """Process the append time of a record. ``now_ms`` is the largest append time so far."""
        self._now_ms = now_ms
        back_ms = now_ms - append_ms
        if back_ms > 0 and (back_ms >= self._back_ms or now_ms > self._back_until_ms):
            self._back_ms, self._back_until_ms = back_ms, now_ms + _WINDOW_MS

    def note(self, process: str, at_ms: int, append_ms: int, now_ms: int) -> None:
        """Process an event of a process, after :meth:`seen`."""
        difference = append_ms - at_ms
        entries = self._kept.setdefault(process, [])
        for entry in entries:
            if entry[1] >= difference:
                entry[2] += 1
        entries[:] = [entry for entry in entries if entry[2] < 2 and entry[0] > now_ms - _WINDOW_MS]
        entries.append([now_ms, difference, 0])

    def forget(self, now_ms: int) -> None:
        """Remove processes without an event in the day that ends at ``now_ms``."""
        for process in list(self._kept):
            if self._kept[process][-1][0] <= now_ms - _DAY_MS:
                del self._kept[process]

    def knows(self, process: str) -> bool:
        """Whether a process is known."""
        return process in self._kept

    def skew_ms(self, process: str) -> tuple[int, int]:
        """Return the ms to add to the process's time to get the broker's, and the uncertainty in ms (at least 1)."""
        differences = sorted(entry[1] for entry in self._kept[process])
        off = differences[1] - differences[0] if len(differences) > 1 else 1
        back_ms = self._back_ms if self._now_ms <= self._back_until_ms else 0
        return differences[0], max(1, off) + back_ms
