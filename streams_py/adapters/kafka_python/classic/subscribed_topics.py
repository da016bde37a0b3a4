"""A member's topic subscription, and the leader's check for changes of the partitions of its group's topics.

A topic that is missing in one metadata response may still exist: a broker that has just started or is stopping may know
only a part of the topics. A member with a pattern would then give up the missing topics and their tasks, and a leader
would assign without them. So a topic is removed only when a second response lacks it too
(:class:`.metadata_watch.Disappearances`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from typing import Any

from kafka import errors as kafka_errors

from streams_py.adapters.kafka_python.classic.metadata_watch import Disappearances, MetadataSnapshot, metadata_snapshot

_log = logging.getLogger(__name__)


class SubscribedTopics:
    """The topics of a member, and the leader's view of their partitions. Runs on the network thread.

    Args:
        cluster: kafka-python's metadata of the cluster.
        subscription: kafka-python's subscription of the member.
        with_racks: Whether changes of the replicas' racks also cause a rebalance.
    """

    def __init__(self, cluster: Any, subscription: Any, *, with_racks: bool) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._with_racks = with_racks
        self._disappearances = Disappearances()

    def subscribe(self, topics: Collection[str], pattern: str | None) -> bool:
        """Replace the subscription. ``pattern`` must match the whole name of a topic. Return whether it has changed."""
        whole = rf"(?:{pattern})\Z" if pattern is not None else None
        current = self._subscription.subscribed_pattern
        if self._subscription.subscription is not None:
            if whole == (current.pattern if current else None) and (
                whole is not None or self._subscription.subscription == set(topics)
            ):
                return False
            self._subscription.unsubscribe()
        self._subscription.subscribe(topics=() if whole else sorted(topics), pattern=whole)
        self._subscription.reset_group_subscription()  # from now on, only these topics are requested
        self._cluster.need_all_topic_metadata = whole is not None
        self._cluster.set_topics([] if whole else sorted(topics))
        self._cluster.request_update()
        return True

    def update(self, cluster: Any, latest: MetadataSnapshot, *, exclude_internal: bool) -> MetadataSnapshot:
        """Apply new metadata to the subscription. Return the snapshot that follows ``latest``."""
        pattern, subscribed = self._subscription.subscribed_pattern, self._subscription.subscription
        group = self._subscription.group_subscription()
        watched = {topic: at for topic, at in latest.items() if at and topic in group}
        doubted = self._doubted(watched, subscribed if pattern else (), cluster)
        if pattern is not None:
            there = cluster.topics(exclude_internal)
            matching = {topic for topic in there if pattern.match(topic)} | (doubted & subscribed)
            if matching != subscribed:
                self._subscription.change_subscription(sorted(matching))
        newest = self.snapshot(cluster)
        return newest | {topic: watched[topic] for topic in doubted & newest.keys() & watched.keys()}

    def _doubted(self, watched: MetadataSnapshot, matched: Collection[str], cluster: Any) -> frozenset[str]:
        known = dict.fromkeys(matched, 1) | {topic: len(partitions) for topic, partitions in watched.items()}
        seen = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in known}
        doubted = self._disappearances.doubted(known, seen)
        if doubted:
            _log.warning(
                "topics %s are missing in the latest metadata of a broker; requesting it again", sorted(doubted)
            )
            cluster.request_update()
        return doubted

    def snapshot(self, cluster: Any) -> MetadataSnapshot:
        """Return the partitions of all topics to which the group subscribes."""
        return metadata_snapshot(self._subscription.group_subscription(), cluster, with_racks=self._with_racks)

    async def refresh(self, manager: Any, timeout_ms: int) -> None:
        """Request metadata, and wait for it. Does not raise Kafka's errors."""
        try:
            await manager.wait_for(self._cluster.request_update(), timeout_ms)
        except kafka_errors.KafkaError as error:
            _log.debug("metadata not refreshed: %s", error)

    def includes(self, topics: Collection[str]) -> bool:
        """Whether all of ``topics`` are in the subscription. Topics that match its pattern are added to it."""
        pattern: re.Pattern[str] | None = self._subscription.subscribed_pattern
        subscribed: set[str] = self._subscription.subscription
        if pattern is None:
            return subscribed.issuperset(topics)
        if not all(topic in subscribed or pattern.match(topic) for topic in topics):
            return False
        if not subscribed.issuperset(topics):  # the leader learned of a matching topic earlier than this member
            self._subscription.change_subscription(sorted(subscribed.union(topics)))
        return True
