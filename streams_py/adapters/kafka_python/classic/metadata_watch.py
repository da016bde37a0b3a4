"""Snapshots of the partitions of all topics to which a group subscribes, for the group's leader.

The leader requests a rebalance when the latest snapshot differs from the one used for the assignment. With
``client.rack``, a snapshot also includes the racks of the replicas (KIP-881).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MetadataSnapshot = dict[str, frozenset[object]]
"""Topic -> partitions; an empty set for a topic that does not exist."""


def metadata_snapshot(topics: Iterable[str], cluster: Any, *, with_racks: bool) -> MetadataSnapshot:
    """Return the partitions of ``topics`` in kafka-python's current cluster metadata."""
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
    """Known topics or partitions that are missing in a metadata response. The next response must confirm it."""

    def __init__(self) -> None:
        self._missing: frozenset[str] = frozenset()

    def doubted(self, known: Mapping[str, int], seen: Mapping[str, int]) -> frozenset[str]:
        """Return topics that have fewer partitions in ``seen`` than in ``known``, for the first time.

        Topics that were also missing partitions in the previous call are not returned. Both arguments map a topic to
        its partition count.
        """
        missing = frozenset(topic for topic, partitions in known.items() if seen.get(topic, 0) < partitions)
        doubted, self._missing = missing - self._missing, missing
        return doubted
