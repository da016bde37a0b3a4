"""Durations of the steps of a rebalance, for tracing.

The polling thread of one stream thread records them and reports them at the end of the rebalance. The leader also
records the parts of its assign step. ``hand-over`` follows the assignment: tasks are closed, kept and created.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from streams_py.system.printable import named

_log = logging.getLogger(__name__)
_PHASES_MAX: Final = 200
"""Maximum number of recorded phases: a rebalance that restarts again and again must not fill the memory."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a rebalance; times in ns since the epoch."""

    name: str
    began_ns: int
    ended_ns: int


@dataclass(slots=True)
class RebalanceTimeline:
    """A rebalance of one member. Between two ``phases`` the broker may wait for other members."""

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
    """Records the phases of one stream thread's rebalances. Polling thread only."""

    def __init__(self, thread: str, listeners: Sequence[RebalanceListener]) -> None:
        self._thread = thread
        self._listeners = listeners
        self._timeline: RebalanceTimeline | None = None
        self._step: tuple[str, int] | None = None

    def begins(self) -> None:
        """Start a timeline when a subscription is built. Later subscriptions of the same rebalance don't restart it."""
        if self._timeline is None:
            self._timeline = RebalanceTimeline(self._thread, time.time_ns())

    def leads(self) -> None:
        """Note that this member is the leader."""
        if self._timeline is not None:
            self._timeline.was_leader = True

    def enters(self, name: str) -> None:
        """Start a phase and end the previous one."""
        self.leaves()
        self._step = (name, time.time_ns())

    def leaves(self) -> None:
        """End the current phase, if there is one."""
        timeline, step, self._step = self._timeline, self._step, None
        if timeline is not None and step is not None and len(timeline.phases) < _PHASES_MAX:
            timeline.phases.append(Phase(step[0], step[1], time.time_ns()))

    def ends(self, *, active_tasks: int, standby_tasks: int, error: Exception | None) -> None:
        """End the rebalance and call the listeners."""
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
                _log.exception("a rebalance listener failed")
