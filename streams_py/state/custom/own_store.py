"""A store with methods of the user's own, as a store of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from streams_py.errors import ConfigError, StateError, StreamsError
from streams_py.ports import RawRecord
from streams_py.ports.record_headers import headers_of
from streams_py.state.custom.context import OwnStoreContext
from streams_py.state.custom.supplied_bytes import SuppliedBytes
from streams_py.state.stores.key_value import ChangeLog
from streams_py.system.printable import named
from streams_py.topology.declare.custom_stores import ChangelogRecord, CustomStateStore, CustomStore
from streams_py.topology.declare.nodes import RecordContext

__all__ = ["OwnStore", "as_used", "own_store"]

S = TypeVar("S")


class OwnStore:
    """What a task asks of every store, over a :class:`CustomStateStore`, which it opens."""

    is_cached = False
    persistent = False
    """Its files, if there are any, are not in the task's database."""

    def __init__(self, supplier: Callable[[], CustomStateStore], context: OwnStoreContext) -> None:
        store = supplier()
        if not isinstance(store, CustomStateStore):
            raise ConfigError(
                f"the supplier of store {context.name!r} made {type(store).__name__}, which is no CustomStateStore",
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
        """Belong to another task object from now on."""
        self.context.log, self.context.record = log, context

    def restore_records(self, records: Iterable[RawRecord]) -> None:
        """Apply changelog records; those without a key are skipped."""
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
        """Let it log what it holds back. 0: that fills no cache of others."""
        try:
            self.store.flush()
        except StreamsError:
            raise
        except Exception as error:
            raise StateError(f"store {self.name!r} cannot be flushed: {named(error)}") from error
        return 0

    def clear_cache(self) -> None:
        """There is no cache."""

    def clear(self) -> None:
        """Remove everything, unlogged: before a restoration from the beginning."""
        self.store.clear()

    def close(self) -> None:
        """Let go of it. A second call does nothing."""
        if self.store.is_open:
            self.store.is_open = False
            self.store.close()

    def approximate_num_entries(self) -> int:
        """Nobody can know."""
        return 0

    def __repr__(self) -> str:
        return f"<{type(self.store).__name__} {self.name}{'' if self.is_open else ', closed'}>"


def as_used(store: S | OwnStore) -> S | CustomStateStore:
    """An open store as processors and queries use it: what the user made, where that is all there is."""
    return store.store if isinstance(store, OwnStore) else store


def own_store(store: object) -> CustomStore | None:
    """What the user made, of an open store that is or is kept in something of that kind."""
    if isinstance(store, OwnStore):
        return store.store
    content = getattr(store, "content", None)
    return content.store if isinstance(content, SuppliedBytes) else None
