"""The plan of ``streams-py reset``: what a reset would change, and why it would be refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final

from streams_protocol.types import TopicPartition
from streams_py.cli.connecting import Connection
from streams_py.cli.usage import RefusedError
from streams_py.errors import BrokerUnavailableError
from streams_py.inspection.gather import check_is_streams, describe
from streams_py.ports import AdminError
from streams_py.ports.described_groups import DescribedMember, DescribedStreamsGroup, DescribedStreamsMember
from streams_py.topology.topic_owners import Owner, OwnerOfTopic, owners_of
from streams_py.topology.topology import Topology

_INPUT: Final = OwnerOfTopic(Owner.OTHER, "the application reads it as input")


@dataclass(frozen=True, slots=True)
class Target:
    """The new position for input topics. At most one field is set; without any, ``earliest``."""

    latest: bool = False
    offset: int | None = None
    datetime_ms: int | None = None
    shift: int | None = None

    @classmethod
    def of(cls, text: str) -> Target:
        """Parse a target.

        Raises:
            ValueError: Not ``earliest``, ``latest``, an offset, ``+N``, ``-N`` or an ISO date and time.
        """
        if text in ("earliest", "latest"):
            return cls(latest=text == "latest")
        if text[:1] in ("+", "-") and text[1:].isdecimal():
            return cls(shift=int(text))
        if text.isdecimal():
            return cls(offset=int(text))
        when = datetime.fromisoformat(text)
        at_ms = int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
        return cls(datetime_ms=max(0, at_ms))  # negative times have a special meaning for brokers


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned changes: new positions of inputs, topics to delete, members to remove."""

    positions: Mapping[TopicPartition, tuple[int | None, int]]
    """Old and new position of each partition. The old one is None without a committed offset."""
    owners: Mapping[str, OwnerOfTopic]
    """Owner of each topic that is named like an internal topic of the application."""
    removed: Sequence[DescribedMember]
    refused: str
    """Why the application cannot be reset now; empty if it can."""

    def topics(self, owner: Owner) -> list[str]:
        """Return the topics of one kind of owner, in ascending order."""
        return sorted(topic for topic, found in self.owners.items() if found.owner is owner)


@dataclass(frozen=True, slots=True)
class Request:
    """What the user wants to reset."""

    application_id: str
    target: Target
    inputs: Collection[str]
    """Topics to read again. Empty: all topics with committed offsets."""
    internal: Collection[str] = ()
    """Internal topics to delete even if their names fit other applications."""
    program: Topology | None = None
    """The application's topology, which gives the names of its internal topics."""
    force: bool = False
    """Whether to remove members that are still in the group."""


def make_plan(cluster: Connection, request: Request) -> Plan:
    """Find out what a reset changes.

    Raises:
        RefusedError: The request names topics that it cannot name, or there is nothing to reset.
    """
    application_id = request.application_id
    groups = cluster.groups.list_groups()
    members, own = _described(cluster, application_id) if application_id in groups else ((), set())
    removed = [member for member in members if isinstance(member, DescribedMember)]
    refused = _refusal(application_id, members, removed, force=request.force)
    partitions = {
        topic: [TopicPartition(topic, info.partition) for info in found]
        for topic, found in cluster.admin.describe_topics(None).items()
        if not isinstance(found, AdminError)
    }
    everything = [at for topic in partitions for at in partitions[topic] if not topic.startswith("__")]
    committed = cluster.admin.committed_offsets(application_id, everything) if everything else {}
    read = {at.topic for at, offset in committed.items() if offset is not None}
    owners = _owners(request, partitions, groups, own, read)
    mine = {topic for topic, found in owners.items() if found.owner is not Owner.OTHER}
    for topic in request.inputs:
        _check_exists(topic, partitions)
        if topic in mine:
            raise RefusedError(
                f"{topic} is an internal topic of {application_id}: the reset deletes it and cannot read it again"
            )
    chosen = [at for topic in request.inputs or sorted(read - mine) for at in partitions[topic]]
    if not chosen and not mine:
        raise RefusedError(
            f"{application_id} has neither committed offsets nor internal topics at {cluster.bootstrap}; check the "
            "name" + _near_group(application_id, groups)
        )
    positions = _positions(cluster, chosen, committed, request.target)
    return Plan(
        {at: (committed.get(at), positions[at]) for at in sorted(chosen)}, owners, [] if refused else removed, refused
    )


def _described(
    cluster: Connection, application_id: str
) -> tuple[Sequence[DescribedMember | DescribedStreamsMember], set[str]]:
    """Return the members of the group, and the internal topics that its coordinator knows."""
    described = describe(cluster, application_id)
    own: set[str] = set()
    if isinstance(described, DescribedStreamsGroup):
        for sub in described.subtopologies:
            own |= {*sub.changelog_topics, *sub.repartition_topics} - {*sub.source_topics}
    else:
        check_is_streams(described)  # also with --force: members of another kind of group must not be removed
    return described.members, own


def _refusal(
    application_id: str,
    members: Sequence[DescribedMember | DescribedStreamsMember],
    removed: Sequence[DescribedMember],
    *,
    force: bool,
) -> str:
    """Return why the group's members prevent a reset, or an empty text."""
    if len(removed) == len(members) and (force or not members):
        return ""
    clients = ", ".join(sorted({f"{member.client_id} at {member.client_host}" for member in members})[:5])
    count = f"{len(members)} member{'' if len(members) == 1 else 's'}"
    remedy = (
        ", or remove dead members with --force"
        if removed
        else ": --force cannot remove members of the streams protocol"
    )
    return f"{application_id} has {count} ({clients}); stop the application first{remedy}"


def _owners(
    request: Request,
    partitions: Mapping[str, list[TopicPartition]],
    groups: Collection[str],
    own: set[str],
    read: Collection[str],
) -> dict[str, OwnerOfTopic]:
    """Return the owner of each topic that is named like an internal topic of the application.

    Args:
        request: Its topics and its program.
        partitions: All topics.
        groups: All groups of the cluster, which may own topics whose names start alike.
        own: Internal topics that the coordinator knows.
        read: Topics with committed offsets.
    """
    sources: frozenset[str] = frozenset()
    own = own | {*request.internal}
    if request.program is not None:
        metadata = request.program.metadata(request.application_id, available_topics=partitions)
        own |= metadata.internal_topics
        sources = metadata.source_topics - metadata.internal_topics
    owners = owners_of(request.application_id, partitions, groups=groups, own=own)
    _check_internal(request, owners, partitions)
    for topic, found in owners.items():
        if found.owner is Owner.UNCERTAIN and (
            topic in request.inputs or (topic in read and topic.endswith("-changelog"))
        ):
            owners[topic] = _INPUT
    return owners | dict.fromkeys(sources & owners.keys(), _INPUT)


def _check_exists(topic: str, partitions: Collection[str], similar: Collection[str] | None = None) -> None:
    if topic not in partitions:
        near = get_close_matches(topic, partitions if similar is None else similar, n=1)
        raise RefusedError(f"topic {topic} does not exist" + (f"; did you mean {near[0]}?" if near else ""))


def _check_internal(request: Request, owners: Mapping[str, OwnerOfTopic], partitions: Collection[str]) -> None:
    looks_internal = owners_of(request.application_id, request.internal)
    for topic in request.internal:
        _check_exists(topic, partitions, owners)
        if topic not in looks_internal:
            raise RefusedError(
                f"{topic} is not named like an internal topic of {request.application_id}, so the reset does not "
                "delete it"
            )


def _near_group(name: str, groups: Collection[str]) -> str:
    near = get_close_matches(name, groups, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _positions(
    cluster: Connection,
    chosen: Collection[TopicPartition],
    committed: Mapping[TopicPartition, int | None],
    target: Target,
) -> dict[TopicPartition, int]:
    """Return the new positions, limited to each partition's first and end offset."""
    if not chosen:
        return {}
    first = _known(cluster.admin.list_offsets(chosen, earliest=True))
    ends = _known(cluster.admin.list_offsets(chosen))
    if target.latest:
        return ends
    if target.datetime_ms is not None:
        at_time = cluster.groups.offsets_at(chosen, target.datetime_ms)
        return {at: ends[at] if (offset := at_time[at]) is None else offset for at in chosen}

    def wanted(at: TopicPartition) -> int:
        if target.offset is not None:
            return target.offset
        before = committed.get(at)
        return first[at] if target.shift is None or before is None else before + target.shift

    return {at: min(max(wanted(at), first[at]), ends[at]) for at in chosen}


def _known(offsets: Mapping[TopicPartition, int | AdminError]) -> dict[TopicPartition, int]:
    known: dict[TopicPartition, int] = {}
    for at, offset in offsets.items():
        if isinstance(offset, AdminError):
            raise BrokerUnavailableError(f"cannot fetch the offsets of {at}: {offset.message}")
        known[at] = offset
    return known
