"""Requests the topic ids and end offsets of changelogs.

A partition without a leader, or an unavailable broker, does not delay the other changelogs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports import Admin, AdminError

_NO_LEADER = "it has no leader"


class ChangelogEnd(NamedTuple):
    """A changelog: the id of its topic, if the cluster has ids, and its end and read limit, if they were requested."""

    partition: TopicPartition
    topic_id: str | None
    end: int | None = None
    limit: int = 0
    committed: int | None = None
    """The group's committed offset, if it is the limit."""
    begins: int = 0
    """First offset of the log, if it was requested."""


class ChangelogRequest(NamedTuple):
    """The changelogs to request facts about."""

    wanted: set[TopicPartition]
    """All changelogs to request."""
    with_end: set[TopicPartition]
    """Changelogs whose end is needed."""
    limited: set[TopicPartition]
    """Changelogs that are only read up to the group's committed offset."""
    lasting: set[TopicPartition]
    """Changelogs whose first offset is needed."""


def ask_ends(
    admin: Admin, group: str, request: ChangelogRequest
) -> tuple[list[ChangelogEnd], dict[TopicPartition, str]]:
    """Request facts about changelogs. Return the known changelogs, and the reason for each unknown one.

    A request for end offsets waits until all partitions have leaders, so partitions without a leader are left out.
    """
    unknown: dict[TopicPartition, str] = {}
    try:
        described = admin.describe_topics({partition.topic for partition in request.wanted})
    except BrokerUnavailableError as error:
        return [], dict.fromkeys(request.wanted, str(error))
    known: list[ChangelogEnd] = []
    requested: dict[TopicPartition, str | None] = {}
    for partition in request.wanted:
        infos = described.get(partition.topic, ())
        if isinstance(infos, AdminError):
            unknown[partition] = infos.message
            continue
        topic_id = infos[0].topic_id if infos else None
        if partition not in request.with_end:
            known.append(ChangelogEnd(partition, topic_id))
        elif any(info.partition == partition.partition and info.leader is None for info in infos):
            unknown[partition] = _NO_LEADER
        else:
            requested[partition] = topic_id
    try:
        ends = admin.list_offsets(requested.keys()) if requested else {}
        begins = admin.list_offsets(first, earliest=True) if (first := requested.keys() & request.lasting) else {}
    except BrokerUnavailableError as error:
        return known, unknown | dict.fromkeys(requested, str(error))
    committed = _committed(admin, group, request.limited)
    for partition, topic_id in requested.items():
        end = ends.get(partition)
        if not isinstance(end, int):
            unknown[partition] = end.message if isinstance(end, AdminError) else "no answer"
        elif partition not in request.limited:
            begin = begins.get(partition)
            known.append(ChangelogEnd(partition, topic_id, end, end, begins=begin if isinstance(begin, int) else 0))
        elif isinstance(committed, str):
            unknown[partition] = committed
        else:
            offset = committed.get(partition) or 0
            known.append(ChangelogEnd(partition, topic_id, end, min(end, offset), offset))
    return known, unknown


def _committed(
    admin: Admin, group: str, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, int | None] | str:
    """Return the group's committed offsets, or why they are unknown."""
    try:
        return admin.committed_offsets(group, partitions) if partitions else {}
    except BrokerUnavailableError as error:
        return str(error)


def lost_state(
    admin: Admin, group: str, task: TaskId, changelog: TopicPartition, inputs: Collection[TopicPartition]
) -> StreamsError | None:
    """Return why a task must not start over with the content of its recreated changelog.

    None if the group has no committed offsets of its inputs, as after a reset of the application, or if that is not
    known now.
    """
    try:
        committed = admin.committed_offsets(group, inputs)
    except StreamsError:
        return None
    read = sorted((at, offset) for at, offset in committed.items() if offset)
    if not read:
        return None
    at, offset = read[0]
    return StreamsError(
        f"task {task}: changelog {changelog} was deleted and created again, and the group has committed offset "
        f"{offset} of {at}: the state that the task had there is lost, unless it was written again. Local state still "
        "has it; a start with recreated.internal.topics=continue clears it, and restores what the topic has now. To "
        "process the input again, reset the application (streams-py reset)"
    )
