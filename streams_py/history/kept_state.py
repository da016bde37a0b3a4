"""The state of a store at the end of a history, as records of the changelog that it has or would have with logging.

Most stores log to a fold while a task runs, even if they are declared without logging. If a store's bytes are the same
as its changelog's, nothing is logged, and the entries are read from the store at the end. The same applies to a store
whose changelog is its source topic: its contents are the records that were read from the topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from streams_py.history.fold import FoldEntry
from streams_py.state.stores.codec import TIMESTAMP_BYTES, timestamp_of
from streams_py.topology.declare.names import changelog_topic, full_topic_name
from streams_py.topology.declare.stores import StoreBuilder, StoreKind
from streams_py.topology.topology import Topology


def state_topics(stores: Collection[StoreBuilder], application_id: str) -> dict[str, str]:
    """Return store -> full name of the changelog that it has or would have, for stores whose state is available."""
    return {
        store.name: full_topic_name(application_id, changelog_topic(store.name))
        for store in stores
        if not _hides_contents(store)
    }


def stores_without_state(topology: Topology) -> dict[str, str]:
    """Return store -> reason and remedy, for stores whose state is not available."""
    found = {
        store: f"global store {store} is filled from topic {topic} before the first record and does not change: read "
        "that input"
        for topic, store in topology.global_topics.items()
    }
    for sub in topology.subtopologies():
        for store in sub.stores:
            if not sub.is_global and _hides_contents(store):
                found[store.name] = (
                    f"store {store.name} is a custom store without a changelog, so its contents are unknown: declare "
                    "it with logging, and let it report its changes (log_change)"
                )
    return found


def _hides_contents(store: StoreBuilder) -> bool:
    return store.kind is StoreKind.CUSTOM and not store.logging


def is_read_at_end(store: StoreBuilder) -> bool:
    """Whether the state is read from the store at the end, and not logged.

    Then the store contains the last record of each key, or all versions.
    """
    if store.source_topic is not None or store.kind is StoreKind.VERSIONED_KEY_VALUE:
        return True
    if store.supplier is not None:  # it may drop entries without logging that
        return not store.logging
    return store.kind is StoreKind.TIMESTAMPED_KEY_VALUE and store.ttl_ms is None and not store.logs_headers


def with_history_logging(store: StoreBuilder) -> StoreBuilder:
    """Return the declaration that a task over a history uses: the store logs unless it is read at the end."""
    return store if _hides_contents(store) else replace(store, logging=not is_read_at_end(store))


def entries_of(builder: StoreBuilder, store: Any) -> Iterator[FoldEntry]:
    """Yield the entries of an open store that is read at the end (:func:`is_read_at_end`), by key.

    A versioned store yields all versions of each key. A store without timestamps yields -1 as the timestamp.
    """
    if builder.kind is StoreKind.VERSIONED_KEY_VALUE:
        return (FoldEntry(key, value, timestamp_ms, None) for key, value, timestamp_ms in store.entries())
    scanned = store.content.scan(None, None)
    if builder.kind is StoreKind.KEY_VALUE and builder.ttl_ms is None:
        return (FoldEntry(key, data, -1, None) for key, data in scanned)
    return (FoldEntry(key, data[TIMESTAMP_BYTES:], timestamp_of(data), None) for key, data in scanned)
