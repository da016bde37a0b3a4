"""Logs one line for each rebalance of a stream thread: tasks gained, lost and kept, and the duration."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from streams_protocol.types import TaskId
from streams_py.member.tasks import Tasks
from streams_py.ports import Clock

_log = logging.getLogger(__name__)

_SHOWN_MAX: Final = 20


class RebalanceLog:
    """Remembers the active tasks of one stream thread between rebalances. Polling thread only."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._active: frozenset[TaskId] = frozenset()
        self._dropped: frozenset[TaskId] = frozenset()
        self._standby: frozenset[TaskId] = frozenset()
        self._began_ms: int | None = None

    def begins(self) -> None:
        """Start the clock when a subscription is built. Later subscriptions of the same rebalance don't restart it."""
        if self._began_ms is None:
            self._began_ms = self._clock.monotonic_ms()

    def lost_all(self) -> None:
        """Note that the member has left the group or was removed from it, and has dropped all of its active tasks."""
        dropped, self._active = self._active, frozenset()
        if dropped:
            self._dropped |= dropped
            _log.warning(
                "%s: no longer a member of its group; dropped active tasks %s without committing; joining again",
                self._name,
                _listed(dropped),
            )

    def ends(self, tasks: Tasks | None) -> None:
        """Log the rebalance. With ``tasks=None`` the tasks are unchanged.

        A task that the member dropped and gets again counts as gained: it starts again from its last commit. A task
        that it dropped and does not get again counts as lost.
        """
        before, dropped, self._dropped = self._active, self._dropped, frozenset()
        if tasks is not None:
            self._active, self._standby = frozenset(tasks.active), frozenset(tasks.standby)
        began_ms, self._began_ms = self._began_ms, None
        _log.info(
            "%s: rebalance of %.1f s: gained %s; lost %s; kept %s; standbys %s",
            self._name,
            0.0 if began_ms is None else (self._clock.monotonic_ms() - began_ms) / 1000,
            _listed(self._active - before),
            _listed((before | dropped) - self._active),
            _listed(self._active & before),
            _listed(self._standby),
        )


def _listed(tasks: Iterable[TaskId]) -> str:
    every = sorted(tasks)
    more = f" and {len(every) - _SHOWN_MAX} more" if len(every) > _SHOWN_MAX else ""
    return (", ".join(map(str, every[:_SHOWN_MAX])) or "none") + more
