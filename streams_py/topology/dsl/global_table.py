"""Global tables: a complete copy of a topic in each process."""

from __future__ import annotations

from typing import Generic, TypeVar

from streams_py.topology.logical.graph import LogicalGraph

__all__ = ["GlobalKTable"]

K = TypeVar("K")
V = TypeVar("V")


class GlobalKTable(Generic[K, V]):
    """The latest value of each key of all partitions of a topic, in every process (KIP-99).

    Streams can be joined with it by any key, without repartitioning. Its updates do not trigger results.
    """

    def __init__(self, graph: LogicalGraph, store: str, queryable_store_name: str | None) -> None:
        self._graph = graph
        self._store = store
        self._queryable_store_name = queryable_store_name

    @property
    def queryable_store_name(self) -> str | None:
        """Name of its store if the user set one."""
        return self._queryable_store_name
