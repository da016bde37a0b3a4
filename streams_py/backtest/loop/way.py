"""The costs of an outside event: the scores of all rebalances until the group is at rest.

Costs of changes (moved tasks, restored records) are added up over the decisions. A task counts when it is handed over,
not while it is withheld. Scores of states (balance, spread, missing copies, distances) are averaged over the hour after
the event, or over the time until rest if that is longer. So a decision that stays counts for more than a decision
that is replaced after a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from streams_protocol.types import TaskId
from streams_py.backtest.deciding import Answer
from streams_py.backtest.rounds import Step
from streams_py.backtest.scores import Scores, owners_of, score
from streams_py.backtest.situation import Situation

HORIZON_MS: Final = 3_600_000
_ADDED: Final = ("moved_active", "moved_cold", "moved_standby", "restore_records", "unavailable_records")
_AVERAGED: Final = (
    "missing_copies",
    "balance_cv",
    "max_over_mean",
    "sub_skew",
    "weighted_max_over_mean",
    "spread_violations",
    "cross_rack_partitions",
)


class EventCosts:
    """Adds up scores as the watcher of :func:`~streams_py.backtest.rounds.settle`.

    ``last`` is the last decision with its situation and its result.
    """

    def __init__(self) -> None:
        self._scores: list[Scores] = []
        self._intervals: list[int] = []
        self._owners: dict[TaskId, str] = {}
        self._ns_wall = self._ns_cpu = 0
        self.last: tuple[Situation, Answer, Step] | None = None

    def __call__(self, situation: Situation, answer: Answer, step: Step) -> None:
        owners, withheld = self._owners, step.withheld
        if not self._scores:
            owners |= owners_of(situation)
        self._scores.append(score(situation, answer.placed, withheld=withheld, owners=owners))
        for name, placed in answer.placed.items():
            owners |= {task: name for task in placed.active if task not in withheld}
        self._intervals.append(step.interval_ms)
        self._ns_wall += answer.ns_wall or 0
        self._ns_cpu += answer.ns_cpu or 0
        self.last = situation, answer, step

    @property
    def unassigned(self) -> int:
        """The largest number of tasks that one of the decisions has not assigned."""
        return max((of.unassigned for of in self._scores), default=0)

    def row(self, *, stable: bool) -> dict[str, Any]:
        """Return columns of a score row. None for a score that is unknown for a decision."""
        weights = list(self._intervals)
        if stable:  # the last decision stays
            weights[-1] += max(HORIZON_MS - sum(weights), 0)
        row: dict[str, Any] = {name: _sum(self._values(name)) for name in _ADDED}
        row |= {name: _mean(self._values(name), weights) for name in _AVERAGED}
        return row | {"unassigned": self.unassigned, "ns_wall": self._ns_wall, "ns_cpu": self._ns_cpu}

    def _values(self, name: str) -> list[float | None]:
        return [getattr(of, name) for of in self._scores]


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _mean(values: Sequence[float | None], weights: Sequence[int]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if min(known) == max(known):
        return float(known[0])  # exactly, whatever the weights
    return sum(value * weight for value, weight in zip(known, weights, strict=True)) / sum(weights)
