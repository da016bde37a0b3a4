"""The clocks of processes against the broker's.

Every record has the writer's time and, appended by the broker, the broker's. Their difference is the writer's clock
error plus the delay of sending, which is never negative; so the smallest difference of an hour is close to the clock
error alone. How close, the second smallest tells: it is there by the same reasoning, and independent of the first.

When the broker's clock itself goes back (another broker leads the partition now), or producers set the times, that is
seen: by as much as append times went back within the hour, nothing is certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["Clocks"]

_WINDOW_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000


class Clocks:
    """Skews of the processes of one group, over a sliding hour of append time.

    Of the differences of an hour only those are kept that can still be the smallest or second smallest of it: one that
    two later ones undercut never will.
    """

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        state: Mapping[str, Any] = given or {"kept": {}, "back": [0, 0]}
        self._kept: dict[str, list[list[int]]] = {
            process: [list(entry) for entry in entries] for process, entries in state["kept"].items()
        }
        self._back_ms, self._back_until_ms = state["back"]
        self._now_ms = 0

    def to_json(self) -> dict[str, Any]:
        """As plain values: (time, difference, number of later ones that undercut it) by process; and how far append
        times went back, and until when that counts."""
        kept = {process: self._kept[process] for process in sorted(self._kept)}
        return {"kept": kept, "back": [self._back_ms, self._back_until_ms]}

    def seen(self, append_ms: int, now_ms: int) -> None:
        """A record; ``now_ms`` is the largest append time so far."""
        self._now_ms = now_ms
        back_ms = now_ms - append_ms
        if back_ms > 0 and (back_ms >= self._back_ms or now_ms > self._back_until_ms):
            self._back_ms, self._back_until_ms = back_ms, now_ms + _WINDOW_MS

    def note(self, process: str, at_ms: int, append_ms: int, now_ms: int) -> None:
        """An event of a process, after :meth:`seen`."""
        difference = append_ms - at_ms
        entries = self._kept.setdefault(process, [])
        for entry in entries:
            if entry[1] >= difference:
                entry[2] += 1
        entries[:] = [entry for entry in entries if entry[2] < 2 and entry[0] > now_ms - _WINDOW_MS]
        entries.append([now_ms, difference, 0])

    def forget(self, now_ms: int) -> None:
        """Drop processes that have been silent for the whole day that ends at ``now_ms``."""
        for process in list(self._kept):
            if self._kept[process][-1][0] <= now_ms - _DAY_MS:
                del self._kept[process]

    def knows(self, process: str) -> bool:
        """Whether anything is known of a process."""
        return process in self._kept

    def skew_ms(self, process: str) -> tuple[int, int]:
        """(what to add to the process's time to get the broker's, how far that may be off, at least 1)."""
        differences = sorted(entry[1] for entry in self._kept[process])
        off = differences[1] - differences[0] if len(differences) > 1 else 1
        back_ms = self._back_ms if self._now_ms <= self._back_until_ms else 0
        return differences[0], max(1, off) + back_ms
