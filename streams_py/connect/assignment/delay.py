"""The delay before lost jobs are reassigned (KIP-415), and the back-off of revocations.

A worker that restarts within the delay gets its jobs back, and the jobs of other workers do not move.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from streams_py.connect.assignment.jobs import NOTHING, Jobs

_BACKOFF_BASE_MS = 40


def backoff_ms(successive: int, max_delay_ms: int) -> int:
    """Return the delay of the n-th revocation in a row.

    Delays are 40, 1,600, 64,000 ms ..., at most ``max_delay_ms``.
    """
    delay = 1
    for _ in range(successive):
        delay *= _BACKOFF_BASE_MS
        if delay >= max_delay_ms:
            return max_delay_ms
    return delay


class LostJobs:
    """The state of the delay: its end, and the members that joined without jobs meanwhile.

    ``scheduled_ms`` is a time of ``clock_ms`` (always above 0), or 0 if no delay is pending. ``candidates`` are members
    without jobs, in the order in which they joined.
    """

    def __init__(self, max_delay_ms: int, clock_ms: Callable[[], int]) -> None:
        self._max_delay_ms = max_delay_ms
        self._clock_ms = clock_ms
        self.scheduled_ms = 0
        self.delay_ms = 0
        self.candidates: list[str] = []

    def schedule(self, delay_ms: int) -> None:
        """Let all members rejoin after ``delay_ms``."""
        self.delay_ms = delay_ms
        self.scheduled_ms = self._clock_ms() + delay_ms

    def handle(
        self,
        lost: Jobs,
        load: Mapping[str, Jobs],
        *,
        members: Collection[str],
        previous_members: Collection[str],
        revoked_before: bool,
    ) -> tuple[Jobs, dict[str, Jobs], bool]:
        """Process one round.

        Args:
            lost: Jobs of members that have left.
            load: Jobs of each member that may be a candidate.
            members: Members of this round.
            previous_members: Members of the previous round.
            revoked_before: Whether the previous round revoked jobs to balance the load.

        Returns:
            Jobs that any member may get now; jobs for each candidate; whether the delay has just ended.
        """
        if not lost and not revoked_before:
            self._reset()
            return NOTHING, {}, False
        if self.scheduled_ms <= 0 and set(previous_members) <= set(members):
            return lost, {}, False  # no member left; only the last assignment was not delivered
        if self._max_delay_ms == 0:
            return lost, {}, False
        now = self._clock_ms()
        if 0 < self.scheduled_ms <= now:
            candidates = [member for member in self.candidates if member in load]
            self._reset()
            return (NOTHING, _deal(lost, candidates), True) if candidates else (lost, {}, True)
        self.candidates += [member for member in sorted(load) if not load[member] and member not in self.candidates]
        self.delay_ms = (
            min(self.scheduled_ms - now, self._max_delay_ms) if now < self.scheduled_ms else self._max_delay_ms
        )
        self.scheduled_ms = now + self.delay_ms
        return NOTHING, {}, False

    def _reset(self) -> None:
        self.candidates.clear()
        self.scheduled_ms = self.delay_ms = 0


def _deal(lost: Jobs, candidates: list[str]) -> dict[str, Jobs]:
    connectors, tasks = sorted(lost.connectors), sorted(lost.tasks)
    step = len(candidates)
    return {member: Jobs.of(connectors[place::step], tasks[place::step]) for place, member in enumerate(candidates)}
