"""Whole groups of real leaders and members, in virtual time, from one seed.

    result = run_schedule(draw_schedule(seed))
    assert not result.violations

:func:`draw_schedule` draws one life of a group from a seed, :func:`run_schedule` runs it, :func:`shrink` finds the
shortest history that still goes wrong, :func:`run_campaign` runs many on several processes. :data:`KNOWN_BUGS` has the
known bugs of Kafka Streams as schedules, :data:`MUTANTS` planted ones that must be found.

Real are leader, member, assignors, every byte that they exchange, and the error handling around them. Models are the
group coordinator, the consumer's protocol steps, topics and offsets, local state with its checkpoints, and restoring,
whose questions about end offsets may go unanswered or be answered with nonsense. Promises are watched by
:mod:`streams_py.testing.checkers`; a checker of your own goes into ``run_schedule(schedule, checkers=[...])``.
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
