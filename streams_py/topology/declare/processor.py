"""The Processor API: write your own node, with state and timers.

One processor object serves one task, that is one partition number; its methods run on one thread at a time. The
names are those of Kafka Streams' ``processor.api`` package (KIP-478, fixed keys: KIP-820).
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
    """A record on its way through the topology. Immutable: ``with_...`` give a changed copy.

    ``timestamp`` is in ms since the epoch and not negative. ``headers`` are (name, value) pairs in order; names may
    repeat.
    """

    key: K_co
    value: V_co
    timestamp: int
    headers: Headers = ()

    def with_key(self, key: K2) -> Record[K2, V_co]:
        """The same record with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K_co, V2]:
        """The same record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K_co, V_co]:
        """The same record at another time (ms)."""
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record[K_co, V_co]:
        """The same record with these headers instead of its own."""
        return Record(self.key, self.value, self.timestamp, headers)

    def add_header(self, name: str, value: bytes | None) -> Record[K_co, V_co]:
        """The same record with one more header at the end."""
        return Record(self.key, self.value, self.timestamp, (*self.headers, (name, value)))


class FixedKeyRecord(Generic[K_co, V_co]):
    """A record whose key cannot be changed. Made by the library only; derive new ones with ``with_...``."""

    __slots__ = ("_headers", "_key", "_timestamp", "_value")

    def __init__(self, key: K_co, value: V_co, timestamp: int, headers: Headers) -> None:
        self._key = key
        self._value = value
        self._timestamp = timestamp
        self._headers = headers

    @property
    def key(self) -> K_co:
        """The key it came with."""
        return self._key

    @property
    def value(self) -> V_co:
        """The record's value, as its serde or the function above made it."""
        return self._value

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch."""
        return self._timestamp

    @property
    def headers(self) -> Headers:
        """(name, value) pairs in order."""
        return self._headers

    def with_value(self, value: V2) -> FixedKeyRecord[K_co, V2]:
        """The same record with another value."""
        return FixedKeyRecord(self._key, value, self._timestamp, self._headers)

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord[K_co, V_co]:
        """The same record at another time (ms)."""
        return FixedKeyRecord(self._key, self._value, timestamp, self._headers)

    def with_headers(self, headers: Headers) -> FixedKeyRecord[K_co, V_co]:
        """The same record with these headers instead of its own."""
        return FixedKeyRecord(self._key, self._value, self._timestamp, headers)

    def __repr__(self) -> str:
        return f"FixedKeyRecord(key={self._key!r}, value={self._value!r}, timestamp={self._timestamp})"


class RecordMetadata(NamedTuple):
    """Where the record in process was read."""

    topic: str
    partition: int
    offset: int


class ProcessingContext(Protocol):
    """What a processor can ask and do, whatever it forwards."""

    @property
    def task_id(self) -> TaskId:
        """The task this processor belongs to."""

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
        """For figures of your own, which stand beside the library's."""

    def get_state_store(self, name: str) -> Any:
        """A store this processor is connected to; an error for any other store."""

    def schedule(
        self, interval_ms: int, clock: Punctuation, callback: Callable[[int], None], *, start_ms: int | None = None
    ) -> Cancellable:
        """Call ``callback(time_ms)`` every ``interval_ms`` of stream time or of wall-clock time.

        Stream time first fires with the next record, wall-clock time after one interval; missed firings are not
        repeated. With ``start_ms`` it is due at that time and every ``interval_ms`` after, on either clock: on the full
        hour, for example (KIP-1146). ``cancel`` of the result ends it.
        """

    def commit(self) -> None:
        """Ask for a commit soon; it does not happen within this call."""

    def current_stream_time_ms(self) -> int:
        """Largest timestamp the task has seen, -1 before the first record."""

    def current_system_time_ms(self) -> int:
        """The wall clock, in ms, as the task read it before the current records or the current punctuation."""


class ProcessorContext(ProcessingContext, Protocol[KOut_contra, VOut_contra]):
    """The context of a :class:`Processor`."""

    def forward(self, record: Record[KOut_contra, VOut_contra], *, child: str | None = None) -> None:
        """Send a record to all children in the order they were added, or to the one named.

        Everything below has seen the record when this returns. An unknown child and a negative timestamp are errors.
        """


class FixedKeyProcessorContext(ProcessingContext, Protocol[KOut_contra, VOut_contra]):
    """The context of a :class:`FixedKeyProcessor`."""

    def forward(self, record: FixedKeyRecord[KOut_contra, VOut_contra], *, child: str | None = None) -> None:
        """As in :class:`ProcessorContext`, for records that keep their key."""


class Processor(ABC, Generic[KIn, VIn, KOut, VOut]):
    """User code of a node. Override ``process``, and ``init``/``close`` where needed."""

    context: ProcessorContext[KOut, VOut]

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Called once, with the task's stores restored; get stores and schedule punctuators here.

        The inherited method keeps the context as ``self.context``.
        """
        self.context = context

    @abstractmethod
    def process(self, record: Record[KIn, VIn]) -> None:
        """Handle one record; ``self.context.forward`` sends results on."""

    def close(self) -> None:
        """Called once when the task ends here, after its last commit. Stores close by themselves. Let go of what is
        yours, and write nothing: it may be lost, or arrive after the next owner has read the task's state."""


class ValueTransformerContext(ProcessingContext, Protocol):
    """The context of a :class:`ValueTransformer`."""

    @property
    def record(self) -> RecordContext:
        """Topic, partition, offset, timestamp and headers of the record in process; one object for all of them."""


class ValueTransformer(ABC, Generic[KIn, VIn, VOut]):
    """Gives the rows of a table new values (``KTable.transform_values``); one object per task."""

    def init(self, context: ValueTransformerContext) -> None:  # nothing to do is a fine default
        """Called once before the first row."""

    @abstractmethod
    def transform(self, key: KIn, value: VIn | None) -> VOut | None:
        """The new value of a row; None deletes it. Called with None when the row is deleted."""

    def close(self) -> None:
        """As :meth:`Processor.close`."""


class FixedKeyProcessor(ABC, Generic[KIn, VIn, VOut]):
    """As :class:`Processor`, for code that never changes the key: no repartition is needed after it."""

    context: FixedKeyProcessorContext[KIn, VOut]

    def init(self, context: FixedKeyProcessorContext[KIn, VOut]) -> None:
        """Called once, with the task's stores restored. The inherited method keeps the context as ``self.context``."""
        self.context = context

    @abstractmethod
    def process(self, record: FixedKeyRecord[KIn, VIn]) -> None:
        """Handle one record; ``self.context.forward`` sends results on."""

    def close(self) -> None:
        """Called once when the task ends here, after its last commit. Stores close by themselves. Let go of what is
        yours, and write nothing: it may be lost, or arrive after the next owner has read the task's state."""


@runtime_checkable
class ConnectedStoreProvider(Protocol):
    """A supplier that brings its own stores: they are added and connected with the processor (KIP-401)."""

    def stores(self) -> Iterable[StoreBuilder]:
        """The store declarations; the same objects each time."""


ProcessorSupplier = Callable[[], Processor[KIn, VIn, KOut, VOut]]
"""Called once per task; gives a new processor each time. A processor class without arguments will do."""

FixedKeyProcessorSupplier = Callable[[], FixedKeyProcessor[KIn, VIn, VOut]]
"""Called once per task; gives a new fixed-key processor each time."""

RecordFunction = Callable[[Record[KIn, VIn], ProcessorContext[Any, Any]], Iterable[Record[KOut, VOut]] | None]
"""A function ``f(record, context)`` that yields (or returns) the records to send on; it keeps nothing between records
but what is in its stores."""

FixedKeyRecordFunction = Callable[
    [FixedKeyRecord[KIn, VIn], FixedKeyProcessorContext[Any, Any]], Iterable[FixedKeyRecord[KIn, VOut]] | None
]
"""The same, for records that keep their key."""
