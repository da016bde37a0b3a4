"""Why is a task where it is? The leader's memory of its last assignments.

Telling the explanation of every task would make each assign step slower, and hardly any is ever asked for. So only the
*question* of an assign step is kept, as the assignor got it; it is values that exist anyway. When somebody asks, the
same assignor decides the same question again and says why: assignors are deterministic, so the answer is the same.

Bounded twice: by the number of assignments, and by the number of lags they hold together (a lag takes about 100 bytes).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from streams_protocol.types import TaskId
from streams_py.assignment.explanation import TaskExplanation
from streams_py.assignment.problem import AssignmentProblem, BuiltInAssignor

__all__ = ["Explanations", "ToldExplanation"]

_ASSIGNMENTS_MAX: Final = 8
_LAGS_MAX: Final = 500_000


@dataclass(frozen=True, slots=True)
class ToldExplanation:
    """A task's explanation in one assignment; ``assigned_at_ms`` is the leader's wall clock then."""

    assigned_at_ms: int
    explanation: TaskExplanation

    def __str__(self) -> str:
        return str(self.explanation)


@dataclass(slots=True)
class _Kept:
    assigned_at_ms: int
    problem: AssignmentProblem
    assignor: BuiltInAssignor
    lags: int
    explained: Mapping[TaskId, TaskExplanation] | None = None


class Explanations:
    """The last assignments that a built-in assignor decided. Of those the application's own assignor decided nothing is
    kept: it alone knows its reasons."""

    def __init__(self, *, assignments_max: int = _ASSIGNMENTS_MAX, lags_max: int = _LAGS_MAX) -> None:
        self._kept: deque[_Kept] = deque(maxlen=assignments_max)
        self._lags_max = lags_max

    def keep(self, assigned_at_ms: int, problem: AssignmentProblem, assignor: BuiltInAssignor) -> None:
        """Remember the question of an assign step; the oldest ones make room."""
        lags = sum(len(client.lags) for client in problem.clients)
        self._kept.append(_Kept(assigned_at_ms, problem, assignor, lags))
        while len(self._kept) > 1 and sum(kept.lags for kept in self._kept) > self._lags_max:
            self._kept.popleft()

    def explanation(self, task_id: TaskId) -> list[ToldExplanation]:
        """The task's explanation in each assignment remembered, newest first; empty when none of them had the task."""
        explained: list[ToldExplanation] = []
        for kept in reversed(list(self._kept)):
            if kept.explained is None:
                kept.explained = dict(kept.assignor.decide(kept.problem, explain=True).explanation)
            if task_id in kept.explained:
                explained.append(ToldExplanation(kept.assigned_at_ms, kept.explained[task_id]))
        return explained

    def tasks(self) -> frozenset[TaskId]:
        """Every task of the assignments remembered."""
        return frozenset(task for kept in self._kept for task in kept.problem.tasks)

    def __len__(self) -> int:
        return len(self._kept)
