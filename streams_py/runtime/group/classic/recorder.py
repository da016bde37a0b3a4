"""Records the rebalances of one stream thread in the log and in timelines, and keeps its member on record."""

from __future__ import annotations

from streams_py.member.tasks import Tasks
from streams_py.runtime.group.classic.rebalance_log import RebalanceLog
from streams_py.runtime.group.timeline import Timekeeper
from streams_py.runtime.group.transport import JoinObserver


class RebalanceRecorder:
    """The records of one stream thread's rebalances. Polling thread only.

    Args:
        index: Number of the stream thread.
        log: The log lines about its rebalances.
        times: The timelines of its rebalances.
        joins: Called around each JoinGroup request.
    """

    def __init__(self, index: int, log: RebalanceLog, times: Timekeeper, joins: JoinObserver) -> None:
        self._index = index
        self._log = log
        self._times = times
        self._joins = joins

    def joining(self, member_id: str, generation: int) -> None:
        """Put the member on record before its JoinGroup request is sent."""
        self._joins.joining(self._index, member_id, generation)

    def join_waits(self, waited_s: float) -> None:
        """Remove the members of the former run, for which the group waits. Log a long wait."""
        self._joins.waits(waited_s)

    def begins(self) -> None:
        """Note that a subscription is being built."""
        self._log.begins()
        self._times.begins()

    def lost_all(self) -> None:
        """Note that the membership is lost, with all active tasks."""
        self._log.lost_all()

    def enters(self, phase: str) -> None:
        """Start a phase of the rebalance."""
        self._times.enters(phase)

    def leaves(self) -> None:
        """End the current phase."""
        self._times.leaves()

    def ends(self, received: Tasks | None, now: Tasks, error: Exception | None) -> None:
        """Note the end of a rebalance.

        Args:
            received: The tasks of the new assignment; None if they are unchanged.
            now: The tasks that this thread has now.
            error: Why the assignment failed.
        """
        self._log.ends(received)
        self._times.ends(active_tasks=len(now.active), standby_tasks=len(now.standby), error=error)
