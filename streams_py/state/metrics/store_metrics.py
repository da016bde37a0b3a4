"""Metrics of single stores: RocksDB properties and, with recording level DEBUG, the rate and latency of operations.

The names are Kafka Streams' (group ``stream-state-metrics``, times in ns). Without DEBUG nothing is measured, and
RocksDB properties are read only when the metrics are read. With DEBUG, the methods of a store are replaced by methods
that measure the time. If a method calls another method of the store, this counts as one call of the outer method. An
aggregation reads and writes in one step, which counts as ``put``. A scan counts when it is opened; the time that it was
open is a separate metric.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from streams_py.state.buffers.suppress_buffer import SuppressionBuffer
from streams_py.state.caching.cached import CachedStore
from streams_py.state.stores.open_iterators import ListsIterators
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind
from streams_py.topology.metrics.averages import Extent, Sampled
from streams_py.topology.metrics.node_metrics import latency_metrics

_METHODS: Final[Mapping[str, str]] = {
    "put": "put",
    "put_value": "put",
    "put_if_absent": "put-if-absent",
    "put_all": "put-all",
    "get": "get",
    "get_parts": "get",
    "peek": "get",
    "history": "get",
    "delete": "delete",
    "remove": "remove",
    "all": "all",
    "reverse_all": "all",
    "range": "range",
    "reverse_range": "range",
    "prefix_scan": "prefix-scan",
    "under": "prefix-scan",
    "fetch": "fetch",
    "fetch_between": "fetch",
    "between": "fetch",
    "fetch_keys": "fetch",
    "fetch_all": "fetch",
    "fetch_session": "fetch",
    "find_sessions": "fetch",
    "sessions": "fetch",
    "sessions_ended": "fetch",
    "flush_cache": "flush",
    "restore": "restore",
    "restore_records": "restore",
}
"""Method of a store -> Kafka's name of the operation."""

OPERATIONS: Final = tuple(dict.fromkeys(_METHODS.values()))
"""Kafka's names of all operations."""

_MS: Final = 1_000_000
"""One millisecond in ns."""

_PUTS: Final = ("put", "put_value", "put_if_absent")
"""Methods that record the age of the current record. Aggregations do too; ``put_all`` does not, as in Kafka Streams."""

_READS: Final = ("get", "get_parts")
"""Methods that count for the hit ratio of a cache. Aggregations count too, because they read before they write."""


class StoreUse(NamedTuple):
    """The count, sum and maximum of a measured value: latencies of one kind of operation in ns, or sizes."""

    calls: int = 0
    total: int = 0
    longest: int = 0

    def with_one(self, more: int) -> StoreUse:
        """Return a copy with one more measured value."""
        return StoreUse(self.calls + 1, self.total + more, max(self.longest, more))


class StoreMetrics:
    """The metrics of one store's operations since its task was created. Thread-safe.

    Args:
        now_ns: The clock for latencies.
        now_ms: The wall clock, if the age of records is to be recorded when they are put.
    """

    def __init__(
        self, now_ns: Callable[[], int] = time.perf_counter_ns, *, now_ms: Callable[[], int] | None = None
    ) -> None:
        self._now_ns = now_ns
        self._now_ms = now_ms
        self.record = RecordContext()
        """The context of the record that is being processed."""
        self._lock = threading.RLock()  # reentrant: the garbage collector may finish an iterator at any time
        self._scans = StoreUse()
        self._ages = Sampled()
        self._inside = threading.local()
        self._uses: dict[str, StoreUse] = {}
        self._reads = self._missed = self._loads = 0
        self._hit_ratios = Sampled()
        self._cached: CachedStore[Any, Any, Any] | None = None
        self._buffered: dict[str, StoreUse] = {}

    def watch(self, store: Any) -> None:
        """Measure all operations on this store from now on."""
        for method, operation in _METHODS.items():
            call = getattr(store, method, None)
            if call is not None:
                call = self._counting(store, call) if method in _READS else call
                setattr(store, method, self._timed(call, operation, is_put=method in _PUTS))
        updater = getattr(store, "updater", None)
        if updater is not None:
            store.updater = lambda *arguments: self._timed(
                self._counting(store, updater(*arguments)), "put", is_put=True
            )
        if isinstance(store, ListsIterators) and store.iterators is not None:
            store.iterators.measure(self._now_ns, self._add_scan)
        if isinstance(store, CachedStore):
            self._watch_cache(store)
        if isinstance(store, SuppressionBuffer):
            store.put = self._measuring(store, store.put)  # type: ignore[method-assign]

    def _timed(self, call: Callable[..., Any], operation: str, *, is_put: bool) -> Callable[..., Any]:
        inside, now_ns = self._inside, self._now_ns
        inner = call
        if is_put and self._now_ms is not None:
            call = self._noting_age(call, self._now_ms)

        def timed(*arguments: Any, **options: Any) -> Any:
            if getattr(inside, "is_true", False):
                return inner(*arguments, **options)
            inside.is_true = True
            began_ns = now_ns()
            try:
                return call(*arguments, **options)
            finally:
                inside.is_true = False
                self._add(operation, now_ns() - began_ns)

        return timed

    def _noting_age(self, put: Callable[..., Any], now_ms: Callable[[], int]) -> Callable[..., Any]:
        def put_and_note(*arguments: Any, **options: Any) -> Any:
            result = put(*arguments, **options)
            if self.record.timestamp >= 0:  # not before the first record
                put_ms = now_ms()
                self._ages.add(put_ms - self.record.timestamp, put_ms)
            return result

        return put_and_note

    def _add_scan(self, took_ns: int) -> None:
        with self._lock:
            self._scans = self._scans.with_one(took_ns)

    def _add(self, operation: str, took_ns: int) -> None:
        with self._lock:
            self._uses[operation] = self._uses.get(operation, StoreUse()).with_one(took_ns)

    def _counting(self, store: Any, read: Callable[..., Any]) -> Callable[..., Any]:
        if not isinstance(store, CachedStore):
            return read

        def counted(*arguments: Any) -> Any:
            loads = self._loads
            try:
                return read(*arguments)
            finally:
                self._reads += 1
                self._missed += self._loads > loads
                self._hit_ratios.add(1 - self._missed / self._reads, self._now_ns() // _MS)

        return counted

    def _watch_cache(self, store: CachedStore[Any, Any, Any]) -> None:
        load = store._load

        def counted(*arguments: Any, **options: Any) -> Any:
            self._loads += 1
            return load(*arguments, **options)

        store._load = counted  # type: ignore[method-assign]
        self._cached = store

    def _measuring(self, buffer: SuppressionBuffer[Any, Any], put: Callable[..., None]) -> Callable[..., None]:
        def measured(*arguments: Any) -> None:
            put(*arguments)
            for what, now in (("size", buffer.size_bytes), ("count", len(buffer))):
                self._buffered[what] = self._buffered.get(what, StoreUse()).with_one(now)

        return measured

    @property
    def hit_ratios(self) -> dict[str, float]:
        """The share of reads that the store's cache answered, overall, and its recent minimum and maximum."""
        share = 1 - self._missed / self._reads if self._reads else 0.0
        lately = self._hit_ratios.extent(self._now_ns() // _MS) or Extent(share, share, share)
        return {"hit-ratio-avg": share, "hit-ratio-min": lately.least, "hit-ratio-max": lately.most}

    @property
    def cached_bytes(self) -> int | None:
        """Bytes that the store's cache uses of its budget; None without a cache. Iterates over all entries."""
        return None if self._cached is None else sum(entry[1] for entry in list(self._cached._entries.values()))

    def metrics(self, seconds: float) -> Iterator[tuple[str, float]]:
        """Yield the rate and latencies of each operation that was used, and the metrics of iterators and record ages.

        ``seconds``: the time for which operations were counted, to compute rates.
        """
        with self._lock:
            uses, scans = dict(self._uses), self._scans
        if scans.calls:
            yield "iterator-duration-avg", scans.total / scans.calls
            yield "iterator-duration-max", scans.longest
        if self._now_ms is not None:
            yield from latency_metrics(self._ages, self._now_ms())
        for operation in OPERATIONS:
            use = uses.get(operation)
            if use is not None:
                yield f"{operation}-rate", use.calls / seconds
                yield f"{operation}-latency-avg", use.total / use.calls
                yield f"{operation}-latency-max", use.longest
        for what, buffered in list(self._buffered.items()):
            yield f"suppression-buffer-{what}-avg", buffered.total / buffered.calls
            yield f"suppression-buffer-{what}-max", buffered.longest


def state_tag(builder: StoreBuilder, *, persistent: bool) -> str:
    """Return the metric tag for the store's name: Kafka's scope of such a store, followed by ``-state-id``."""
    if builder.kind is StoreKind.SUPPRESSION:
        return "in-memory-suppression-state-id"
    if builder.supplier is not None:
        return "custom-state-id"
    scope = "rocksdb" if persistent else "in-memory"
    if builder.kind in (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW):
        scope += "-window"
    elif builder.kind is StoreKind.SESSION:
        scope += "-session"
    return f"{scope}-state-id"
