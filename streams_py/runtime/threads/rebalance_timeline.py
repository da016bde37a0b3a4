"""What took how long in a rebalance, for tracing.

Written by one stream thread's polling thread, and told when the rebalance is over. The leader's steps are those of its
assign step; ``hand-over`` is what follows the assignment: tasks are closed, kept and created.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from streams_py.printable import named

__all__ = ["Phase", "RebalanceListener", "RebalanceTimeline", "Timekeeper"]

_log = logging.getLogger(__name__)
_PHASES_MAX: Final = 200
"""A rebalance that starts again and again must not fill the memory; further phases are left out."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a rebalance; times in ns since the epoch."""

    name: str
    began_ns: int
    ended_ns: int


@dataclass(slots=True)
class RebalanceTimeline:
    """A rebalance of one member. ``phases`` follow each other, with pauses in which the broker waits for others."""

    thread: str
    began_ns: int
    ended_ns: int = 0
    was_leader: bool = False
    active_tasks: int = 0
    standby_tasks: int = 0
    error: str | None = None
    phases: list[Phase] = field(default_factory=list)


RebalanceListener: TypeAlias = Callable[[RebalanceTimeline], object]


class Timekeeper:
    """Notes the phases of one stream thread's rebalances. Polling thread only."""

    def __init__(self, thread: str, listeners: Sequence[RebalanceListener]) -> None:
        self._thread = thread
        self._listeners = listeners
        self._timeline: RebalanceTimeline | None = None
        self._step: tuple[str, int] | None = None

    def begins(self) -> None:
        """A subscription is built; further ones of the same rebalance do not start it again."""
        if self._timeline is None:
            self._timeline = RebalanceTimeline(self._thread, time.time_ns())

    def leads(self) -> None:
        """This member is the leader."""
        if self._timeline is not None:
            self._timeline.was_leader = True

    def enters(self, name: str) -> None:
        """A phase begins, and with it the one before ends."""
        self.leaves()
        self._step = (name, time.time_ns())

    def leaves(self) -> None:
        """The phase under way ends, if there is one."""
        timeline, step, self._step = self._timeline, self._step, None
        if timeline is not None and step is not None and len(timeline.phases) < _PHASES_MAX:
            timeline.phases.append(Phase(step[0], step[1], time.time_ns()))

    def ends(self, *, active_tasks: int, standby_tasks: int, error: Exception | None) -> None:
        """The rebalance is over: tell it."""
        self.leaves()
        timeline, self._timeline = self._timeline, None
        if timeline is None:
            return
        timeline.ended_ns = time.time_ns()
        timeline.active_tasks, timeline.standby_tasks = active_tasks, standby_tasks
        timeline.error = None if error is None else named(error)
        for listener in list(self._listeners):
            try:
                listener(timeline)
            except Exception:
                _log.exception("a listener of rebalances failed")
