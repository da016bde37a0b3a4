"""Physical nodes of a topology, and the contract between a node's behaviour and the task that runs it.

A topology is data: an insertion-ordered list of :class:`SourceNode`, :class:`ProcessorNode` and :class:`SinkNode`.
Behaviour comes in when a task is initialised: each processor node's :class:`Operator` is *bound* to the task and
gives back one plain function ``process(key, value, timestamp_ms)``. The function of a node calls the functions of its
children directly, so a record travels through nested plain calls: no record object, no queue, no dispatch between
two nodes. What belongs to the record as a whole (topic, partition, offset, headers) sits in one reusable
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
from streams_py.topology.metrics.node_metrics import NodeFigures
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
    """What flows between table operators: the new and the old value of a key (None: absent)."""

    new: Any
    old: Any

    @property
    def is_latest(self) -> bool:
        """False only for an update of a versioned table that is older than the row."""
        return True


class LateChange(Change):
    """An update of a versioned table that is older than the row: a version of its past (KIP-914)."""

    @property
    def is_latest(self) -> bool:
        return False


class RecordContext:
    """Where the record in process came from. One object per task, overwritten for each record.

    ``timestamp`` is the timestamp of the record *as the current processor received it*: operators set it before
    they touch a store, because plain stores log with it. In punctuators ``topic`` is None, ``partition`` and
    ``offset`` are -1 and ``headers`` is empty. ``headers`` is never mutated in place: a new list replaces it.

    ``system_time_ms`` is the wall clock as the task read it before the current records or the current punctuation.
    ``shared`` holds state that several nodes of the task share, by the object that asks for it; binding empties it.
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
        self.system_time_ms = 0
        self.shared: dict[object, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncCalls:
    """Calls of a coroutine function, one for each record, outside of the task's thread; see ``map_values_async``.

    ``function`` gets key, value and a context of its own. ``pair`` makes of the old key and the answer the new key and
    value, on the task's thread. ``what`` is the function's name and line, for messages. At most ``concurrency`` calls
    of a task run at a time. ``ordered``: answers are sent on in the order of the records, not only in that of each key.
    """

    function: Callable[[Any, Any, RecordContext], Coroutine[Any, Any, Any]]
    pair: Callable[[Any, Any], tuple[Any, Any]]
    what: str
    concurrency: int
    timeout_ms: int
    ordered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCalls:
    """Calls of a function with a list of values (or, ``with_key``, of pairs, or ``with_context``, of triples), outside
    of the task's thread; see ``map_batch``. It gives one answer for each, in their order; ``is_async``: as a coroutine.
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
    """Which clock drives a punctuator."""

    STREAM_TIME = "stream time"
    WALL_CLOCK_TIME = "wall-clock time"


class Cancellable(Protocol):
    """A scheduled punctuator."""

    def cancel(self) -> None: ...


class NodeContext(Protocol):
    """What a task offers to one node while the node is bound, and afterwards."""

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
        """Sends to all children, in insertion order; does nothing when there are none."""

    @property
    def children(self) -> Mapping[str, Process]:
        """Each child's function by node name, in insertion order."""

    def store(self, name: str) -> Any:
        """A connected (or global) store; error when it is not connected."""

    def failed(self, error: Exception, key: Any, value: Any, timestamp_ms: int) -> None:
        """User code of this node raised: asks the processing handler. Returns when the record is to be dropped,
        raises otherwise. Errors that already went through it (of a node below) are raised again as they are."""

    def dropped(self, reason: str) -> None:
        """Count the current record as dropped and warn."""

    def schedule(
        self, interval_ms: int, clock: Punctuation, callback: Callable[[int], None], start_ms: int | None
    ) -> Cancellable: ...

    def call_async(self, calls: AsyncCalls) -> Process:
        """A function that lets a coroutine work on each record, and forwards the answer some time later."""

    def call_in_batches(self, calls: BatchCalls) -> Process:
        """A function that collects records, and forwards the answers some time later."""

    def request_commit(self) -> None: ...

    @property
    def metrics(self) -> ProcessorMetrics:
        """Where processors put figures of their own."""

    @property
    def figures(self) -> NodeFigures | None:
        """Where operators put figures of this node; None when nodes are not measured."""

    def on_init(self, callback: Callable[[], None]) -> None:
        """Called once after all nodes of the task are bound, parents before children."""

    def on_close(self, callback: Callable[[], None]) -> None:
        """Called once when the task is suspended or closed."""

    def remembers(self, store: str, read: Callable[[], int], write: Callable[[int], None]) -> None:
        """Register a stream time, in ms, that belongs to the content of ``store`` but is not stored there.

        The task commits it with the offsets. It calls ``read`` at each commit, and ``write`` with the committed time,
        if there is one, before it initialises the nodes. With ``reference_behaviour`` it is forgotten at a restart, as
        in Kafka Streams.
        """

    @property
    def reference_behaviour(self) -> bool:
        """Whether operators do as Apache Kafka Streams does where it gives wrong results: for conformance runs."""

    @property
    def emit_interval_ms(self) -> int:
        """At least so much wall-clock time lies between two looks for results that have become final."""

    @property
    def in_place_checks(self) -> InPlaceChecks | None:
        """Set where functions are watched for values that they change in place: by the test driver."""

    @property
    def processor_metadata(self) -> dict[str, int]:
        """Numbers by store name that are committed with the offsets and come back with them, from ``on_init`` on."""

    @property
    def app_configs(self) -> Mapping[str, Any]: ...
    @property
    def upgrade_from(self) -> str | None:
        """The release that other members may still have; None: none is so old that it matters."""

    @property
    def serde_defaults(self) -> SerdeDefaults:
        """The configured default serdes."""

    @property
    def state_dir(self) -> str: ...
    def now_ms(self) -> int:
        """Wall clock of the task."""


class InPlaceChecks(Protocol):
    """Asks for checks of values changed in place, and names an operator for their messages."""

    def where(self, node: str) -> str | None:
        """Line of the program that described a node."""


class Operator(Protocol):
    """Behaviour of a processor node. One object per node, shared by all tasks: keeps no per-task state itself."""

    def bind(self, node: NodeContext) -> Process:
        """The node's function in one task. Called after the task's stores are restored."""


TimestampExtractor: TypeAlias = Callable[[Any, Any, int, int], int]
"""extractor(key, value, record_timestamp_ms, partition_time_ms) -> timestamp ms; negative = drop the record;
``partition_time_ms`` is -1 while unknown."""

TopicChooser: TypeAlias = Callable[[Any, Any, RecordContext], str]
"""chooser(key, value, record context) -> topic name."""

Partitioner: TypeAlias = Callable[[str, Any, Any, int], "Sequence[int] | int | None"]
"""partitioner(topic, key, value, partition count): None = default rule, [] = drop, several = one copy to each."""


class ResetPolicy(Enum):
    """Where to start when a partition has no valid committed offset."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class SourceNode:
    """Reads topics. ``topics`` are short names (internal ones undecorated); either topics or a pattern is set.

    A None serde stands for the configured default. ``is_internal`` marks the reading side of a repartition topic,
    ``is_global`` that of a global store: their records keep the timestamps they were sent with, whatever extractor is
    configured.
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
    """Runs an operator. ``stores`` are the names of the stores it is connected to."""

    name: str
    parents: tuple[str, ...]
    operator: Operator
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkNode:
    """Writes to ``topic`` (short name) or to the topic that ``chooser`` names for each record.

    ``is_internal`` marks the writing side of a repartition topic. ``by_inner_key``: all windows of a key go to one
    partition, when the key's serde is known here to be a windowed one; without it the whole key decides.
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
