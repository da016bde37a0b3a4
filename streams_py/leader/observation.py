"""What an assign step was about and how far it is, for whoever wants to know without being part of it.

The leader says it with its effects ``EnterStep`` and ``Observe``. Whoever listens must not raise, must not change what
it is given, and must be quick: it runs inside the assign step.
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

__all__ = ["AssignStep", "Decided", "Fact", "Gathered", "RacksDescribed"]


class AssignStep(Enum):
    """Part of an assign step, for measuring. Each one lasts until the next is entered."""

    DECODE = "decode"
    TOPICS = "topics"
    END_OFFSETS = "end_offsets"
    ASSIGN = "assign"
    THREADS = "threads"
    ENCODE = "encode"


@dataclass(frozen=True, slots=True)
class Gathered:
    """Everything known once the tasks and their history are."""

    request: AssignRequested
    group: Group
    table: TaskTable
    topics: Mapping[str, tuple[PartitionInfo, ...]]
    ends: EndOffsets
    histories: Mapping[ProcessId, ClientHistory]
    problem: AssignmentProblem


@dataclass(frozen=True, slots=True)
class RacksDescribed:
    """Topics that were looked up for their racks."""

    topics: Mapping[str, tuple[PartitionInfo, ...] | AdminError]


@dataclass(frozen=True, slots=True)
class Decided:
    """Who is to have which tasks. ``placements`` is None when the application's assignor failed and everybody keeps
    what they have; ``threads`` has the tasks in any case, withheld ones included. ``deadlines`` of follow-ups are in ms
    since the epoch. ``warmups`` are among the standbys; a custom assignor does not name any."""

    placements: Mapping[ProcessId, Placement] | None
    threads: Mapping[ProcessId, ClientThreads]
    deadlines: Mapping[ProcessId, int]
    warmups: tuple[tuple[TaskId, ProcessId], ...] = ()


Fact: TypeAlias = AssignStep | Gathered | RacksDescribed | Decided
"""What can be known of an assign step while it goes on."""
