"""The part of a client that reads stores and tells which instance has them (KIP-535, KIP-562, KIP-796)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from streams_py.state.reading.queryable import QueryableStoreType

if TYPE_CHECKING:
    from streams_py.runtime.client.state import ClientState
    from streams_py.runtime.queries.hosts import KeyQueryMetadata, StoreHosts, StreamsMetadata
    from streams_py.runtime.queries.lags import LagInfo
    from streams_py.runtime.thread.stream_thread import StreamThread
    from streams_py.runtime.wiring.shared import ClientResources
    from streams_py.serdes import Serde
    from streams_py.state.reading.store_views import ReadOnlyKeyValueStore, ReadOnlyStore, ReadOnlyVersionedStore
    from streams_py.state.reading.typed_queries import Position, Query, StateQueryResult
    from streams_py.state.reading.window_views import ReadOnlySessionStore, ReadOnlyWindowStore
    from streams_py.topology.declare.nodes import Partitioner

R = TypeVar("R")


class ClientQueries:
    """Queries of :class:`~streams_py.runtime.client.kafka_streams.KafkaStreams`."""

    _instance: ClientResources
    _state: ClientState
    _threads: dict[int, StreamThread]

    def _current_threads(self) -> list[StreamThread]:
        return list(self._threads.values())  # the mapping is replaced, never changed, so readers need no lock

    @overload
    def store(
        self,
        name: str,
        *,
        kind: Literal[QueryableStoreType.WINDOW, QueryableStoreType.TIMESTAMPED_WINDOW],
        partition: int | None = None,
        stale: bool = False,
    ) -> ReadOnlyWindowStore[Any, Any]: ...
    @overload
    def store(
        self, name: str, *, kind: Literal[QueryableStoreType.SESSION], partition: int | None = None, stale: bool = False
    ) -> ReadOnlySessionStore[Any, Any]: ...
    @overload
    def store(
        self,
        name: str,
        *,
        kind: Literal[QueryableStoreType.VERSIONED],
        partition: int | None = None,
        stale: bool = False,
    ) -> ReadOnlyVersionedStore[Any, Any]: ...
    @overload
    def store(
        self,
        name: str,
        *,
        kind: Literal[
            QueryableStoreType.KEY_VALUE, QueryableStoreType.TIMESTAMPED_KEY_VALUE
        ] = QueryableStoreType.KEY_VALUE,
        partition: int | None = None,
        stale: bool = False,
    ) -> ReadOnlyKeyValueStore[Any, Any]: ...
    def store(
        self,
        name: str,
        *,
        kind: QueryableStoreType = QueryableStoreType.KEY_VALUE,
        partition: int | None = None,
        stale: bool = False,
    ) -> ReadOnlyStore:
        """Return a read-only view of a store over all local instances (KIP-535): ``get``, ``range``, ``all`` and so on.

        Thread-safe, and never blocks.

        Args:
            kind: Kind of the store: key-value, window, session or versioned, and whether values of a timestamped store
                come with their timestamps.
            partition: Limits the view to one task.
            stale: Whether to read standby and restoring tasks, too.

        Raises:
            StreamsNotStartedError: The client was not started.
            UnknownStateStoreError: The topology has no store of this name.
            InvalidStateStoreError: The store is of another kind.
            StateStoreNotAvailableError: No task of the store is here now (``retriable``). With ``partition``:
                InvalidStateStorePartitionError.
            StateStoreMigratedError: Raised by a view after its tasks have moved (``retriable``): request a new view.
        """
        from streams_py.runtime.queries.store_view import store_view

        return store_view(
            name,
            lambda: self._state.now,
            self._current_threads,
            self._instance.store_names,
            lambda: self._instance.global_stores,
            kind=kind,
            partition=partition,
            stale=stale,
        )

    def query(
        self,
        store: str,
        query: Query[R],
        *,
        partitions: Collection[int] | None = None,
        bound: Position | None = None,
        require_active: bool = False,
    ) -> StateQueryResult[R]:
        """Query every local partition of a store, active or standby (KIP-796). Thread-safe, and never blocks.

        Args:
            partitions: Only these partitions. Each of them has a result.
            bound: Only partitions that have processed their input up to these offsets answer, for example
                ``result.position`` of an earlier query. Standby tasks don't know their position, so they don't answer.
            require_active: Whether only running active tasks answer. The bound is then ignored.

        Returns:
            An answer or a failure reason for each partition.

        Raises:
            StreamsNotStartedError: The client was not started.
            UnknownStateStoreError: The topology has no store of this name.
            InvalidStateStoreError: The client is not running.
            StateStoreNotAvailableError: A global store is being restored (``retriable``).
        """
        from streams_py.runtime.queries.state_query import query_store

        return query_store(
            store,
            query,
            lambda: self._state.now,
            self._current_threads(),
            self._instance.store_names,
            lambda: self._instance.global_stores,
            is_global=self._instance.hosts.is_global(store),
            partitions=partitions,
            bound=bound,
            require_active=require_active,
        )

    @property
    def store_hosts(self) -> StoreHosts:
        """The stores and their locations, as used by the query service."""
        return self._instance.hosts

    def all_metadata(self) -> list[StreamsMetadata]:
        """Return every instance of the application that has an ``application.server``, sorted by address.

        Each has its stores and partitions, as active and as standby. Empty before the first assignment.
        """
        return self._instance.hosts.instances()

    def streams_metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """Return the instances that have a store, as active or standby. For a global store: all instances.

        Raises:
            UnknownStateStoreError: The topology has no store of this name.
        """
        return self._instance.hosts.with_store(store)

    def query_metadata_for_key(
        self, store: str, key: Any, *, key_serde: Serde[Any] | None = None, partitioner: Partitioner | None = None
    ) -> KeyQueryMetadata:
        """Return the instance to query for a key, the instances with a standby of it, and its partition.

        The result shows where tasks are going: an instance may be named shortly before it has the key, and then reject
        a query. Before the first assignment the result is ``NOT_AVAILABLE``.

        Args:
            key: The key. For windows and sessions: the key inside of the window.
            key_serde: Serde of the key; default: the store's.
            partitioner: Required if the records were written with a custom partitioner. It is called with None as the
                value, and must choose exactly one partition (otherwise ValueError).

        Raises:
            UnknownStateStoreError: The topology has no store of this name.
        """
        return self._instance.hosts.of_key(store, key, key_serde=key_serde, partitioner=partitioner)

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return store -> partition -> lag of each local copy behind its changelog: active, restoring or standby.

        Requests the end offsets from the brokers. Empty unless the client is running.

        Raises:
            BrokerUnavailableError: No broker answers.
        """
        from streams_py.runtime.queries.lags import store_partition_lags

        admin = self._instance.admin
        if admin is None or not self._state.now.is_running_or_rebalancing:
            return {}
        tasks = [task for thread in self._current_threads() for task in thread.shown_tasks]
        return store_partition_lags(tasks, admin)
