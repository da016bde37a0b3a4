"""One file per promise: what a group of stream threads never does, and what it always comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from streams_py.testing.checkers.a1_one_active import OneActive
from streams_py.testing.checkers.a2_standbys import Standbys
from streams_py.testing.checkers.a3_one_owner import OneOwner
from streams_py.testing.checkers.a4_fenced import Fenced
from streams_py.testing.checkers.a5_convergence import Convergence
from streams_py.testing.checkers.a6_determinism import Determinism
from streams_py.testing.checkers.a7_movement import Movement
from streams_py.testing.checkers.a8_versions import Versions
from streams_py.testing.checkers.a11_assignor_errors import AssignorErrors
from streams_py.testing.checkers.i1_reasons import Reasons
from streams_py.testing.checkers.l1_running import Running
from streams_py.testing.checkers.l2_poison import Poison
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
from streams_py.testing.checkers.s1_complete_state import CompleteState

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
    "Movement",
    "OneActive",
    "OneOwner",
    "Outcome",
    "Placed",
    "Poison",
    "Published",
    "Reasons",
    "Restored",
    "Running",
    "Standbys",
    "Versions",
    "Violation",
    "all_checkers",
]

PROMISES: Final[Mapping[str, str]] = {
    "A1": "every published assignment has each task active on exactly one thread",
    "A2": "standbys: only of stateful tasks, never beside the active, as many as configured or possible",
    "A3": "no two members of a generation may use a partition at the same time",
    "A4": "whoever lost a partition commits nothing after its successor has",
    "A5": "assignments stop changing within Kafka's bounds, and then every task is active",
    "A6": "the same input gives the same bytes, whatever the order of the members",
    "A7": "nothing moves when nothing changed",
    "A8": "a mixed group finds its highest common version, without a loop of rebalances",
    "A11": "an assignor that fails costs nobody a task",
    "L1": "every task is active within a minute of the last fault",
    "L2": "a poisonous member costs the others nothing",
    "S1": "no task runs on a store that lacks what its changelogs have",
    "I1": "nothing fails without a reason",
}
"""What each of them says."""

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
    Poison,
    CompleteState,
    Reasons,
)
"""Every checker that exists."""


def all_checkers() -> list[Checker]:
    """A fresh one of each."""
    return [make() for make in ALL_CHECKERS]
