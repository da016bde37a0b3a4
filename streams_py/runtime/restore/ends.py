"""Which topics changelogs are, and where they end, asked so that a partition without a leader, or a broker that is
away, costs others nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError
from streams_py.ports import Admin, AdminError

__all__ = ["ChangelogEnd", "ask_ends"]

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
