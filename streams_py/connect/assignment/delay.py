"""Lost jobs wait: a worker that restarts gets back what it had, and nobody else is disturbed (KIP-415).

Also the back-off of balancing, when round after round wants to revoke.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from streams_py.connect.assignment.jobs import NOTHING, Jobs

__all__ = ["LostJobs", "backoff_ms"]

_BACKOFF_BASE_MS = 40


def backoff_ms(successive: int, max_delay_ms: int) -> int:
    """How long the n-th revocation in a row waits: 40, 1,600, 64,000 ms ..., at most ``max_delay_ms``."""
    delay = 1
    for _ in range(successive):
        delay *= _BACKOFF_BASE_MS
        if delay >= max_delay_ms:
            return max_delay_ms
    return delay


class LostJobs:
    """The memory of the delay: when it ends, and who came in empty while it ran.

    ``scheduled_ms`` is a reading of ``clock_ms`` (always above 0), or 0 when nothing is pending. ``candidates`` are
    members in the order in which they were first seen with nothing.
    """

    def __init__(self, max_delay_ms: int, clock_ms: Callable[[], int]) -> None:
        self._max_delay_ms = max_delay_ms
        self._clock_ms = clock_ms
        self.scheduled_ms = 0
        self.delay_ms = 0
        self.candidates: list[str] = []

    def schedule(self, delay_ms: int) -> None:
        """Everybody comes back in ``delay_ms``."""
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
        """One round: (jobs that anybody may get now, jobs that candidates get, whether the delay has just ended).

        ``load`` is what the members who may be candidates hold. ``revoked_before``: the last round revoked for balance.
        """
        if not lost and not revoked_before:
            self._reset()
            return NOTHING, {}, False
        if self.scheduled_ms <= 0 and set(previous_members) <= set(members):
            return lost, {}, False  # nobody left: the last assignment was just not delivered
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
