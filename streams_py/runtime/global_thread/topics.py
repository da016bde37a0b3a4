"""The topics of the global stores, as the brokers describe them: partitions, end offsets and ids."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError, MissingSourceTopicError, StreamsError
from streams_py.ports import Admin, AdminError, AdminErrorKind, Clock, PartitionInfo
from streams_py.ports.rights import TOPIC, missing_right
from streams_py.runtime.thread.topic_ids import TopicIds

_log = logging.getLogger("streams_py")

Described = Sequence[tuple[str, tuple[PartitionInfo, ...]]]
"""Each topic with its partitions."""


class GlobalTopics:
    """The topics of the global stores of one client.

    Args:
        names: The names of the topics.
        ids: Requests the ids of the topics from time to time.
        retry_backoff_ms: Pause before the topics are described again, if one of them is missing.
    """

    def __init__(
        self, names: Collection[str], admin: Admin, ids: TopicIds, clock: Clock, *, retry_backoff_ms: int
    ) -> None:
        self._names = frozenset(names)
        self._admin = admin
        self._ids = ids
        self._clock = clock
        self._retry_backoff_ms = retry_backoff_ms
        self._seen_ids: Mapping[str, str] = {}

    def describe(self) -> Described:
        """Return the topics and their partitions.

        A topic counts as missing after two answers: a broker that has just started may not know it yet.

        Raises:
            BrokerUnavailableError: A topic cannot be described now.
            StreamsError: The user may not describe a topic, or a topic does not exist.
        """
        described = self._existing(self._names)
        if described.keys() < self._names:
            self._clock.sleep_ms(self._retry_backoff_ms)
            described |= self._existing(self._names - described.keys())
        if missing := sorted(self._names - described.keys()):
            raise MissingSourceTopicError(
                f"topic {', '.join(missing)} of a global store does not exist; create it before starting"
            )
        return sorted(described.items())

    def _existing(self, topics: Collection[str]) -> dict[str, tuple[PartitionInfo, ...]]:
        """Return the topics that exist according to one answer."""
        described: dict[str, tuple[PartitionInfo, ...]] = {}
        for topic, found in self._admin.describe_topics(topics).items():
            if not isinstance(found, AdminError):
                described[topic] = found
            elif found.kind is AdminErrorKind.NOT_ALLOWED:
                raise StreamsError(f"a global store cannot be restored: {missing_right('READ', TOPIC, [topic])}")
            elif found.kind is not AdminErrorKind.UNKNOWN_TOPIC:
                raise BrokerUnavailableError(f"topic {topic} cannot be described now: {found.message}")
        return described

    def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offset of each partition. BrokerUnavailableError if one of them is not available."""
        ends = self._admin.list_offsets(partitions)
        known = {partition: end for partition, end in ends.items() if not isinstance(end, AdminError)}
        unknown = sorted(set(partitions) - known.keys())
        if unknown:
            raise BrokerUnavailableError(f"end offset of {unknown[0]} is not available")
        return known

    def added(self, thread: str, known: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return partitions that were added to the topics. ``thread``: name of the calling thread, for messages."""
        try:
            described = self.describe()
        except StreamsError as error:
            _log.debug("%s: cannot check its topics for new partitions: %s", thread, error)
            return []
        added = sorted({*partitions_of(described)} - {*known})
        if added:
            _log.info("%s: reading new partitions: %s", thread, ", ".join(map(str, added)))
        return added

    def watch_ids(self) -> None:
        """Request the ids of the topics from now on, until this object is no longer used."""
        self._ids.watch(self, self._names)

    def new_ids(self) -> Mapping[str, str] | None:
        """Return the latest ids; None if they were not requested since the last call."""
        if self._ids.now is self._seen_ids:
            return None
        self._seen_ids = self._ids.now
        return self._seen_ids


def partitions_of(described: Described) -> list[TopicPartition]:
    """Return all partitions of the topics."""
    return [TopicPartition(topic, info.partition) for topic, infos in described for info in infos]


def ids_of(described: Described) -> dict[str, str | None]:
    """Return the id of each topic; None if the broker has no ids."""
    return {topic: infos[0].topic_id for topic, infos in described}
