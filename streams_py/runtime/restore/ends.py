"""Where changelogs end, asked so that a partition without a leader, or a broker that is away, costs others nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError
from streams_py.ports import Admin, AdminError

__all__ = ["ask_ends"]

_NO_LEADER = "it has no leader"


def ask_ends(
    admin: Admin, group: str, wanted: Collection[TopicPartition], limited: Collection[TopicPartition]
) -> tuple[list[tuple[TopicPartition, int, int]], dict[TopicPartition, str]]:
    """End offset of each wanted changelog, and how far it may be read: no further than the group has committed where
    it is one of the ``limited``. Second: those of which that is not known, and why.

    A request for end offsets waits until all partitions have leaders; so those without one are left out.
    """
    silent = _without_leader(admin, wanted)
    asked = [partition for partition in wanted if partition not in silent]
    ends: Mapping[TopicPartition, int | AdminError] = {}
    committed: Mapping[TopicPartition, int | None] = {}
    if asked:
        try:
            ends = admin.list_offsets(asked)
        except BrokerUnavailableError as error:
            return [], silent | dict.fromkeys(asked, str(error))
    held_up = ""
    if limited:
        try:
            committed = admin.committed_offsets(group, limited)
        except BrokerUnavailableError as error:
            held_up = str(error)
    known: list[tuple[TopicPartition, int, int]] = []
    for partition in asked:
        end = ends.get(partition)
        if not isinstance(end, int):
            silent[partition] = end.message if isinstance(end, AdminError) else "no answer"
        elif partition not in limited:
            known.append((partition, end, end))
        elif held_up:
            silent[partition] = held_up
        else:
            known.append((partition, end, min(end, committed.get(partition) or 0)))
    return known, silent


def _without_leader(admin: Admin, wanted: Collection[TopicPartition]) -> dict[TopicPartition, str]:
    try:
        described = admin.describe_topics({partition.topic for partition in wanted})
    except BrokerUnavailableError as error:
        return dict.fromkeys(wanted, str(error))
    leaderless = {
        TopicPartition(topic, info.partition)
        for topic, infos in described.items()
        if not isinstance(infos, AdminError)
        for info in infos
        if info.leader is None
    }
    return {partition: _NO_LEADER for partition in wanted if partition in leaderless}
