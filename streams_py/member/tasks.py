"""The tasks and hosts that a member receives, and the progress that it reports. They don't depend on a wire format."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from streams_protocol.types import HostInfo, TaskId, TopicPartition


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks assigned to a member, with their input partitions.

    A task is in at most one of the two maps.
    """

    active: Mapping[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    standby: Mapping[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostView:
    """The input partitions of each endpoint, active and standby, for interactive queries.

    The maps show where tasks are *going*: while a task moves, its new host appears slightly too early. A key can be
    looked up only in the partitions of the active map.
    """

    active: Mapping[HostInfo, AbstractSet[TopicPartition]] = field(default_factory=dict)
    standby: Mapping[HostInfo, AbstractSet[TopicPartition]] = field(default_factory=dict)


class Progress(NamedTuple):
    """Progress of a standby or warm-up task, in offsets summed over its changelogs."""

    position: int
    end: int
