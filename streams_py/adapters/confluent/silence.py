"""When a consumer that delivers nothing is in doubt, by its own clock alone.

Silence is what lasts while somebody keeps asking. Time in which nobody polls does not count: the thread was busy, or
the process was frozen, and what came meanwhile needs a moment more. Nor does time before a partition was put in or
resumed. One look that finds something odd is no proof either: a record may have been written a moment ago, a broker may
be busy. So a doubt counts when the next look finds the same.
"""

from __future__ import annotations

import time
from enum import Enum
from typing import Final

__all__ = ["Doubt", "Silence"]

_SILENCE_S: Final = 30.0
"""For so long nothing may arrive; each time that a new client has not helped, twice as long."""
_SILENCE_MAX_S: Final = 600.0
_GAP_S: Final = 5.0
_CONFIRM_S: Final = 5.0


class Doubt(Enum):
    """What a look at the logs has found."""

    GOES_ON = "the log goes on"
    UNANSWERED = "no broker answers"


class Silence:
    """The silence of one consumer."""

    def __init__(self) -> None:
        self._lasts_s = _SILENCE_S
        self._due_s = time.monotonic() + _SILENCE_S
        self._asked_s = time.monotonic()
        self._doubt: Doubt | None = None

    @property
    def lasts_s(self) -> float:
        """How long it is borne."""
        return self._lasts_s

    def over(self) -> None:
        """Something has arrived."""
        self._lasts_s = _SILENCE_S
        self.begins()

    def begins(self) -> None:
        """What arrived before says nothing of what is waited for from now on."""
        self._asked_s = now_s = time.monotonic()
        self._due_s = max(now_s + _SILENCE_S, self._due_s if self._lasts_s > _SILENCE_S else 0.0)
        self._doubt = None

    def is_due(self, waited_s: float) -> bool:
        """Nothing has arrived again, in a poll that might take so long: True when it is time to look at the logs."""
        now_s, before_s = time.monotonic(), self._asked_s
        if now_s - before_s > waited_s + _GAP_S:
            self.begins()
        self._asked_s = now_s
        return now_s >= self._due_s

    def looked(self, doubt: Doubt | None) -> bool:
        """True when the look before this one found the same ``doubt``, so that a new client is due."""
        confirmed = doubt is not None and doubt is self._doubt
        self._doubt = doubt
        self._due_s = time.monotonic() + (_CONFIRM_S if doubt is Doubt.GOES_ON else _SILENCE_S)
        return confirmed

    def tried(self) -> None:
        """A new client was made, or could not be: give it time."""
        self._lasts_s = min(2 * self._lasts_s, _SILENCE_MAX_S)
        self._due_s = time.monotonic() + self._lasts_s
        self._doubt = None
