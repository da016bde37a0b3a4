"""Requests the data for a view of a group from the cluster.

Read-only; skips data that the user may not read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from streams_protocol import PROTOCOL_NAME, PROTOCOL_TYPE
from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.inspection.changelogs import changelogs_of
from streams_py.inspection.election import OFFSETS_TOPIC, Election, decode_election, offsets_partition
from streams_py.inspection.lags import with_copy_lags, with_input_lags
from streams_py.inspection.members import decode_member
from streams_py.inspection.streams_protocol_groups import reported_changelogs, view_streams_group
from streams_py.inspection.view import CLASSIC, STREAMS, GroupView, Subtopology, view_group
from streams_py.ports import Admin, AdminError, AdminErrorKind, GroupAdmin, PartitionInfo, RecordConsumer
from streams_py.ports.described_groups import DescribedGroup, DescribedStreamsGroup

_log = logging.getLogger(__name__)

_ELECTION_RECORDS_MAX: Final = 20_000
"""Number of newest records to search in the coordinator's log.

Commits of busy groups follow an election there.
"""
_ELECTION_SECONDS_MAX: Final = 3.0
_AT_REST: Final = frozenset({"Stable", "Empty"})


class Cluster(Protocol):
    """The clients that reading a group needs."""

    @property
    def admin(self) -> Admin: ...
    @property
    def groups(self) -> GroupAdmin: ...
    def consumer(self) -> RecordConsumer: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of a group's coordinator and of the cluster's metadata at one moment.

    Contains the members' bytes, their decoded form, and every visible topic.
    """

    described: DescribedGroup | DescribedStreamsGroup
    view: GroupView
    """Without lags; see :func:`with_lags`."""
    topics: Mapping[str, tuple[PartitionInfo, ...]]
    groups: frozenset[str]
    """Names of all visible groups."""

    @property
    def partition_counts(self) -> dict[str, int]:
        """Partition counts by topic."""
        return {topic: len(infos) for topic, infos in self.topics.items()}


def read_group(cluster: Cluster, group: str, *, election: bool = True) -> Reading:
    """Read the present state of a group.

    Raises:
        StreamsError: The group does not exist, or is not a Kafka Streams group.
    """
    described = describe(cluster, group)
    topics = _topics(cluster.admin)
    counts = {topic: len(infos) for topic, infos in topics.items()}
    if isinstance(described, DescribedStreamsGroup):
        reads = (topic for sub in described.subtopologies for topic in (*sub.source_topics, *sub.repartition_topics))
        _check_may_be_seen(cluster.admin, set(reads) - topics.keys())
        return Reading(described, view_streams_group(described, counts), topics, frozenset(_groups(cluster)))
    check_is_streams(described)
    is_rebalancing = described.state not in _AT_REST
    members = [decode_member(member, is_rebalancing=is_rebalancing) for member in described.members]
    _check_may_be_seen(cluster.admin, {topic for member in members for topic in member.topics} - topics.keys())
    elected = find_election(cluster, group, counts) if election else None
    view = view_group(group, described.state, members, counts, elected)
    return Reading(described, view, topics, frozenset(_groups(cluster)))


def describe(cluster: Cluster, group: str) -> DescribedGroup | DescribedStreamsGroup:
    """Return the coordinator's description of the group, for either protocol.

    Raises:
        StreamsError: The group does not exist, or is not a Kafka Streams group.
    """
    try:
        return cluster.groups.describe_group(group)
    except BrokerUnavailableError:
        raise
    except StreamsError:
        found = cluster.groups.describe_streams_group(group)
        if found is not None:
            return found
        kind = _groups(cluster).get(group)
        if kind is not None and kind.lower() not in (CLASSIC, STREAMS):
            raise StreamsError(f"{group} is not a Kafka Streams group, but a group of type {kind.lower()}") from None
        raise


def inspect_group(cluster: Cluster, group: str, *, election: bool = True) -> GroupView:
    """Return a view of the group's present state, with lags.

    Raises:
        StreamsError: The group does not exist, or is not a Kafka Streams group.
    """
    return with_lags(cluster.admin, read_group(cluster, group, election=election))


def check_is_streams(described: DescribedGroup) -> None:
    """Raise StreamsError if the group's members are not Kafka Streams applications."""
    if described.members and (described.protocol_type, described.protocol) not in (
        (PROTOCOL_TYPE, PROTOCOL_NAME),
        (PROTOCOL_TYPE, ""),  # while the group is rebalancing
    ):
        raise StreamsError(
            f"{described.group} is not a Kafka Streams group: its members use the protocol "
            f"{described.protocol or '(none)'} of type {described.protocol_type or '(none)'}, not {PROTOCOL_NAME} of "
            f"type {PROTOCOL_TYPE}"
        )


def _topics(admin: Admin) -> dict[str, tuple[PartitionInfo, ...]]:
    found = admin.describe_topics(None)
    return {topic: infos for topic, infos in found.items() if not isinstance(infos, AdminError)}


def _check_may_be_seen(admin: Admin, missing: Collection[str]) -> None:
    """Raise StreamsError if a missing topic is hidden from this user.

    The list of all topics omits hidden topics. Only a request by name returns the authorization error.
    """
    for answer in admin.describe_topics(sorted(missing)).values() if missing else ():
        if isinstance(answer, AdminError) and answer.kind is AdminErrorKind.NOT_ALLOWED:
            raise StreamsError(answer.message)


def _groups(cluster: Cluster) -> Mapping[str, str]:
    """Return every visible group with its type."""
    try:
        return cluster.groups.list_groups()
    except StreamsError as error:
        _log.debug("cannot list groups: %s", error)
        return {}


def with_lags(admin: Admin, reading: Reading) -> GroupView:
    """Return the view with all lags that can be computed."""
    view, counts = reading.view, reading.partition_counts
    inputs = sorted({partition for task in view.tasks for partition in task.partitions})
    changelogs: Mapping[Subtopology, Sequence[str]]
    if isinstance(reading.described, DescribedStreamsGroup):
        changelogs = reported_changelogs(reading.described, counts)
    else:
        changelogs = changelogs_of(view, counts, groups=reading.groups).certain
    states = sorted(
        {
            TopicPartition(topic, partition)
            for topics in changelogs.values()
            for topic in topics
            for partition in range(counts[topic])
        }
    )
    try:
        committed = admin.committed_offsets(view.group, inputs)
        nowhere = [partition for partition in inputs if committed[partition] is None]
        beginnings = _known(admin.list_offsets(nowhere, earliest=True)) if nowhere else {}
        ends = _known(admin.list_offsets([*inputs, *states])) if inputs or states else {}
    except StreamsError as error:
        _log.warning("lags are unknown: %s", error)
        return view
    view = with_input_lags(view, committed, beginnings, ends)
    if view.protocol == STREAMS:  # in this protocol, a copy without a reported offset may have any lag
        return view
    return with_copy_lags(view, changelogs, ends)


def _known(offsets: Mapping[TopicPartition, int | AdminError]) -> dict[TopicPartition, int]:
    return {partition: offset for partition, offset in offsets.items() if not isinstance(offset, AdminError)}


def find_election(
    cluster: Cluster, group: str, counts: Mapping[str, int], *, seconds_max: float = _ELECTION_SECONDS_MAX
) -> Election | None:
    """Return the newest election in the coordinator's log, or None if unreadable or too old."""
    if OFFSETS_TOPIC not in counts:
        return None
    log = TopicPartition(OFFSETS_TOPIC, offsets_partition(group, counts[OFFSETS_TOPIC]))
    try:
        end = _one(cluster.admin, log, earliest=False)
        first = _one(cluster.admin, log, earliest=True)
        if end is None or first is None or first >= end:
            return None
        return _read_election(cluster, group, log, max(first, end - _ELECTION_RECORDS_MAX), end, seconds_max)
    except StreamsError as error:
        _log.debug("cannot read %s: %s", log, error)
        return None


def _one(admin: Admin, partition: TopicPartition, *, earliest: bool) -> int | None:
    offset = admin.list_offsets([partition], earliest=earliest)[partition]
    return None if isinstance(offset, AdminError) else offset


def _read_election(
    cluster: Cluster, group: str, log: TopicPartition, start: int, end: int, seconds: float
) -> Election | None:
    newest = None
    until = time.monotonic() + seconds
    consumer = cluster.consumer()
    try:
        consumer.assign({log: start})
        while (consumer.position(log) or start) < end and time.monotonic() < until:
            for record in consumer.poll(1_000, 200):
                newest = decode_election(record.key(), record.value(), group) or newest
    finally:
        consumer.close()
    return newest
