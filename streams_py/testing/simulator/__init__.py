"""A simulator of whole groups, with real leaders and members, in virtual time, deterministic for each seed.

    result = run_schedule(draw_schedule(seed))
    assert not result.violations

:func:`draw_schedule` draws a schedule (a group and its faults) from a seed, and :func:`run_schedule` runs it.
:func:`shrink` finds the shortest schedule that still fails. :func:`run_campaign` runs many schedules in several
processes. :data:`KNOWN_BUGS` contains schedules that reproduce known bugs of Kafka Streams. :data:`MUTANTS` contains
planted bugs that the checkers must find.

Leader, member, assignors, their messages and the error handling around them are the real code. The group coordinator,
the consumer's side of the protocol, topics and offsets, local state with its checkpoints, and restores are models. In a
restore, requests for end offsets may fail or return wrong values. The checkers in :mod:`streams_py.testing.checkers`
check the promises. Pass your own checkers as ``run_schedule(schedule, checkers=[...])``.
"""

from __future__ import annotations

from streams_py.testing.simulator.campaign import Campaign, Finding, run_campaign, schedule_of
from streams_py.testing.simulator.faults.faults import Fault
from streams_py.testing.simulator.known_bugs import KNOWN_BUGS
from streams_py.testing.simulator.mutants import MUTANTS
from streams_py.testing.simulator.run import RunResult, run_schedule
from streams_py.testing.simulator.schedule import Action, Schedule, draw_schedule
from streams_py.testing.simulator.shape import ASSIGNORS, GroupShape, ProcessShape
from streams_py.testing.simulator.shrink import shrink

__all__ = [
    "ASSIGNORS",
    "KNOWN_BUGS",
    "MUTANTS",
    "Action",
    "Campaign",
    "Fault",
    "Finding",
    "GroupShape",
    "ProcessShape",
    "RunResult",
    "Schedule",
    "draw_schedule",
    "run_campaign",
    "run_schedule",
    "schedule_of",
    "shrink",
]
