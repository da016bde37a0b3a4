"""Physical nodes of a topology, and the contract between a node's operator and its task.

A topology is data: a list of :class:`SourceNode`, :class:`ProcessorNode` and :class:`SinkNode` in insertion order.
Behaviour is added when a task is initialised: the :class:`Operator` of each processor node is *bound* to the task and
returns one plain function ``process(key, value, timestamp_ms)``. The function of a node calls the functions of its
children directly. So a record passes through nested plain calls, without a record object, a queue or a dispatch between
two nodes. The facts about the record as a whole (topic, partition, offset, headers) are in one reusable
:class:`RecordContext` per task.

Between table operators the value is a :class:`Change`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias

from streams_protocol.types import TaskId
from streams_py.ports import Headers
from streams_py.serdes import Serde, SerdeDefaults
from streams_py.topology.metrics.node_metrics import NodeMetrics
from streams_py.topology.metrics.processor_metrics import ProcessorMetrics

__all__ = [
    "AsyncCalls",
    "BatchCalls",
    "Change",
    "InPlaceChecks",
    "LateChange",
    "NodeContext",
    "Operator",
    "Partitioner",
    "Process",
    "ProcessorNode",
    "Punctuation",
    "RecordContext",
    "ResetPolicy",
    "SinkNode",
    "SourceNode",
    "TimestampExtractor",
    "TopicChooser",
]

Process: TypeAlias = Callable[[Any, Any, int], None]
"""process(key, value, timestamp_ms) of one node in one task."""


class Change(NamedTuple):
    """The value between table operators: the new and the old value of a key (None: absent)."""

    new: Any
    old: Any

    @property
    def is_latest(self) -> bool:
        """Whether it is the latest version; False only for a late update of a versioned table."""
        return True


class LateChange(Change):
    """An update of a versioned table that is older than the row (KIP-914)."""

    @property
    def is_latest(self) -> bool:
        return False


class RecordContext:
    """The origin of the current record. One object per task, overwritten for each record.

    Attributes:
        timestamp: the timestamp of the record *as the current processor received it*. Operators set it before they use
            a store, because plain stores log with it.
        topic: None in punctuators.
        partition: -1 in punctuators.
        offset: -1 in punctuators.
        headers: empty in punctuators. Never changed in place: a new list replaces it.
        system_time_ms: the wall-clock time that the task read before the current records or punctuation.
        shared: state that several nodes of the task share, by the object that requests it. Binding clears it.
    """

    __slots__ = (
        "headers", "offset", "partition", "shared", "stream_time_ms", "system_time_ms", "timestamp", "topic",
    )  # fmt: skip

    def __init__(self) -> None:
        self.topic: str | None = None
        self.partition = -1
        self.offset = -1
        self.timestamp = -1
        self.headers: Headers = ()
        self.stream_time_ms = -1
        """Stream time of the task, in ms. -1 before the first record."""
        self.system_time_ms = 0
        self.shared: dict[object, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncCalls:
    """Calls of a coroutine function per record, outside of the task's thread (``map_values_async``).

    Attributes:
        function: is called with key, value and a separate context.
        pair: makes the new key and value of the old key and the answer, on the task's thread.
        what: the function's name and line, for messages.
        concurrency: maximum number of concurrent calls of a task.
        ordered: send answers in the order of all records, not only of records with the same key.
    """

    function: Callable[[Any, Any, RecordContext], Coroutine[Any, Any, Any]]
    pair: Callable[[Any, Any], tuple[Any, Any]]
    what: str
    concurrency: int
    timeout_ms: int
    ordered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCalls:
    """Calls of a function with a list of values, outside of the task's thread (``map_batch``).

    With ``with_key`` the list has pairs, with ``with_context`` triples. The function returns one answer for each entry,
    in the same order; with ``is_async`` it is a coroutine function.
    """

    function: Callable[[list[Any]], Any]
    is_async: bool
    with_key: bool
    with_context: bool
    what: str
    max_records: int
    max_ms: int
    timeout_ms: int


class Punctuation(Enum):
    """The clock of a punctuator."""

    STREAM_TIME = "stream time"
    WALL_CLOCK_TIME = "wall-clock time"


class Cancellable(Protocol):
    """A scheduled punctuator."""

    def cancel(self) -> None: ...


class NodeContext(Protocol):
    """The interface of a task for one of its nodes, during binding and afterwards."""

    @property
    def name(self) -> str:
        """Node name."""

    @property
    def task_id(self) -> TaskId: ...
    @property
    def application_id(self) -> str: ...
    @property
    def record(self) -> RecordContext:
        """The task's record context."""

    @property
    def forward(self) -> Process:
        """Sends a record to all children, in insertion order."""

    @property
    def children(self) -> Mapping[str, Process]:
        """Functions of the children by node name, in insertion order."""

    def store(self, name: str) -> Any:
        """Return a connected (or global) store. Raises an error if it is not connected."""

    def failed(self, error: Exception, key: Any, value: Any, timestamp_ms: int) -> None:
        """Call the processing handler, because user code of this node raised ``error``.

        Returns if the record shall be dropped, otherwise raises. Errors that the handler has already seen (from a later
        node) are raised again unchanged.
        """

    def dropped(self, reason: str) -> None:
        """Count the current record as dropped and log a warning."""

    def schedule(
        self, interval_ms: int, clock: Punctuation, callback: Callable[[int], None], start_ms: int | None
    ) -> Cancellable: ...

    def call_async(self, calls: AsyncCalls) -> Process:
        """Return a function that calls a coroutine function for each record and forwards the answer later."""

    def call_in_batches(self, calls: BatchCalls) -> Process:
        """Return a function that collects records and forwards the answers later."""

    def request_commit(self) -> None: ...

    @property
    def metrics(self) -> ProcessorMetrics:
        """The processors' own metrics."""

    @property
    def node_metrics(self) -> NodeMetrics | None:
        """Metrics of this node; None if nodes are not measured."""

    def on_init(self, callback: Callable[[], None]) -> None:
        """Register a callback, called once after all nodes of the task are bound, parents first."""

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a callback, called once when the task is suspended or closed."""

    def remembers(self, store: str, read: Callable[[], int], write: Callable[[int], None]) -> None:
        """Register a stream time, in ms, that belongs to ``store`` but is not stored there.

        The task commits it with the offsets. It calls ``read`` at each commit. Before it initialises the nodes, it
        calls ``write`` with the committed time, if there is one. With ``reference_behaviour`` the time is lost at a
        restart, as in Kafka Streams.
        """

    @property
    def reference_behaviour(self) -> bool:
        """Whether operators behave like Kafka Streams even if results are wrong; for conformance runs."""

    @property
    def emit_interval_ms(self) -> int:
        """Minimum wall-clock interval between two searches for final results, in ms."""

    @property
    def in_place_checks(self) -> InPlaceChecks | None:
        """Set if values are checked for changes in place, as in the test driver."""

    @property
    def processor_metadata(self) -> dict[str, int]:
        """Numbers by store name that are committed and restored with the offsets.

        They are available from ``on_init`` on.
        """

    @property
    def app_configs(self) -> Mapping[str, Any]: ...
    @property
    def upgrade_from(self) -> str | None:
        """The release that other members may still have; None if it makes no difference."""

    @property
    def serde_defaults(self) -> SerdeDefaults:
        """The configured default serdes."""

    @property
    def state_dir(self) -> str: ...
    def now_ms(self) -> int:
        """Return the wall-clock time of the task, in ms."""


class InPlaceChecks(Protocol):
    """Enables checks for values changed in place, and locates operators for their messages."""

    def where(self, node: str) -> str | None:
        """Return the line of the program that described a node."""


class Operator(Protocol):
    """Behaviour of a processor node.

    One object per node is shared by all tasks, so it has no state of a task.
    """

    @property
    def replayable(self) -> bool:
        """Whether a second run over the same records gives the same results and has no other effects.

        False if it reads the clock, waits for answers, calls other services or may be called only once per record.
        Spark repeats tasks, so a history refuses such an operator.
        """

    def bind(self, node: NodeContext) -> Process:
        """Return the node's function in one task. Called after the task's stores are restored."""


TimestampExtractor: TypeAlias = Callable[[Any, Any, int, int], int]
"""extractor(key, value, record_timestamp_ms, partition_time_ms) -> timestamp in ms.

A negative result drops the record. ``partition_time_ms`` is -1 while it is unknown.
"""

TopicChooser: TypeAlias = Callable[[Any, Any, RecordContext], str]
"""chooser(key, value, record context) -> topic name."""

Partitioner: TypeAlias = Callable[[str, Any, Any, int], "Sequence[int] | int | None"]
"""partitioner(topic, key, value, partition count) -> partition.

None: the default rule. An empty list drops the record; a list of several sends one copy to each.
"""


class ResetPolicy(Enum):
    """The start position of a partition without a valid committed offset."""

    EARLIEST = "earliest"
    """Start at the first record that the partition still has."""
    LATEST = "latest"
    """Start at the end of the partition."""


@dataclass(frozen=True, slots=True)
class SourceNode:
    """Reads topics. ``topics`` are short names; either topics or a pattern is set.

    A serde of None stands for the configured default. ``is_internal`` marks the source of a repartition topic,
    ``is_global`` the source of a global store. Their records keep the timestamps with which they were sent, whatever
    extractor is configured.
    """

    name: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None = None
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    timestamp_extractor: TimestampExtractor | None = None
    reset_policy: ResetPolicy | None = None
    is_internal: bool = False
    is_global: bool = False


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """Runs an operator. ``stores`` are the names of its connected stores."""

    name: str
    parents: tuple[str, ...]
    operator: Operator
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkNode:
    """Writes to ``topic`` (short name), or to the topic that ``chooser`` returns for each record.

    ``is_internal`` marks the sink of a repartition topic. ``by_inner_key``: all windows of a key go to one partition,
    if the key's serde is known here and windowed. Otherwise the whole key determines the partition.
    """

    name: str
    parents: tuple[str, ...]
    topic: str | None = None
    chooser: TopicChooser | None = None
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    partitioner: Partitioner | None = None
    is_internal: bool = False
    by_inner_key: bool = False
