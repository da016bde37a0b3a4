"""Groups as their coordinators describe them: what the port ``GroupAdmin`` answers with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from streams_protocol.types import TaskId

__all__ = [
    "DescribedGroup",
    "DescribedMember",
    "DescribedStreamsGroup",
    "DescribedStreamsMember",
    "DescribedSubtopology",
]


class DescribedMember(NamedTuple):
    """One member as its group's coordinator keeps it. The bytes are what the member and its leader sent."""

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
    """A sub-topology of a group that speaks the streams protocol. Topic names are full."""

    id: int
    source_topics: tuple[str, ...]
    repartition_topics: tuple[str, ...]
    """Those that it reads."""
    changelog_topics: tuple[str, ...]


class DescribedStreamsMember(NamedTuple):
    """A member of such a group. Offsets are sums over a task's changelogs, as far as the member tells them."""

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
    """Active tasks that the coordinator wants it to have."""


class DescribedStreamsGroup(NamedTuple):
    """A group of the streams protocol (KIP-1071). ``state``: Empty, NotReady, Assigning, Reconciling, Stable or Dead.
    ``unknown``: ids of sub-topologies that are no numbers."""

    group: str
    state: str
    epoch: int
    subtopologies: tuple[DescribedSubtopology, ...]
    members: tuple[DescribedStreamsMember, ...]
    unknown: tuple[str, ...] = ()
