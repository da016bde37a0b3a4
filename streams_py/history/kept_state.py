"""The state that a store is left with, whatever it keeps live: a changelog, a topic that it reads, or nothing.

Everything is had as records of the changelog that the store has, or would have with logging. Most stores log to a fold
while a task runs, also those that are declared without logging. Where the bytes of a store are the same as its
changelog would be, nothing is written twice: they are read at the end. So they are where a source topic is the
changelog: what such a store has is what was read of the topic.
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

__all__ = ["entries_of", "is_its_own_fold", "logging_what_is_folded", "state_topics", "stores_without_state"]


def state_topics(stores: Collection[StoreBuilder], application_id: str) -> dict[str, str]:
    """Store -> full name of the changelog that it has, or would have, of those whose state can be had."""
    return {
        store.name: full_topic_name(application_id, changelog_topic(store.name))
        for store in stores
        if not _keeps_to_itself(store)
    }


def stores_without_state(topology: Topology) -> dict[str, str]:
    """Store -> why its state cannot be had, and what to do."""
    found = {
        store: f"global store {store} is filled from topic {topic} before the first record and left so: read that input"
        for topic, store in topology.global_topics.items()
    }
    for sub in topology.subtopologies():
        for store in sub.stores:
            if not sub.is_global and _keeps_to_itself(store):
                found[store.name] = (
                    f"store {store.name} is of your own and has no changelog, so nobody else knows what is in it: "
                    "declare it with logging, and let it say its changes (log_change)"
                )
    return found


def _keeps_to_itself(store: StoreBuilder) -> bool:
    return store.kind is StoreKind.CUSTOM and not store.logging


def is_its_own_fold(store: StoreBuilder) -> bool:
    """Whether what is to be known of a store is read from it at the end: its bytes are the last record of each key, or
    all versions."""
    if store.source_topic is not None or store.kind is StoreKind.VERSIONED_KEY_VALUE:
        return True
    if store.supplier is not None:  # what it drops of its own accord may be in no log
        return not store.logging
    return store.kind is StoreKind.TIMESTAMPED_KEY_VALUE and store.ttl_ms is None and not store.logs_headers


def logging_what_is_folded(store: StoreBuilder) -> StoreBuilder:
    """A store as a task over a history has it: it logs unless it is read at the end."""
    return store if _keeps_to_itself(store) else replace(store, logging=not is_its_own_fold(store))


def entries_of(builder: StoreBuilder, store: Any) -> Iterator[FoldEntry]:
    """What an open store of this declaration has, by key, where it is its own fold. Of a versioned one all versions of
    each key; one that keeps no timestamps gives none (-1)."""
    if builder.kind is StoreKind.VERSIONED_KEY_VALUE:
        return (FoldEntry(key, value, timestamp_ms, None) for key, value, timestamp_ms in store.entries())
    scanned = store.content.scan(None, None)
    if builder.kind is StoreKind.KEY_VALUE and builder.ttl_ms is None:
        return (FoldEntry(key, data, -1, None) for key, data in scanned)
    return (FoldEntry(key, data[TIMESTAMP_BYTES:], timestamp_of(data), None) for key, data in scanned)
