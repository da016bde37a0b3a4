"""Cost of the state of a count: get and put per record, by kind of store.

``python benchmarks/stores.py [KEYS] [RECORDS]`` prints CPU microseconds per record, the median of several rounds. The
changelog is a function that does nothing; the cache is flushed after every FLUSH_EVERY records.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from typing import Any

from streams_py.serdes import INT64, JSON, STRING, Serde
from streams_py.state.caching.cache import RecordCache
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.opening.stores import open_store
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

FLUSH_EVERY = 20_000
ROUNDS = 7


def drop_change(key: bytes, value: bytes | None, timestamp_ms: int) -> None:
    """Replace the changelog producer: do nothing."""


def count(store: Any, keys: list[str], *, parts: bool) -> float:
    """Count the keys; return CPU microseconds per record."""
    get = store.get_parts if parts else store.get
    put = store.put_value
    start = time.thread_time()
    for first in range(0, len(keys), FLUSH_EVERY):
        for key in keys[first : first + FLUSH_EVERY]:
            stored = get(key)
            put(key, 1 if stored is None else stored[0] + 1, 5)
        store.flush_cache()
    return (time.thread_time() - start) / len(keys) * 1e6


def measure(
    directory: str, keys: list[str], serde: Serde[Any], *, persistent: bool, caching: bool, parts: bool
) -> float:
    """Return the median of several rounds on one store."""
    database = TaskDatabase(directory, ["counts"]) if persistent else None
    context = RecordContext()
    context.topic = "input"
    store: Any = open_store(
        StoreBuilder("counts", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, serde, persistent=persistent, caching=caching),
        application_id="app",
        context=context,
        log=drop_change,
        disk=None if database is None else database.store,
        cache=RecordCache(10 << 20),
    )
    if caching:
        store.set_flush_listener(lambda *_: None, send_old_values=False)
    median = statistics.median(count(store, keys, parts=parts) for _ in range(ROUNDS))
    store.close()
    if database is not None:
        database.close()
    return median


def main() -> None:
    """Print one line per kind of store."""
    distinct = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    records = int(sys.argv[2]) if len(sys.argv) > 2 else 200_000
    keys = [f"key-{random.randrange(distinct)}" for _ in range(records)]
    print(f"{records} records, {distinct} keys, cache flushed every {FLUSH_EVERY} records")
    for serde in (INT64, JSON):
        for persistent in (False, True):
            for caching in (False, True):
                for parts in (False, True):
                    with tempfile.TemporaryDirectory() as directory:
                        us = measure(directory, keys, serde, persistent=persistent, caching=caching, parts=parts)
                    kind = f"{'rocksdb' if persistent else 'memory':8}{'cache' if caching else 'no cache':9}"
                    print(
                        f"{serde.name:6} {kind} {'get_parts' if parts else 'get':10} {us:5.2f} us  {1e6 / us:9,.0f}/s"
                    )


if __name__ == "__main__":
    main()
