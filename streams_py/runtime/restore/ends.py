"""Which topics changelogs are, and where they end, asked so that a partition without a leader, or a broker that is
away, costs others nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports import Admin, AdminError

__all__ = ["ChangelogEnd", "ask_ends", "lost_state"]

_NO_LEADER = "it has no leader"


class ChangelogEnd(NamedTuple):
    """A changelog: its topic's id, where the cluster gives one; where it ends, and how far it may be read, if that was
    asked for."""

    partition: TopicPartition
    topic_id: str | None
    end: int | None = None
    limit: int = 0
    committed: int | None = None
    """What the group has committed, where that limits it."""
    begins: int = 0
    """First offset of the log, where that was requested."""


def ask_ends(
    admin: Admin,
    group: str,
    wanted: Collection[TopicPartition],
    with_end: Collection[TopicPartition],
    limited: Collection[TopicPartition],
    lasting: Collection[TopicPartition] = (),
) -> tuple[list[ChangelogEnd], dict[TopicPartition, str]]:
    """Each wanted changelog, ``with_end`` where it is one of these, and to be read no further than the group has
    committed where it is one of the ``limited``; with the beginning of the log where it is one of the ``lasting``.
    Second: those of which that is not known, and why.

    A request for end offsets waits until all partitions have leaders; so those without one are left out.
    """
    silent: dict[TopicPartition, str] = {}
    try:
        described = admin.describe_topics({partition.topic for partition in wanted})
    except BrokerUnavailableError as error:
        return [], dict.fromkeys(wanted, str(error))
    known: list[ChangelogEnd] = []
    asked: dict[TopicPartition, str | None] = {}
    for partition in wanted:
        infos = described.get(partition.topic, ())
        if isinstance(infos, AdminError):
            silent[partition] = infos.message
            continue
        topic_id = infos[0].topic_id if infos else None
        if partition not in with_end:
            known.append(ChangelogEnd(partition, topic_id))
        elif any(info.partition == partition.partition and info.leader is None for info in infos):
            silent[partition] = _NO_LEADER
        else:
            asked[partition] = topic_id
    try:
        ends = admin.list_offsets(asked.keys()) if asked else {}
        begins = admin.list_offsets(first, earliest=True) if (first := asked.keys() & set(lasting)) else {}
    except BrokerUnavailableError as error:
        return known, silent | dict.fromkeys(asked, str(error))
    committed: Mapping[TopicPartition, int | None] = {}
    held_up = ""
    if limited:
        try:
            committed = admin.committed_offsets(group, limited)
        except BrokerUnavailableError as error:
            held_up = str(error)
    for partition, topic_id in asked.items():
        end = ends.get(partition)
        if not isinstance(end, int):
            silent[partition] = end.message if isinstance(end, AdminError) else "no answer"
        elif partition not in limited:
            begin = begins.get(partition)
            known.append(ChangelogEnd(partition, topic_id, end, end, begins=begin if isinstance(begin, int) else 0))
        elif held_up:
            silent[partition] = held_up
        else:
            offset = committed.get(partition) or 0
            known.append(ChangelogEnd(partition, topic_id, end, min(end, offset), offset))
    return known, silent


def lost_state(
    admin: Admin, group: str, task: TaskId, changelog: TopicPartition, inputs: Collection[TopicPartition]
) -> StreamsError | None:
    """Why a task must not start over with what its recreated changelog has; None when nothing was committed for its
    inputs, as after a reset of the application, or when that is not known now."""
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
        "has it; a start with recreated.internal.topics=continue empties it, and restores what the topic has now. To "
        "process the input again, reset the application (streams-py reset)"
    )
