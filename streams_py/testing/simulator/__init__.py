"""Whole groups of real leaders and members, in virtual time, from one seed.

:func:`run_schedule` runs one life of a group; :func:`draw_schedule` draws one from a seed. Real are leader, member,
assignors, every byte that they exchange, and the error handling around them. Models are the group coordinator, the
consumer's protocol steps, topics and offsets, local state. Promises are watched by
:mod:`streams_py.testing.checkers`.
"""

from __future__ import annotations

from streams_py.testing.simulator.canaries import CANARIES
from streams_py.testing.simulator.faults import Fault
from streams_py.testing.simulator.run import RunResult, run_schedule
from streams_py.testing.simulator.schedule import Action, Schedule, draw_schedule
from streams_py.testing.simulator.shape import ASSIGNORS, GroupShape, ProcessShape

__all__ = [
    "ASSIGNORS",
    "CANARIES",
    "Action",
    "Fault",
    "GroupShape",
    "ProcessShape",
    "RunResult",
    "Schedule",
    "draw_schedule",
    "run_schedule",
]
