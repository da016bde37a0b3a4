"""The adapter that makes a custom store a store of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from streams_py.errors import ConfigError, StateError, StreamsError
from streams_py.ports import RawRecord
from streams_py.ports.record_headers import headers_of
from streams_py.state.custom.bytes_adapter import CustomBytesAdapter
from streams_py.state.custom.context import CustomStoreContext
from streams_py.state.stores.key_value import ChangeLog
from streams_py.system.printable import named
from streams_py.topology.declare.custom_stores import ChangelogRecord, CustomStateStore, CustomStore
from streams_py.topology.declare.nodes import RecordContext

S = TypeVar("S")


class CustomStoreAdapter:
    """The part of a store's interface that a task uses, for a :class:`CustomStateStore`, which it creates and opens."""

    is_cached = False
    persistent = False
    """False: the store's files, if it has any, are not in the task's database."""

    def __init__(self, supplier: Callable[[], CustomStateStore], context: CustomStoreContext) -> None:
        store = supplier()
        if not isinstance(store, CustomStateStore):
            raise ConfigError(
                f"the supplier of store {context.name!r} returned {type(store).__name__}, expected a CustomStateStore",
                key=context.name,
            )
        self.store = store
        self.context = context
        store.open(context)
        store.is_open = True

    @property
    def name(self) -> str:
        """Name of the store."""
        return self.context.name

    @property
    def is_open(self) -> bool:
        """False after :meth:`close`."""
        return self.store.is_open

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Use the log and context of another task object from now on."""
        self.context.log, self.context.record = log, context

    def restore_records(self, records: Iterable[RawRecord]) -> None:
        """Apply changelog records. Records without a key are skipped."""
        given = [
            ChangelogRecord(key, record.value(), record.timestamp()[1], headers_of(record) or ())
            for record in records
            if (key := record.key()) is not None
        ]
        self.context.is_restoring = True
        try:
            self.store.restore(given)
        except StreamsError:
            raise
        except Exception as error:
            raise StateError(f"store {self.name!r} cannot be restored: {named(error)}") from error
        finally:
            self.context.is_restoring = False

    def flush_cache(self) -> int:
        """Let the store log changes that it has held back. Returns 0: this never fills another store's cache."""
        try:
            self.store.flush()
        except StreamsError:
            raise
        except Exception as error:
            raise StateError(f"store {self.name!r} cannot be flushed: {named(error)}") from error
        return 0

    def clear_cache(self) -> None:
        """Do nothing: custom stores have no record cache."""

    def clear(self) -> None:
        """Remove everything without logging, before the store is restored from the beginning."""
        self.store.clear()

    def close(self) -> None:
        """Close the store. A second call does nothing."""
        if self.store.is_open:
            self.store.is_open = False
            self.store.close()

    def approximate_num_entries(self) -> int:
        """Return 0: a custom store does not report its number of entries."""
        return 0

    def __repr__(self) -> str:
        return f"<{type(self.store).__name__} {self.name}{'' if self.is_open else ', closed'}>"


def as_used(store: S | CustomStoreAdapter) -> S | CustomStateStore:
    """Return an open store as processors and queries use it: without the adapter, if it is a custom store."""
    return store.store if isinstance(store, CustomStoreAdapter) else store


def custom_store_of(store: object) -> CustomStore | None:
    """Return the user's object if an open store is, or keeps its bytes in, a custom store. None for other stores."""
    if isinstance(store, CustomStoreAdapter):
        return store.store
    content = getattr(store, "content", None)
    return content.store if isinstance(content, CustomBytesAdapter) else None
