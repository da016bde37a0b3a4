"""The part of a client that reads stores, and knows which instance has them (KIP-535, KIP-562, KIP-796)."""

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

__all__ = ["ClientQueries"]

R = TypeVar("R")


class ClientQueries:
    """Base of :class:`~streams_py.runtime.client.kafka_streams.KafkaStreams`."""

    _instance: ClientResources
    _state: ClientState
    _threads: dict[int, StreamThread]

    def _current_threads(self) -> list[StreamThread]:
        return list(self._threads.values())  # the mapping is replaced, never changed: readers wait for nobody

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
        """A read-only view of a store over all local instances (KIP-535): ``get``, ``range``, ``all`` and so on.

        ``kind`` says what the store is: key-value, window, session or versioned, and whether values of a timestamped
        store come with their timestamps. ``partition`` limits it to one task; ``stale`` also reads standbys and
        restoring tasks. Any thread may read, and waits for nobody.

        Raises StreamsNotStartedError, UnknownStateStoreError, or InvalidStateStoreError for a store of another kind.
        Two errors are ``retriable``: StateStoreNotAvailableError (InvalidStateStorePartitionError with ``partition``)
        when nothing of it is here now, and, from a view, StateStoreMigratedError after its tasks have moved: ask for a
        new view.
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
        """Ask every partition of a store that is here, active or standby: an answer or a reason for each (KIP-796).

        ``partitions``: only these; each of them has a result. ``bound``: only partitions that have processed their
        input up to these offsets answer, such as ``result.position`` of an earlier query; standbys cannot tell, and
        do not. ``require_active``: only running actives answer, without regard to the bound. Any thread may ask, and
        waits for nobody. Raises StreamsNotStartedError, UnknownStateStoreError, InvalidStateStoreError when the client
        does not run, or StateStoreNotAvailableError (``retriable``) for a global store that is being filled.
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
        """What is known of the stores and where they are; what the query service works with."""
        return self._instance.hosts

    def all_metadata(self) -> list[StreamsMetadata]:
        """Every instance of the application that has an ``application.server``: its stores and partitions, as active
        and as standby. Sorted by address; empty before the first assignment."""
        return self._instance.hosts.everybody()

    def streams_metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """The instances that have a store, as active or as standby; a global store all of them.

        UnknownStateStoreError when no store is called so.
        """
        return self._instance.hosts.with_store(store)

    def query_metadata_for_key(
        self, store: str, key: Any, *, key_serde: Serde[Any] | None = None, partitioner: Partitioner | None = None
    ) -> KeyQueryMetadata:
        """The instance to ask for a key, those with a standby of it, and its partition.

        Of windows and sessions the key is that inside of the window. ``key_serde`` is the store's unless given.
        ``partitioner`` is needed where the records were written with one of their own; it gets None as value and has
        to choose one partition (ValueError otherwise). Before the first assignment the answer is ``NOT_AVAILABLE``.
        It shows where tasks are going: an instance may be named a moment before it has the key, and refuse.
        UnknownStateStoreError when no store is called so.
        """
        return self._instance.hosts.of_key(store, key, key_serde=key_serde, partitioner=partitioner)

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Store -> partition -> how far the copy on this client is behind its changelog: active, restoring or standby.

        Asks the brokers for the ends; BrokerUnavailableError when none answers. Empty unless the client runs.
        """
        from streams_py.runtime.queries.lags import store_partition_lags

        admin = self._instance.admin
        if admin is None or not self._state.now.is_running_or_rebalancing:
            return {}
        tasks = [task for thread in self._current_threads() for task in thread.shown_tasks]
        return store_partition_lags(tasks, admin)
