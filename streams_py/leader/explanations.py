"""Explanations of the leader's last assignments: why each task is where it is.

Computing explanations for every task would slow down each assign step, and almost none of them are ever requested. So
the leader keeps only the *input* of the assignor, which consists of values that exist anyway. On request the same
assignor decides the same input again and explains the decision. Assignors are deterministic, so the decision is the
same.

Two bounds limit the memory: the number of assignments, and the total number of lags in them (a lag takes about 100
bytes).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from streams_protocol.types import TaskId
from streams_py.assignment.explanation import TaskExplanation
from streams_py.assignment.problem import AssignmentProblem, BuiltInAssignor

_ASSIGNMENTS_MAX: Final = 8
_LAGS_MAX: Final = 500_000


@dataclass(frozen=True, slots=True)
class ToldExplanation:
    """A task's explanation in one assignment.

    ``assigned_at_ms`` is the leader's wall-clock time of the assignment, in ms since the epoch.
    """

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
    """The inputs of the last assignments that a built-in assignor decided.

    Assignments of the application's own assignor are not kept: the leader cannot explain them.
    """

    def __init__(self, *, assignments_max: int = _ASSIGNMENTS_MAX, lags_max: int = _LAGS_MAX) -> None:
        self._kept: deque[_Kept] = deque(maxlen=assignments_max)
        self._lags_max = lags_max

    def keep(self, assigned_at_ms: int, problem: AssignmentProblem, assignor: BuiltInAssignor) -> None:
        """Keep the input of an assign step; the oldest inputs are dropped if necessary."""
        lags = sum(len(client.lags) for client in problem.clients)
        self._kept.append(_Kept(assigned_at_ms, problem, assignor, lags))
        while len(self._kept) > 1 and sum(kept.lags for kept in self._kept) > self._lags_max:
            self._kept.popleft()

    def explanation(self, task_id: TaskId) -> list[ToldExplanation]:
        """Return the task's explanation in each kept assignment that has the task, newest first."""
        explained: list[ToldExplanation] = []
        for kept in reversed(list(self._kept)):
            if kept.explained is None:
                kept.explained = dict(kept.assignor.decide(kept.problem, explain=True).explanation)
            if task_id in kept.explained:
                explained.append(ToldExplanation(kept.assigned_at_ms, kept.explained[task_id]))
        return explained

    def tasks(self) -> frozenset[TaskId]:
        """Return every task of the kept assignments."""
        return frozenset(task for kept in self._kept for task in kept.problem.tasks)

    def __len__(self) -> int:
        return len(self._kept)
