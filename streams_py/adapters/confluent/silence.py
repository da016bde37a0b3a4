"""Decide when a consumer that delivers nothing is suspect, based on local time only.

Silence counts only while the consumer is polled. A pause between polls does not count: the thread was busy or the
process was frozen, and records that arrived meanwhile need a moment to be delivered. Time before a partition was
assigned or resumed does not count either. A single check of the logs is not proof: a record may have just been written,
or a broker may be busy. So a finding counts when the next check confirms it.

:class:`Silence` covers a whole client. :class:`Stalls` covers single partitions while others deliver. Stalls are
checked only when all fetched records were delivered. Before that, records of the other partitions may still be queued,
or librdkafka may not fetch them because its queue is full.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import Enum
from typing import Final

from streams_protocol.types import TopicPartition

_SILENCE_S: Final = 30.0
"""Time without a record before the logs are checked, in seconds; doubled each time that a new client did not help."""
_SILENCE_MAX_S: Final = 600.0
_GAP_S: Final = 5.0
_CONFIRM_S: Final = 5.0
_CHECKED_MAX: Final = 10
"""Stalled partitions per check. Many may be idle, and the deliveries of the other partitions wait for the check."""


class Doubt(Enum):
    """Finding of a check of the logs."""

    HAS_MORE = "the log has more records"
    UNANSWERED = "no broker answers"


class Silence:
    """The silence of one consumer."""

    def __init__(self) -> None:
        self._lasts_s = _SILENCE_S
        self._due_s = time.monotonic() + _SILENCE_S
        self._asked_s = time.monotonic()
        self.asked_since_s = self._asked_s
        """Start of the time in which the consumer has been polled without a long pause (monotonic seconds)."""
        self._doubt: Doubt | None = None

    @property
    def lasts_s(self) -> float:
        """Silence after which the logs are checked, in seconds."""
        return self._lasts_s

    def ended(self) -> None:
        """End the silence: something has arrived."""
        if time.monotonic() - self._asked_s > _GAP_S:
            self.asked_since_s = time.monotonic()
        self._lasts_s = _SILENCE_S
        self.restart()

    def restart(self) -> None:
        """Start measuring again, because the set of partitions or their positions has changed."""
        self._asked_s = now_s = time.monotonic()
        self._due_s = max(now_s + _SILENCE_S, self._due_s if self._lasts_s > _SILENCE_S else 0.0)
        self._doubt = None

    def is_due(self, waited_s: float) -> bool:
        """Note a poll without records, and return whether to check the logs now. ``waited_s``: the poll's timeout."""
        now_s, before_s = time.monotonic(), self._asked_s
        if now_s - before_s > waited_s + _GAP_S:
            self.asked_since_s = now_s
            self.restart()
        self._asked_s = now_s
        return now_s >= self._due_s

    def confirms(self, doubt: Doubt | None) -> bool:
        """Note the finding of a check; True when the previous check had the same one, so a new client is due."""
        confirmed = doubt is not None and doubt is self._doubt
        self._doubt = doubt
        self._due_s = time.monotonic() + (_CONFIRM_S if doubt is Doubt.HAS_MORE else _SILENCE_S)
        return confirmed

    def back_off(self) -> None:
        """Double the accepted silence, after an attempt to create a new client."""
        self._lasts_s = min(2 * self._lasts_s, _SILENCE_MAX_S)
        self._due_s = time.monotonic() + self._lasts_s
        self._doubt = None


class Remedy(Enum):
    """Action for a stalled partition."""

    NONE = "nothing, or another check"
    REASSIGN = "to be unassigned and assigned again at its position"
    NEW_CLIENT = "another client: reassigning it did not help"


class Stalls:
    """Partitions of one consumer that deliver nothing while others do."""

    def __init__(self) -> None:
        self._due_s = time.monotonic() + _SILENCE_S
        self._lasts_s = _SILENCE_S
        self._seen: dict[TopicPartition, int | None] = {}  # positions at the last check
        self._doubted: dict[TopicPartition, int | None] = {}  # positions after which the last check found records
        self._reassigned: dict[TopicPartition, int | None] = {}
        self._next = 0
        self._tries = False

    def forget(self, partition: TopicPartition) -> None:
        """Forget the positions seen of a partition that was assigned, unassigned, paused or resumed."""
        self._seen.pop(partition, None)
        self._doubted.pop(partition, None)

    def is_due(self, asked_since_s: float) -> bool:
        """Whether to check the partitions that have delivered nothing. Call it when all fetched records were delivered.

        After a pause in polling, records that arrived meanwhile need a moment to be delivered.
        """
        now_s = time.monotonic()
        return now_s >= self._due_s and now_s - asked_since_s >= _CONFIRM_S

    def suspects(self, positions: Mapping[TopicPartition, int | None]) -> list[TopicPartition]:
        """Select the partitions to check.

        Returns:
            The suspect partitions of the last check whose position has not moved. Without any, some other partitions
            whose position has not moved.
        """
        self._doubted = {at: position for at, position in self._doubted.items() if positions.get(at, -1) == position}
        still = sorted(at for at, position in positions.items() if self._seen.get(at, -1) == position)
        doubted = [at for at in still if at in self._doubted]
        self._due_s = time.monotonic() + self._lasts_s
        self._tries = False
        if doubted:
            return doubted[:_CHECKED_MAX]
        self._reassigned = {at: start for at, start in self._reassigned.items() if positions.get(at, -1) == start}
        if not self._reassigned:
            self._lasts_s = _SILENCE_S
        self._seen = dict(positions)
        first = self._next if self._next < len(still) else 0
        looked_at = still[first : first + _CHECKED_MAX]
        self._next = first + len(looked_at)
        return looked_at

    def has_more(self, partition: TopicPartition, position: int | None) -> Remedy:
        """Note that the log of a selected partition has records after its position, and return what to do."""
        if partition not in self._doubted:
            self._doubted[partition] = position
            self._due_s = time.monotonic() + _CONFIRM_S
            return Remedy.NONE
        del self._doubted[partition]
        if not self._tries:
            self._tries = True
            self._lasts_s = min(2 * self._lasts_s, _SILENCE_MAX_S)
            self._due_s = time.monotonic() + self._lasts_s
        if self._reassigned.get(partition, -1) == position:
            return Remedy.NEW_CLIENT
        self._reassigned[partition] = position
        return Remedy.REASSIGN

    def answered(self, partition: TopicPartition) -> None:
        """Note that the log of a selected partition has no further records, or that no broker answered."""
        self._doubted.pop(partition, None)
