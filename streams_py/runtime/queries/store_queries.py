"""Reads the stores of one client, and tells which instance has them (KIP-535, KIP-562, KIP-796).

:class:`~streams_py.runtime.client.kafka_streams.KafkaStreams` documents each method for users.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from streams_py.ports import Admin
from streams_py.runtime.queries.hosts import StoreHosts
from streams_py.runtime.queries.lags import LagInfo, store_partition_lags
from streams_py.runtime.queries.state_query import query_store
from streams_py.runtime.queries.store_view import store_view
from streams_py.runtime.thread.states import State
from streams_py.runtime.thread.stream_thread import StreamThread
from streams_py.state.reading.queryable import QueryableStoreType
from streams_py.state.reading.store_views import ReadOnlyStore
from streams_py.state.reading.typed_queries import Position, Query, StateQueryResult

R = TypeVar("R")


class StoreQueries:
    """Queries of the stores that one client has. Thread-safe.

    Args:
        hosts: The stores of the topology and the instances that have them.
        state: Returns the state of the client.
        threads: Returns the stream threads of the client.
        global_stores: Returns the restored global stores by name.
        admin: Returns the admin client; None before the client was started.
    """

    def __init__(
        self,
        hosts: StoreHosts,
        *,
        state: Callable[[], State],
        threads: Callable[[], Sequence[StreamThread]],
        global_stores: Callable[[], Mapping[str, Any]],
        admin: Callable[[], Admin | None],
    ) -> None:
        self.hosts = hosts
        self._names = sorted(hosts.stores)
        self._state = state
        self._threads = threads
        self._global_stores = global_stores
        self._admin = admin

    def store(self, name: str, *, kind: QueryableStoreType, partition: int | None, stale: bool) -> ReadOnlyStore:
        """Return a read-only view of a store over all local instances."""
        return store_view(
            name,
            self._state,
            self._threads,
            self._names,
            self._global_stores,
            kind=kind,
            partition=partition,
            stale=stale,
        )

    def query(
        self,
        store: str,
        query: Query[R],
        *,
        partitions: Collection[int] | None,
        bound: Position | None,
        require_active: bool,
    ) -> StateQueryResult[R]:
        """Query every local partition of a store."""
        return query_store(
            store,
            query,
            self._state,
            self._threads(),
            self._names,
            self._global_stores,
            is_global=self.hosts.is_global(store),
            partitions=partitions,
            bound=bound,
            require_active=require_active,
        )

    def local_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return store -> partition -> lag of each local copy behind its changelog. Empty unless the client runs."""
        admin = self._admin()
        if admin is None or not self._state().is_running_or_rebalancing:
            return {}
        tasks = [task for thread in self._threads() for task in thread.shown_tasks]
        return store_partition_lags(tasks, admin)
