"""Stores of your own making: the interfaces to implement, and how they are declared.

A :class:`KeyValueBytesStore` keeps bytes for a key-value store; serdes, timestamps, record cache, changelog and queries
are the library's, as with Kafka Streams' ``KeyValueBytesStoreSupplier``. A :class:`CustomStateStore` is anything at
all: an index, a sketch, a graph. It says itself what belongs into its changelog and takes it back when it is restored
(``StateStore`` with a restore callback). ``streams_py.testing.store_contract`` has tests for both.
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
    """A record of a store's changelog. ``value`` None: a deletion; ``timestamp`` is in ms."""

    key: bytes
    value: bytes | None
    timestamp: int
    headers: Headers = ()


class StateStoreContext(Protocol):
    """What a store of your own knows of where it is, and how it tells of its changes."""

    @property
    def name(self) -> str:
        """Name of the store."""

    @property
    def application_id(self) -> str:
        """``application.id``."""

    @property
    def task_id(self) -> TaskId | None:
        """The task it belongs to; None of a global store."""

    @property
    def changelog_topic(self) -> str:
        """Full name of the store's changelog topic; also when it is not logged."""

    @property
    def state_dir(self) -> str | None:
        """A directory for this store alone, which it has to make; it goes when the task's state is deleted. None where
        nothing is kept on disk, as in the test driver."""

    @property
    def record(self) -> RecordContext:
        """Topic, partition, offset, timestamp and headers of the record in process."""

    def log_change(
        self, key: bytes, value: bytes | None, *, timestamp: int | None = None, headers: Headers = ()
    ) -> None:
        """Write a record to the changelog; ``timestamp`` (ms) is that of the record in process unless given.

        Does nothing while the store is restored, on a standby, and when the store is declared with ``logging=False``.
        Call it before the change itself: in a global store it raises when a processor asks that may only read.
        """


class CustomStore(ABC):
    """What both kinds have in common. One object belongs to one task and is opened once.

    The thread that owns the task writes; any thread may read, at any time (queries). Exceptions end the task.
    """

    context: StateStoreContext

    def open(self, context: StateStoreContext) -> None:
        """Called once, before anything else; open files here.

        The inherited method keeps the context as ``self.context``.
        """
        self.context = context

    def committed_offset(self) -> int | None:
        """Offset of the last changelog record that is contained in what was found on disk: what the last :meth:`commit`
        was given. None, which is the inherited answer: nothing is known, so the store is cleared and restored from the
        beginning. Asked once, after :meth:`open`."""
        return None

    def commit(self, offset: int | None) -> None:  # noqa: B027  # most keep everything in memory
        """What was written so far, up to the changelog record ``offset``, is committed. None: up to which one is
        unknown, as without a changelog, and after :meth:`clear` when the changelog is another one or does not reach
        back. A store whose files outlive the process makes both durable in one step, and lets nothing uncommitted reach
        them. The inherited method does nothing: right for everything that is kept in memory."""

    @abstractmethod
    def clear(self) -> None:
        """Remove everything; nothing is logged for it."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and memory. Called once; what is not committed is dropped."""


class KeyValueBytesStore(CustomStore):
    """Bytes to bytes, for a key-value store whose serdes, timestamps, cache and changelog are the library's.

    Values of timestamped stores (tables and aggregates) have an i64 timestamp in front; hand them back as they came.
    A store that drops entries of its own accord calls ``self.evicted(key)`` for each, so that its changelog says so.
    """

    evicted: Callable[[bytes], None]
    """Set before :meth:`open`: logs that an entry has gone. Does nothing while the store is restored."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The value of ``key``; None when there is none."""

    @abstractmethod
    def put(self, key: bytes, value: bytes) -> None:
        """Store a value, replacing the one that is there."""

    @abstractmethod
    def delete(self, key: bytes) -> None:
        """Remove ``key``, if it is there."""

    @abstractmethod
    def range(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """The entries from ``first`` on and below ``end`` (not included; None: open end), by unsigned byte order of
        the keys. As of the call: later writes must not show, nor make it fail."""

    @abstractmethod
    def approximate_num_entries(self) -> int:
        """About how many entries there are."""


class CustomStateStore(CustomStore):
    """A store with methods of its own: processors get this very object from ``get_state_store``.

    Of a global store only the processor that fills it does. What others get has its methods, too, but refuses (with
    UnsupportedOperationError) to change it: methods called ``put``, ``delete`` and the like, those of this class that
    are for the library, and any that calls ``log_change``.

    What changes it calls ``self.context.log_change``; :meth:`restore` is given the same records when the task moves, as
    far as compaction left them. So the latest record of each key has to be enough.
    """

    is_open: bool = False
    """True from the end of :meth:`open` until the task lets go of it. Set by the library."""

    @property
    def name(self) -> str:
        """Name of the store."""
        return self.context.name

    @property
    def persistent(self) -> bool:
        """Whether it says how far its files are (:meth:`committed_offset`)."""
        return type(self).committed_offset is not CustomStore.committed_offset

    @abstractmethod
    def restore(self, records: Iterable[ChangelogRecord]) -> None:
        """Apply records of the changelog, in order. ``context.record`` is not theirs, and nothing is logged."""

    def flush(self) -> None:
        """Before each commit: log what is still to be logged. Nothing, unless overridden."""

    def query(self, query: Any) -> Any:
        """Answer a query of your own class (``KafkaStreams.query``), on any thread. ``NotImplemented``, which the
        inherited method returns, stands for a query that is not understood."""
        return NotImplemented


KeyValueBytesStoreSupplier: TypeAlias = Callable[[], KeyValueBytesStore]
"""Called once per task and opening; gives a new store each time. A class without arguments will do."""

StateStoreSupplier: TypeAlias = Callable[[], CustomStateStore]
"""The same, for stores with methods of their own."""


@checked_function
def custom_store(
    name: str, supplier: StateStoreSupplier, *, logging: bool = True, logging_config: Mapping[str, str] | None = None
) -> StoreBuilder:
    """Declare a :class:`CustomStateStore`; what ``supplier`` makes is opened, restored, committed and closed with its
    task. ``logging``: keep a changelog topic, compacted unless ``logging_config`` says otherwise."""
    config = dict(logging_config or {})
    return StoreBuilder(name, StoreKind.CUSTOM, None, None, False, logging, False, config, supplier=supplier)
