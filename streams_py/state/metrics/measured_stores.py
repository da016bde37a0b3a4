"""The metrics of the stores of one task while they are open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streams_py.errors import StateStoreMigratedError
from streams_py.state.metrics.store_metrics import StoreMetrics, state_tag
from streams_py.state.opening.stores import StoreDefaults, is_persistent
from streams_py.state.stores.open_iterators import ListsIterators, OpenIterators
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder

if TYPE_CHECKING:
    from streams_py.state.disk.database import TaskDatabase


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """Which store metrics are recorded."""

    now_ms: Callable[[], int]
    """The wall clock."""
    uses: bool = False
    """Whether to record the rate and latency of store operations (recording level DEBUG)."""
    ages: bool = False
    """Whether to record the age of records when they are put (recording level TRACE)."""


class MeasuredStores:
    """The metrics of the stores of one task. Without ``measuring``, iterators and operations are not measured."""

    def __init__(self, builders: Mapping[str, StoreBuilder], measuring: Measuring | None) -> None:
        self._builders = builders
        self._measuring = measuring
        counts = measuring is not None and measuring.uses
        now_ms = measuring.now_ms if measuring is not None and measuring.ages else None
        self.uses = {name: StoreMetrics(now_ms=now_ms) for name in builders} if counts else {}
        """Store -> the metrics of its operations, with recording level DEBUG."""

    def watch(self, name: str, store: Any) -> None:
        """Start to measure a store that was opened."""
        if self._measuring is not None and isinstance(store, ListsIterators):
            store.iterators = OpenIterators(self._measuring.now_ms)
        if name in self.uses:
            self.uses[name].watch(store)

    def attach(self, record: RecordContext) -> None:
        """Set the context of the record that is being processed."""
        for use in self.uses.values():
            use.record = record

    def metrics(
        self, opened: Mapping[str, Any], database: TaskDatabase | None, defaults: StoreDefaults, seconds: float
    ) -> Iterator[tuple[str, str, Mapping[str, float]]]:
        """Yield Kafka's tag, the name and the metrics of each open store. Thread-safe.

        Args:
            opened: The open stores by name.
            database: The task's database, for RocksDB's properties.
            defaults: The defaults for store declarations.
            seconds: Time for which operations were counted, to compute rates.
        """
        for name, store in list(opened.items()):
            builder = self._builders[name]
            on_disk = database is not None and is_persistent(builder, defaults)
            metrics = dict(database.properties(name)) if database is not None and on_disk else {}
            metrics.update(self._metrics_of(name, store, seconds))
            yield state_tag(builder, persistent=on_disk), name, metrics

    def _metrics_of(self, name: str, store: Any, seconds: float) -> Iterator[tuple[str, float]]:
        use = self.uses.get(name)
        iterators = store.iterators if isinstance(store, ListsIterators) else None
        if iterators is not None:
            opened_ms = iterators.since_ms()
            yield "num-open-iterators", len(opened_ms)
            if use is not None:
                yield "oldest-iterator-open-since-ms", min(opened_ms, default=0)
            if self._is_counted(name, store):
                with contextlib.suppress(StateStoreMigratedError):  # closed meanwhile
                    yield "num-keys", store.approximate_num_entries()
        if use is not None:
            yield from use.metrics(seconds)

    def _is_counted(self, name: str, store: Any) -> bool:
        """Whether counting keys is cheap: the store is in memory, without a time to live, and not a custom store."""
        builder = self._builders[name]
        return not store.persistent and builder.supplier is None and builder.ttl_ms is None

    def of_caches(self, opened: Mapping[str, Any]) -> Iterator[tuple[str, float, Mapping[str, float]]]:
        """Yield name, bytes in the cache and hit ratios of each measured store with a cache. Thread-safe."""
        for name, use in self.uses.items():
            if name in opened and use.cached_bytes is not None:
                yield name, use.cached_bytes, use.hit_ratios
