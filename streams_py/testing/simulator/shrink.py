"""Shortening of failing schedules (delta debugging).

Actions are removed from a failing schedule, first in large pieces, then one by one, as long as the same promise is
still broken. The remaining actions are easier to understand.
"""

from __future__ import annotations

from collections.abc import Callable

from streams_py.testing.simulator.run import RunResult, run_schedule
from streams_py.testing.simulator.schedule import Schedule


def shrink(
    schedule: Schedule, *, runs_max: int = 200, run: Callable[[Schedule], RunResult] = run_schedule
) -> tuple[Schedule, RunResult]:
    """Return (the shortest failing schedule found, its result), after at most ``runs_max`` runs.

    Raises ValueError if the schedule does not fail.
    """
    best = run(schedule)
    if not best.violations:
        raise ValueError(f"the schedule of seed {schedule.seed} does not fail, so it cannot be shortened")
    promise = best.violations[0].promise
    left = runs_max - 1
    size = max(1, len(schedule.actions) // 2)
    while size and left:
        start = 0
        while start < len(schedule.actions) and left:
            kept = [n for n in range(len(schedule.actions)) if not start <= n < start + size]
            candidate = schedule.keeping(tuple(kept))
            result = run(candidate)
            left -= 1
            if any(violation.promise == promise for violation in result.violations):
                schedule, best = candidate, result
            else:
                start += size
        size //= 2
    return schedule, best
