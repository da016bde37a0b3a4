"""When a consumer that delivers nothing is in doubt, by its own clock alone.

Silence is what lasts while somebody keeps asking. Time in which nobody polls does not count: the thread was busy, or
the process was frozen, and what came meanwhile needs a moment more. Nor does time before a partition was put in or
resumed. One look that finds something odd is no proof either: a record may have been written a moment ago, a broker may
be busy. So a doubt counts when the next look finds the same.

:class:`Silence` is that of a whole client, :class:`Stalls` that of some partitions while others deliver. The second one
looks only when everything that was fetched is taken: before that, what is missing may wait behind it, or be fetched
later for want of room.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import Enum
from typing import Final

from streams_protocol.types import TopicPartition

__all__ = ["Doubt", "Remedy", "Silence", "Stalls"]

_SILENCE_S: Final = 30.0
"""For so long nothing may arrive; each time that a new client has not helped, twice as long."""
_SILENCE_MAX_S: Final = 600.0
_GAP_S: Final = 5.0
_CONFIRM_S: Final = 5.0
_LOOKED_AT: Final = 10
"""So many partitions that are still are looked at each time: many may have nothing to deliver, and others wait."""


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
        self.asked_since_s = self._asked_s
        """Since when somebody has polled without a long pause."""
        self._doubt: Doubt | None = None

    @property
    def lasts_s(self) -> float:
        """How long it is borne."""
        return self._lasts_s

    def over(self) -> None:
        """Something has arrived."""
        if time.monotonic() - self._asked_s > _GAP_S:
            self.asked_since_s = time.monotonic()
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
            self.asked_since_s = now_s
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


class Remedy(Enum):
    """What a stalled partition needs."""

    NONE = "nothing, or another look"
    PUT_IN_AGAIN = "to be taken out and put in at its position"
    NEW_CLIENT = "another client: that has not helped"


class Stalls:
    """Partitions of one consumer that deliver nothing while others do."""

    def __init__(self) -> None:
        self._due_s = time.monotonic() + _SILENCE_S
        self._lasts_s = _SILENCE_S
        self._seen: dict[TopicPartition, int | None] = {}  # where they stood at the last look
        self._doubted: dict[TopicPartition, int | None] = {}  # their logs went on from here at the last look
        self._put_in_again: dict[TopicPartition, int | None] = {}
        self._next = 0
        self._tries = False

    def begins(self, partition: TopicPartition) -> None:
        """It was put in, taken out, paused or resumed: that it stands still says nothing from now on."""
        self._seen.pop(partition, None)
        self._doubted.pop(partition, None)

    def is_due(self, asked_since_s: float) -> bool:
        """Others have delivered, and all that was fetched is taken: True when it is time to look at those that have
        not. What came while nobody asked needs a moment more."""
        now_s = time.monotonic()
        return now_s >= self._due_s and now_s - asked_since_s >= _CONFIRM_S

    def suspects(self, positions: Mapping[TopicPartition, int | None]) -> list[TopicPartition]:
        """Those to look at: doubted ones that have not moved, or some of those that stand where they stood."""
        self._doubted = {at: position for at, position in self._doubted.items() if positions.get(at, -1) == position}
        still = sorted(at for at, position in positions.items() if self._seen.get(at, -1) == position)
        doubted = [at for at in still if at in self._doubted]
        self._due_s = time.monotonic() + self._lasts_s
        self._tries = False
        if doubted:
            return doubted[:_LOOKED_AT]
        self._put_in_again = {at: start for at, start in self._put_in_again.items() if positions.get(at, -1) == start}
        if not self._put_in_again:
            self._lasts_s = _SILENCE_S
        self._seen = dict(positions)
        first = self._next if self._next < len(still) else 0
        looked_at = still[first : first + _LOOKED_AT]
        self._next = first + len(looked_at)
        return looked_at

    def goes_on(self, partition: TopicPartition, position: int | None) -> Remedy:
        """The log of a suspect has more than its position."""
        if partition not in self._doubted:
            self._doubted[partition] = position
            self._due_s = time.monotonic() + _CONFIRM_S
            return Remedy.NONE
        del self._doubted[partition]
        if not self._tries:
            self._tries = True
            self._lasts_s = min(2 * self._lasts_s, _SILENCE_MAX_S)
            self._due_s = time.monotonic() + self._lasts_s
        if self._put_in_again.get(partition, -1) == position:
            return Remedy.NEW_CLIENT
        self._put_in_again[partition] = position
        return Remedy.PUT_IN_AGAIN

    def answered(self, partition: TopicPartition) -> None:
        """The log of a suspect has nothing more, or nobody says."""
        self._doubted.pop(partition, None)
