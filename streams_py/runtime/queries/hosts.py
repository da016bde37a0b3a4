"""Locations of the stores: the leader's information about all instances (Kafka's ``StreamsMetadataState``).

The leader sends each member the partitions of every instance that has an ``application.server``, as active and as
standby. The information shows where tasks are *going*: during a rebalance, an instance may be named shortly before it
has the task. It then answers a query with an error, and the caller queries again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from streams_protocol.types import HostInfo, TopicPartition
from streams_py.errors import ConfigError, UnknownStateStoreError
from streams_py.member.tasks import HostView
from streams_py.serdes import Serde, SerdeDefaults, serde_or_default
from streams_py.topology.declare.nodes import Partitioner
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.partitioning import partition_for
from streams_py.topology.topology import Topology

__all__ = ["NOT_AVAILABLE", "KeyQueryMetadata", "StoreHosts", "StreamsMetadata"]

NO_HOST: Final = HostInfo("unavailable", -1)


@dataclass(frozen=True, slots=True)
class StreamsMetadata:
    """One instance: its ``application.server``, its stores, and the input partitions of its tasks."""

    host: HostInfo
    """Its ``application.server``."""
    stores: frozenset[str]
    """Names of the stores of its active tasks."""
    partitions: frozenset[TopicPartition]
    """Input partitions of its active tasks."""
    standby_stores: frozenset[str]
    """Names of the stores of its standby tasks."""
    standby_partitions: frozenset[TopicPartition]
    """Input partitions of its standby tasks."""


@dataclass(frozen=True, slots=True)
class KeyQueryMetadata:
    """Location of a key.

    Attributes:
        active_host: The instance with the active task.
        standby_hosts: The instances with a standby task.
        partition: -1 for global stores, which every instance has, and while the location is not known.
    """

    active_host: HostInfo
    standby_hosts: frozenset[HostInfo]
    partition: int

    @property
    def is_available(self) -> bool:
        """Whether an instance with the active task is known."""
        return self.active_host != NO_HOST


NOT_AVAILABLE: Final = KeyQueryMetadata(NO_HOST, frozenset(), -1)
"""Result before the first assignment."""


@dataclass(frozen=True, slots=True)
class _Locations:
    """Location of one store: partition counts of the topics that its tasks read, and the hosts of each partition."""

    counts: Mapping[str, int]
    active: Mapping[int, HostInfo]
    standby: Mapping[int, frozenset[HostInfo]]


class StoreHosts:
    """The instances of one application as of the last assignment. Thread-safe: its content is replaced as a whole.

    The location of a store is computed once per assignment, because services request it for every query.

    Args:
        own: This client's ``application.server``.
    """

    def __init__(
        self, topology: Topology, application_id: str, own: HostInfo | None, serde_defaults: SerdeDefaults
    ) -> None:
        self._topology = topology
        self._application_id = application_id
        self._own = own
        self._serde_defaults = serde_defaults
        self._shown: tuple[HostView, dict[str, _Locations]] = (HostView(), {})

    @property
    def application_id(self) -> str:
        """``application.id``."""
        return self._application_id

    @property
    def own(self) -> HostInfo | None:
        """This client's ``application.server``."""
        return self._own

    @property
    def stores(self) -> Mapping[str, StoreBuilder]:
        """All stores of the topology, including global stores."""
        return self._topology.stores

    def declared(self, store: str) -> StoreBuilder:
        """Return a store's declaration. UnknownStateStoreError for an unknown store."""
        self._check_known(store)
        return self._topology.stores[store]

    def is_global(self, store: str) -> bool:
        """Whether every instance has all of the store."""
        return store in self._topology.global_stores

    def key_serde(self, store: str) -> Serde[Any]:
        """Return the serde of the store's keys. ConfigError if it has none."""
        serde = serde_or_default(self._topology.stores[store].key_serde, self._serde_defaults, is_key=True)
        if serde is None:
            raise ConfigError(f"store {store!r} has no key serde: pass key_serde=", key="default.key.serde")
        return serde

    def changelog(self, store: str) -> str:
        """Return the topic name that is passed to the store's serdes."""
        return self._topology.changelog_topic(store, self._application_id)

    def show(self, view: HostView) -> None:
        """Replace all locations after a new assignment."""
        self._shown = (view, {})

    def instances(self) -> list[StreamsMetadata]:
        """Return all instances with an ``application.server``, sorted by it."""
        view, _ = self._shown
        stores = self._stores_by_topic(view)
        everywhere = frozenset(self._topology.global_stores)
        return [
            StreamsMetadata(
                host,
                _stores_of(active, stores) | everywhere,
                frozenset(active),
                _stores_of(standby, stores),
                frozenset(standby),
            )
            for host in sorted(view.active.keys() | view.standby.keys())
            for active, standby in [(view.active.get(host, frozenset()), view.standby.get(host, frozenset()))]
        ]

    def with_store(self, store: str) -> list[StreamsMetadata]:
        """Return the instances that have the store, as active or standby; all of them for a global store."""
        self._check_known(store)
        return [found for found in self.instances() if store in found.stores or store in found.standby_stores]

    def of_key(
        self, store: str, key: Any, *, key_serde: Serde[Any] | None, partitioner: Partitioner | None
    ) -> KeyQueryMetadata:
        """Return the location of a key. Raises the same errors as ``KafkaStreams.query_metadata_for_key``."""
        self._check_known(store)
        if store in self._topology.global_stores:
            return KeyQueryMetadata(self._own or NO_HOST, frozenset(), -1)
        counts = self.partition_counts(store)
        if not counts:
            return NOT_AVAILABLE
        topic = max(counts, key=lambda name: (counts[name], name))
        chosen = None if partitioner is None else partitioner(topic, key, None, counts[topic])
        if chosen is None:
            partition = partition_for(self._key_bytes(store, key, key_serde), counts[topic])
        elif isinstance(chosen, int):
            partition = chosen
        else:
            if len(chosen) != 1:
                raise ValueError(f"the partitioner must return one partition of key {key!r}, not {list(chosen)}")
            (partition,) = chosen
        return self.of_partition(store, partition)

    def of_partition(self, store: str, partition: int) -> KeyQueryMetadata:
        """Return the location of a partition of the store."""
        locations = self._locations(store)
        return KeyQueryMetadata(
            locations.active.get(partition, NO_HOST), locations.standby.get(partition, frozenset()), partition
        )

    def partition_counts(self, store: str) -> Mapping[str, int]:
        """Return the partition counts of the topics that the store's tasks read, as far as hosts are known for them.

        Empty before the first assignment.
        """
        return self._locations(store).counts

    def _locations(self, store: str) -> _Locations:
        view, known = self._shown
        locations = known.get(store)
        if locations is None:
            locations = known[store] = self._locate(store, view)
        return locations

    def _locate(self, store: str, view: HostView) -> _Locations:
        topics = {topic for topic, stores in self._stores_by_topic(view).items() if store in stores}
        counts: dict[str, int] = {}
        active: dict[int, HostInfo] = {}
        standby: dict[int, frozenset[HostInfo]] = {}
        for host, partitions in sorted(view.active.items()):
            for topic, partition in partitions:
                if topic in topics:  # the maximum, not the count: instances without application.server leave gaps
                    counts[topic] = max(counts.get(topic, 0), partition + 1)
                    active.setdefault(partition, host)
        for host, partitions in view.standby.items():
            for topic, partition in partitions:
                if topic in topics:
                    standby[partition] = standby.get(partition, frozenset()) | {host}
        return _Locations(counts, active, standby)

    def _check_known(self, store: str) -> None:
        known = sorted(self._topology.stores)
        if store not in known:
            raise UnknownStateStoreError(
                f"the topology has no store {store!r}; it has: {', '.join(known) or 'no stores'}"
            )

    def _key_bytes(self, store: str, key: Any, key_serde: Serde[Any] | None) -> bytes:
        serde = key_serde or self.key_serde(store)
        return serde.serializer(self.changelog(store), is_key=True)(key)

    def _stores_by_topic(self, view: HostView) -> Mapping[str, frozenset[str]]:
        """Return topic -> stores of the sub-topology that reads it."""
        return dict(self._topics_and_stores(view))

    def _topics_and_stores(self, view: HostView) -> Iterator[tuple[str, frozenset[str]]]:
        available: set[str] = set()
        if self._topology.has_patterns:
            for hosts in (view.active, view.standby):
                available.update(topic for partitions in hosts.values() for topic, _ in partitions)
        metadata = self._topology.metadata(self._application_id, available_topics=sorted(available))
        for subtopology in metadata.subtopologies.values():
            for topic in subtopology.source_topics:
                yield topic, subtopology.stores


def _stores_of(partitions: AbstractSet[TopicPartition], stores: Mapping[str, frozenset[str]]) -> frozenset[str]:
    topics: Sequence[str] = sorted({topic for topic, _ in partitions})
    return frozenset().union(*(stores.get(topic, frozenset()) for topic in topics))
