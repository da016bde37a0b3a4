"""What the leader of a group watches: the partitions of all topics that some member subscribes to.

A difference between the snapshot that an assignment was made with and the newest one is a reason for a rebalance. With
``client.rack`` the racks of the replicas belong to the snapshot too (KIP-881).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Disappearances", "MetadataSnapshot", "metadata_snapshot"]

MetadataSnapshot = dict[str, frozenset[object]]
"""Topic -> its partitions; empty for a topic that does not exist."""


def metadata_snapshot(topics: Iterable[str], cluster: Any, *, with_racks: bool) -> MetadataSnapshot:
    """The topics as kafka-python's cluster metadata knows them now."""
    racks = {broker.node_id: broker.rack for broker in cluster.brokers()} if with_racks else {}

    def racks_of(topic: str, partition: int) -> frozenset[object]:
        nodes = cluster._partitions[topic][partition].replica_nodes if with_racks else ()
        return frozenset(racks.get(node) for node in nodes)

    return {
        topic: frozenset(
            (partition, racks_of(topic, partition)) for partition in cluster.partitions_for_topic(topic) or ()
        )
        for topic in topics
    }


class Disappearances:
    """Topics that an answer about the cluster leaves out, whole or in part, though they were there before: believed
    when the next one leaves them out as well."""

    def __init__(self) -> None:
        self._missing: frozenset[str] = frozenset()

    def doubted(self, known: Mapping[str, int], seen: Mapping[str, int]) -> frozenset[str]:
        """Topics with fewer partitions ``seen`` than ``known``, and not so the last time. Both: topic -> partitions."""
        missing = frozenset(topic for topic, partitions in known.items() if seen.get(topic, 0) < partitions)
        doubted, self._missing = missing - self._missing, missing
        return doubted
