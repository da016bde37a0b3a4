"""Custom stores: the interfaces to implement, and their declaration.

A :class:`KeyValueBytesStore` stores the bytes of a key-value store. The library provides serdes, timestamps, record
cache, changelog and queries, as with Kafka Streams' ``KeyValueBytesStoreSupplier``. A :class:`CustomStateStore` can be
anything: an index, a sketch, a graph. It decides what it writes to its changelog, and reads these records when it is
restored (``StateStore`` with a restore callback). ``streams_py.testing.store_contract`` has tests for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from streams_protocol.types import TaskId
from streams_py.ports import Headers
from streams_py.topology.declare.checks import checked_function
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

__all__ = [
    "ChangelogRecord",
    "CustomStateStore",
    "CustomStore",
    "KeyValueBytesStore",
    "KeyValueBytesStoreSupplier",
    "StateStoreContext",
    "StateStoreSupplier",
    "custom_store",
]


class ChangelogRecord(NamedTuple):
    """A record of a store's changelog. A ``value`` of None is a deletion. ``timestamp`` is in ms."""

    key: bytes
    """The key as bytes."""
    value: bytes | None
    """The value as bytes. None: a deletion."""
    timestamp: int
    """The timestamp, in ms."""
    headers: Headers = ()
    """The headers."""


class StateStoreContext(Protocol):
    """The environment of a custom store, with which it also logs its changes."""

    @property
    def name(self) -> str:
        """Name of the store."""

    @property
    def application_id(self) -> str:
        """``application.id``."""

    @property
    def task_id(self) -> TaskId | None:
        """The task of the store; None for a global store."""

    @property
    def changelog_topic(self) -> str:
        """Full name of the store's changelog topic, even if the store is not logged."""

    @property
    def state_dir(self) -> str | None:
        """A directory for this store alone, which the store has to create.

        It is deleted with the task's state. None if no state is kept on disk, as in the test driver.
        """

    @property
    def record(self) -> RecordContext:
        """Topic, partition, offset, timestamp and headers of the current record."""

    def log_change(
        self, key: bytes, value: bytes | None, *, timestamp: int | None = None, headers: Headers = ()
    ) -> None:
        """Write a record to the changelog. ``timestamp`` (ms) defaults to the current record's timestamp.

        It does nothing while the store is being restored, on a standby, and if the store is declared with
        ``logging=False``. Call it before the change itself: in a global store it raises an error for a processor with
        read-only access.
        """


class CustomStore(ABC):
    """Base class of both kinds of custom stores. One object belongs to one task and is opened once.

    Only the thread that owns the task writes. Any thread may read at any time (queries). Exceptions stop the task.
    """

    context: StateStoreContext
    """The store's context. Set when the task opens the store."""

    def open(self, context: StateStoreContext) -> None:
        """Called once before all other methods; open files here.

        The default implementation stores the context in ``self.context``.
        """
        self.context = context

    def committed_offset(self) -> int | None:
        """Return the changelog offset up to which the data found on disk is complete, or None.

        It is the argument of the last :meth:`commit`. None, the default, means that the offset is unknown: the store is
        cleared and restored from the beginning. Called once, after :meth:`open`.
        """
        return None

    def commit(self, offset: int | None) -> None:  # noqa: B027  # most stores are in memory
        """Called when all writes up to the changelog record ``offset`` are committed.

        ``offset`` is None if the position is unknown: without a changelog, and after :meth:`clear` if the changelog was
        recreated or does not reach back far enough. A store whose files outlive the process must make the writes and
        the offset durable in one step, and must not write uncommitted data to its files. The default implementation
        does nothing, which is correct for stores in memory.
        """

    @abstractmethod
    def clear(self) -> None:
        """Remove all entries, without logging this."""

    @abstractmethod
    def close(self) -> None:
        """Release files and memory. Called once; uncommitted writes are dropped."""


class KeyValueBytesStore(CustomStore):
    """A map of bytes to bytes, for a key-value store of the library.

    The library provides serdes, timestamps, cache and changelog. Values of timestamped stores (tables and aggregates)
    begin with an i64 timestamp; return them unchanged. A store that removes entries by its own decision must call
    ``self.evicted(key)`` for each of them, so that its changelog contains the removal.
    """

    evicted: Callable[[bytes], None]
    """Logs the removal of an entry. Set before :meth:`open`; does nothing during a restore."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""

    @abstractmethod
    def put(self, key: bytes, value: bytes) -> None:
        """Store a value, replacing an existing one."""

    @abstractmethod
    def delete(self, key: bytes) -> None:
        """Remove ``key`` if it exists."""

    @abstractmethod
    def range(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Return the entries from ``first`` on and below ``end``, in unsigned byte order of the keys.

        ``end`` is excluded; None means no bound. The iterator shows the entries at the time of the call: later writes
        must neither be visible nor make it fail.
        """

    @abstractmethod
    def approximate_num_entries(self) -> int:
        """Return the approximate number of entries."""


class CustomStateStore(CustomStore):
    """A store with its own methods; ``get_state_store`` returns this object to processors.

    For a global store only the processor that fills it gets this object. All others get an object with the same methods
    that rejects changes with UnsupportedOperationError: methods named ``put``, ``delete`` and the like, the methods of
    this class that are reserved for the library, and all methods that call ``log_change``.

    Methods that change the store must call ``self.context.log_change``. When the task moves, :meth:`restore` gets the
    same records, except those that compaction removed. So the latest record of each key has to be sufficient.
    """

    is_open: bool = False
    """Whether the store is open, from the end of :meth:`open` until the task releases it.

    Set by the library.
    """

    @property
    def name(self) -> str:
        """Name of the store."""
        return self.context.name

    @property
    def persistent(self) -> bool:
        """Whether the store knows how far its files are (:meth:`committed_offset`)."""
        return type(self).committed_offset is not CustomStore.committed_offset

    @abstractmethod
    def restore(self, records: Iterable[ChangelogRecord]) -> None:
        """Apply records of the changelog, in order.

        ``context.record`` does not describe these records, and nothing is logged.
        """

    def flush(self) -> None:
        """Called before each commit: log changes that are not logged yet. Does nothing by default."""

    def query(self, query: Any) -> Any:
        """Answer a query of your own class (``KafkaStreams.query``), on any thread.

        Return ``NotImplemented``, as the default implementation does, for an unknown query.
        """
        return NotImplemented


KeyValueBytesStoreSupplier: TypeAlias = Callable[[], KeyValueBytesStore]
"""Returns a new store; called once for each task and opening.

A class whose constructor needs no arguments is a supplier.
"""

StateStoreSupplier: TypeAlias = Callable[[], CustomStateStore]
"""Returns a new store with its own methods; called once for each task and opening."""


@checked_function
def custom_store(
    name: str, supplier: StateStoreSupplier, *, logging: bool = True, logging_config: Mapping[str, str] | None = None
) -> StoreBuilder:
    """Declare a :class:`CustomStateStore`.

    The store that ``supplier`` returns is opened, restored, committed and closed with its task. ``logging``: keep a
    changelog topic, which is compacted unless ``logging_config`` sets another policy.
    """
    config = dict(logging_config or {})
    return StoreBuilder(name, StoreKind.CUSTOM, None, None, False, logging, False, config, supplier=supplier)
