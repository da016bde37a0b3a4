"""One checker per promise: safety and liveness properties of a group of stream threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from streams_py.testing.checkers.assignments import Determinism, OneActive, Standbys
from streams_py.testing.checkers.errors import AssignorErrors, HostileMembers, UnexplainedErrors
from streams_py.testing.checkers.observation import (
    Checker,
    Committed,
    Gained,
    Outcome,
    Placed,
    Published,
    Restored,
    Violation,
)
from streams_py.testing.checkers.ownership import CompleteState, Fenced, OneOwner
from streams_py.testing.checkers.stability import Convergence, Movement, Running, Versions

__all__ = [
    "ALL_CHECKERS",
    "PROMISES",
    "AssignorErrors",
    "Checker",
    "Committed",
    "CompleteState",
    "Convergence",
    "Determinism",
    "Fenced",
    "Gained",
    "HostileMembers",
    "Movement",
    "OneActive",
    "OneOwner",
    "Outcome",
    "Placed",
    "Published",
    "Restored",
    "Running",
    "Standbys",
    "UnexplainedErrors",
    "Versions",
    "Violation",
    "all_checkers",
]

PROMISES: Final[Mapping[str, str]] = {
    "A1": "every published assignment has each task active on exactly one thread",
    "A2": "standbys: only of stateful tasks, never with the active task, as many as configured or possible",
    "A3": "no two members of a generation may use a partition at the same time",
    "A4": "a member that lost a partition commits nothing after the new owner has committed",
    "A5": "assignments stop changing within Kafka's bounds, and then every task is active",
    "A6": "the same input gives the same bytes, whatever the order of the members",
    "A7": "nothing moves when nothing changed",
    "A8": "a mixed group finds its highest common version, without a loop of rebalances",
    "A11": "no member loses a task because an assignor fails",
    "L1": "every task is active within a minute of the last fault",
    "L2": "a hostile member does not harm the others",
    "S1": "no task runs on a store that lacks records of its changelogs",
    "I1": "nothing fails without a reason",
}
"""Text of each promise, by its id."""

ALL_CHECKERS: tuple[Callable[[], Checker], ...] = (
    OneActive,
    Standbys,
    OneOwner,
    Fenced,
    Convergence,
    Determinism,
    Movement,
    Versions,
    AssignorErrors,
    Running,
    HostileMembers,
    CompleteState,
    UnexplainedErrors,
)
"""Factories of all checkers."""


def all_checkers() -> list[Checker]:
    """Create one new instance of every checker."""
    return [make() for make in ALL_CHECKERS]
