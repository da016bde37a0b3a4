"""The Processor API: custom nodes with state and timers.

A processor object serves one task, that is one partition number. Its methods run on one thread at a time. The names are
those of Kafka Streams' package ``processor.api`` (KIP-478, fixed keys: KIP-820).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from streams_protocol.types import TaskId
from streams_py.ports import Headers
from streams_py.serdes import Serde
from streams_py.topology.declare.nodes import Cancellable, Punctuation, RecordContext
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.metrics.processor_metrics import ProcessorMetrics

__all__ = [
    "ConnectedStoreProvider",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyProcessorSupplier",
    "FixedKeyRecord",
    "FixedKeyRecordFunction",
    "ProcessingContext",
    "Processor",
    "ProcessorContext",
    "ProcessorSupplier",
    "Record",
    "RecordFunction",
    "RecordMetadata",
    "ValueTransformer",
    "ValueTransformerContext",
]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
KIn = TypeVar("KIn")
VIn = TypeVar("VIn")
KOut = TypeVar("KOut")
VOut = TypeVar("VOut")
KOut_contra = TypeVar("KOut_contra", contravariant=True)
VOut_contra = TypeVar("VOut_contra", contravariant=True)


class Record(NamedTuple, Generic[K_co, V_co]):
    """A record inside the topology. Immutable: the ``with_...`` methods return a changed copy.

    ``timestamp`` is in ms since the epoch and not negative. ``headers`` are (name, value) pairs in order; names may
    repeat.
    """

    key: K_co
    """The key."""
    value: V_co
    """The value."""
    timestamp: int
    """The timestamp, in ms since the epoch."""
    headers: Headers = ()
    """The headers: (name, value) pairs in order."""

    def with_key(self, key: K2) -> Record[K2, V_co]:
        """Return the record with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K_co, V2]:
        """Return the record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K_co, V_co]:
        """Return the record with another timestamp (ms)."""
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record[K_co, V_co]:
        """Return the record with other headers."""
        return Record(self.key, self.value, self.timestamp, headers)

    def add_header(self, name: str, value: bytes | None) -> Record[K_co, V_co]:
        """Return the record with an additional header at the end."""
        return Record(self.key, self.value, self.timestamp, (*self.headers, (name, value)))


class FixedKeyRecord(Generic[K_co, V_co]):
    """A record whose key cannot be changed.

    Only the library creates such records; derive new ones with the ``with_...`` methods.
    """

    __slots__ = ("_headers", "_key", "_timestamp", "_value")

    def __init__(self, key: K_co, value: V_co, timestamp: int, headers: Headers) -> None:
        self._key = key
        self._value = value
        self._timestamp = timestamp
        self._headers = headers

    @property
    def key(self) -> K_co:
        """The record's key, which never changes."""
        return self._key

    @property
    def value(self) -> V_co:
        """The record's value, from its serde or the previous operation."""
        return self._value

    @property
    def timestamp(self) -> int:
        """Timestamp in ms since the epoch."""
        return self._timestamp

    @property
    def headers(self) -> Headers:
        """(name, value) pairs in order."""
        return self._headers

    def with_value(self, value: V2) -> FixedKeyRecord[K_co, V2]:
        """Return the record with another value."""
        return FixedKeyRecord(self._key, value, self._timestamp, self._headers)

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord[K_co, V_co]:
        """Return the record with another timestamp (ms)."""
        return FixedKeyRecord(self._key, self._value, timestamp, self._headers)

    def with_headers(self, headers: Headers) -> FixedKeyRecord[K_co, V_co]:
        """Return the record with other headers."""
        return FixedKeyRecord(self._key, self._value, self._timestamp, headers)

    def __repr__(self) -> str:
        return f"FixedKeyRecord(key={self._key!r}, value={self._value!r}, timestamp={self._timestamp})"


class RecordMetadata(NamedTuple):
    """The origin of the current record."""

    topic: str
    """Topic of the record."""
    partition: int
    """Partition of the record."""
    offset: int
    """Offset of the record."""


class ProcessingContext(Protocol):
    """The environment of a processor, apart from forwarding."""

    @property
    def task_id(self) -> TaskId:
        """The task of this processor."""

    @property
    def application_id(self) -> str:
        """``application.id``."""

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the input record; None in a punctuator."""

    @property
    def app_configs(self) -> Mapping[str, Any]:
        """The application's configuration."""

    @property
    def state_dir(self) -> str:
        """Directory of the task."""

    @property
    def key_serde(self) -> Serde[Any] | None:
        """``default.key.serde``, or None."""

    @property
    def value_serde(self) -> Serde[Any] | None:
        """``default.value.serde``, or None."""

    @property
    def metrics(self) -> ProcessorMetrics:
        """Sensors for the processor's own metrics, which are exported with the library's."""

    def get_state_store(self, name: str) -> Any:
        """Return a connected store. Raises an error for any other store."""

    def schedule(
        self, interval_ms: int, clock: Punctuation, callback: Callable[[int], None], *, start_ms: int | None = None
    ) -> Cancellable:
        """Call ``callback(time_ms)`` every ``interval_ms`` of stream time or of wall-clock time.

        With stream time the first call is due with the next record, with wall-clock time after one interval. Missed
        calls are not repeated. With ``start_ms`` the first call is due at that time, on either clock, for example at
        the full hour (KIP-1146). ``cancel`` of the result stops the calls.
        """

    def commit(self) -> None:
        """Request a commit soon; it does not happen within this call."""

    def current_stream_time_ms(self) -> int:
        """Return the largest timestamp that the task has seen; -1 before the first record."""

    def current_system_time_ms(self) -> int:
        """Return the wall-clock time, in ms, read before the current records or punctuation."""


class ProcessorContext(ProcessingContext, Protocol[KOut_contra, VOut_contra]):
    """The context of a :class:`Processor`."""

    def forward(self, record: Record[KOut_contra, VOut_contra], *, child: str | None = None) -> None:
        """Send a record to all children in the order they were added, or to the named child.

        All descendants have processed the record when this returns. An unknown child or a negative timestamp raises an
        error.
        """


class FixedKeyProcessorContext(ProcessingContext, Protocol[KOut_contra, VOut_contra]):
    """The context of a :class:`FixedKeyProcessor`."""

    def forward(self, record: FixedKeyRecord[KOut_contra, VOut_contra], *, child: str | None = None) -> None:
        """Send a record that keeps its key, as in :class:`ProcessorContext`."""


class Processor(ABC, Generic[KIn, VIn, KOut, VOut]):
    """User code of a node. Override ``process``, and ``init`` and ``close`` if needed."""

    context: ProcessorContext[KOut, VOut]
    """The processor's context. Set by ``init``."""

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Called once, after the task's stores are restored; get stores and schedule punctuators here.

        The default implementation stores the context in ``self.context``.
        """
        self.context = context

    @abstractmethod
    def process(self, record: Record[KIn, VIn]) -> None:
        """Process one record; ``self.context.forward`` sends results."""

    def close(self) -> None:
        """Called once when the task leaves this thread, after its last commit.

        Stores are closed automatically. Release your own resources, and do not write anything: it may be lost, or
        arrive after the next owner has read the task's state.
        """


class ValueTransformerContext(ProcessingContext, Protocol):
    """The context of a :class:`ValueTransformer`."""

    @property
    def record(self) -> RecordContext:
        """Topic, partition, offset, timestamp and headers of the current record; always the same object."""


class ValueTransformer(ABC, Generic[KIn, VIn, VOut]):
    """Replaces the values of a table's rows (``KTable.transform_values``); one object per task."""

    def init(self, context: ValueTransformerContext) -> None:  # doing nothing is a valid default
        """Called once before the first row."""

    @abstractmethod
    def transform(self, key: KIn, value: VIn | None) -> VOut | None:
        """Return the new value of a row; None deletes the row.

        ``value`` is None if the row is deleted.
        """

    def close(self) -> None:
        """Called once when the task leaves this thread, as :meth:`Processor.close`."""


class FixedKeyProcessor(ABC, Generic[KIn, VIn, VOut]):
    """A processor that never changes the key, so it needs no repartition after it."""

    context: FixedKeyProcessorContext[KIn, VOut]
    """The processor's context. Set by ``init``."""

    def init(self, context: FixedKeyProcessorContext[KIn, VOut]) -> None:
        """Called once, after the task's stores are restored.

        The default implementation stores the context in ``self.context``.
        """
        self.context = context

    @abstractmethod
    def process(self, record: FixedKeyRecord[KIn, VIn]) -> None:
        """Process one record; ``self.context.forward`` sends results."""

    def close(self) -> None:
        """Called once when the task leaves this thread, after its last commit.

        Stores are closed automatically. Release your own resources, and do not write anything: it may be lost, or
        arrive after the next owner has read the task's state.
        """


@runtime_checkable
class ConnectedStoreProvider(Protocol):
    """A supplier with its own stores, which are added and connected with the processor (KIP-401)."""

    def stores(self) -> Iterable[StoreBuilder]:
        """Return the store declarations, always the same objects."""


ProcessorSupplier = Callable[[], Processor[KIn, VIn, KOut, VOut]]
"""Returns a new processor; called once per task.

A processor class whose constructor needs no arguments is a supplier.
"""

FixedKeyProcessorSupplier = Callable[[], FixedKeyProcessor[KIn, VIn, VOut]]
"""Returns a new fixed-key processor; called once per task."""

RecordFunction = Callable[[Record[KIn, VIn], ProcessorContext[Any, Any]], Iterable[Record[KOut, VOut]] | None]
"""A function ``f(record, context)`` that yields (or returns) the records to forward.

It must not keep state between records except in its stores.
"""

FixedKeyRecordFunction = Callable[
    [FixedKeyRecord[KIn, VIn], FixedKeyProcessorContext[Any, Any]], Iterable[FixedKeyRecord[KIn, VOut]] | None
]
"""Same as ``RecordFunction``, for records that keep their key."""
