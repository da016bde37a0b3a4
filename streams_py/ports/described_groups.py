"""Consumer groups as described by their coordinators: the results of the port ``GroupAdmin``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from streams_protocol.types import TaskId


class DescribedMember(NamedTuple):
    """One member as stored by the group's coordinator. The bytes were sent by the member and by its leader."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    subscription: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A classic group. ``state``: Stable, PreparingRebalance, CompletingRebalance, Empty or Dead."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


class DescribedSubtopology(NamedTuple):
    """A sub-topology of a group that uses the streams protocol, with full topic names."""

    id: int
    source_topics: tuple[str, ...]
    repartition_topics: tuple[str, ...]
    """The repartition topics that it reads."""
    changelog_topics: tuple[str, ...]


class DescribedStreamsMember(NamedTuple):
    """A member of a group that uses the streams protocol. Offsets are sums over a task's changelogs, if reported."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack: str | None
    process_id: str
    epoch: int
    tags: Mapping[str, str]
    endpoint: str | None
    offsets: Mapping[TaskId, int]
    end_offsets: Mapping[TaskId, int]
    active: frozenset[TaskId]
    standby: frozenset[TaskId]
    warm_up: frozenset[TaskId]
    target: frozenset[TaskId]
    """The active tasks that the coordinator has assigned to it as its target."""


class DescribedStreamsGroup(NamedTuple):
    """A group of the streams protocol (KIP-1071).

    ``state`` is Empty, NotReady, Assigning, Reconciling, Stable or Dead. ``unknown`` has the ids of sub-topologies that
    are not numbers.
    """

    group: str
    state: str
    epoch: int
    subtopologies: tuple[DescribedSubtopology, ...]
    members: tuple[DescribedStreamsMember, ...]
    unknown: tuple[str, ...] = ()
