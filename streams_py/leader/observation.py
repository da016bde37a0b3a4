"""Facts about an assign step and its progress, for observers.

The leader reports them with the effects ``EnterStep`` and ``Observe``. Observers run inside the assign step. They must
not raise, must not change the objects they receive, and must be quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.problem import AssignmentProblem, Placement
from streams_py.leader.events import AssignRequested
from streams_py.leader.steps.decode import Group
from streams_py.leader.steps.encode import ClientThreads
from streams_py.leader.steps.state import ClientHistory, EndOffsets
from streams_py.leader.steps.tasks import TaskTable
from streams_py.ports import AdminError, PartitionInfo


class AssignStep(Enum):
    """A part of the assign step, for measuring. It lasts until the next part begins."""

    DECODE = "decode"
    TOPICS = "topics"
    END_OFFSETS = "end_offsets"
    ASSIGN = "assign"
    THREADS = "threads"
    ENCODE = "encode"


@dataclass(frozen=True, slots=True)
class Gathered:
    """The input of the decision: the tasks and what each client had before."""

    request: AssignRequested
    group: Group
    table: TaskTable
    topics: Mapping[str, tuple[PartitionInfo, ...]]
    ends: EndOffsets
    histories: Mapping[ProcessId, ClientHistory]
    problem: AssignmentProblem


@dataclass(frozen=True, slots=True)
class RacksDescribed:
    """The topics that were described for their racks."""

    topics: Mapping[str, tuple[PartitionInfo, ...] | AdminError]


@dataclass(frozen=True, slots=True)
class Decided:
    """The tasks that each client and each of its threads shall have.

    Attributes:
        placements: None when the application's assignor failed and all members keep their tasks.
        threads: the tasks of each thread, always set, including withheld tasks.
        deadlines: follow-up times, in ms since the epoch.
        warmups: the standbys that are warm-ups; empty for a custom assignor, which does not distinguish them.
    """

    placements: Mapping[ProcessId, Placement] | None
    threads: Mapping[ProcessId, ClientThreads]
    deadlines: Mapping[ProcessId, int]
    warmups: tuple[tuple[TaskId, ProcessId], ...] = ()


Fact: TypeAlias = AssignStep | Gathered | RacksDescribed | Decided
"""A fact that an observer can receive during an assign step."""
