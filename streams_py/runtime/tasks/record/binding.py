"""Binds the nodes of a task into one function per source.

Kafka Streams dispatches a record from node to node through a context object. Here every node is bound once, children
before parents, and a node's function holds its children's functions. So a record travels through nested plain calls,
and a chain of stateless nodes is one function (``fusing.py``). Processors are nevertheless initialised and closed
parents first, as in Kafka Streams.

:class:`BoundNode` is the interface for operators: the runtime's ``NodeContext``. It uses the task's
:class:`NodeServices`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from streams_protocol.types import TaskId
from streams_py.errors import BrokerUnavailableError, IllegalStateError, StreamsError, TopologyError
from streams_py.runtime.tasks.record.fusing import Link, fused
from streams_py.runtime.tasks.record.measuring import measured, measured_source
from streams_py.runtime.tasks.record.node_services import NodeServices
from streams_py.runtime.tasks.record.punctuation import Schedule
from streams_py.serdes import SerdeDefaults
from streams_py.topology.declare.nodes import (
    AsyncCalls,
    BatchCalls,
    InPlaceChecks,
    Process,
    ProcessorNode,
    Punctuation,
    SinkNode,
    SourceNode,
)
from streams_py.topology.metrics.averages import Sampled
from streams_py.topology.metrics.node_metrics import NodeMetrics
from streams_py.topology.metrics.processor_metrics import ProcessorMetrics
from streams_py.topology.operators.in_place import forward_unchanged
from streams_py.topology.operators.stateless import Statement

_log = logging.getLogger(__name__)

Node: TypeAlias = SourceNode | ProcessorNode | SinkNode


class BoundNode:
    """One processor node in one task; see ``NodeContext``."""

    __slots__ = (
        "_close",
        "_init",
        "_services",
        "_store_names",
        "children",
        "forward",
        "metrics",
        "name",
        "node_metrics",
        "record",
        "remembered",
    )  # fmt: skip

    def __init__(
        self,
        node: ProcessorNode,
        services: NodeServices,
        children: Mapping[str, Process],
        metrics: ProcessorMetrics,
        node_metrics: NodeMetrics | None,
    ) -> None:
        self.name = node.name
        self.metrics = metrics
        self.node_metrics = node_metrics
        self.record = services.record
        self.children = children
        self.forward = _forward_to(children, services.settings.in_place_checks)
        self._store_names = frozenset(node.stores)
        self._services = services
        self._init: list[Callable[[], None]] = []
        self._close: list[Callable[[], None]] = []
        self.remembered: tuple[str, Callable[[], int], Callable[[int], None]] | None = None

    @property
    def task_id(self) -> TaskId:
        """Id of the task."""
        return self._services.id

    @property
    def application_id(self) -> str:
        """``application.id``."""
        return self._services.settings.application_id

    @property
    def reference_behaviour(self) -> bool:
        """Whether operators behave as Apache Kafka Streams where its results are wrong."""
        return self._services.settings.reference_behaviour

    @property
    def emit_interval_ms(self) -> int:
        """Minimum interval between emissions, in ms."""
        return self._services.settings.emit_interval_ms

    @property
    def in_place_checks(self) -> InPlaceChecks | None:
        """Checks for values that were changed in place; set in tests."""
        return self._services.settings.in_place_checks

    @property
    def processor_metadata(self) -> dict[str, int]:
        """Numbers that are committed with the offsets."""
        return self._services.processor_metadata

    @property
    def app_configs(self) -> Mapping[str, Any]:
        """The user's own settings (``app.*``)."""
        return self._services.settings.app_configs

    @property
    def upgrade_from(self) -> str | None:
        """``upgrade.from``."""
        return self._services.settings.upgrade_from

    @property
    def serde_defaults(self) -> SerdeDefaults:
        """``default.key.serde`` and ``default.value.serde``."""
        return SerdeDefaults(self._services.settings.default_key_serde, self._services.settings.default_value_serde)

    @property
    def state_dir(self) -> str:
        """``state.dir``."""
        return self._services.settings.state_dir

    def now_ms(self) -> int:
        """Return the task's wall-clock time in ms."""
        return self._services.now_ms()

    def store(self, name: str) -> Any:
        """Return a store that is connected to this node, or a global store."""
        if name in self._store_names:
            return self._services.store(name)
        store = self._services.global_store(name)
        if store is None:
            connected = ", ".join(sorted(self._store_names)) or "none"
            raise TopologyError(
                f"processor {self.name} is not connected to a store {name!r} (connected: {connected}); "
                f"name the store where the processor is added",
                task_id=self._services.id,
            )
        return store

    def failed(self, error: Exception, key: Any, value: Any, timestamp_ms: int) -> None:
        """Call the processing exception handler. Returns if the record is to be dropped."""
        self._services.failures.node_failed(self.name, error, key, value, timestamp_ms)

    def dropped(self, reason: str) -> None:
        """Count the current record as dropped."""
        self._services.failures.dropped(self.name, reason)

    def schedule(
        self, interval_ms: int, clock: Punctuation, callback: Callable[[int], None], start_ms: int | None
    ) -> Schedule:
        """Call back periodically from ``start_ms`` on. Errors of the callback go to the processing exception handler.

        With ``start_ms=None`` the first stream-time call is due immediately, the first wall-clock call after one
        interval.
        """
        services, name = self._services, self.name

        def guarded(now_ms: int) -> None:
            try:
                callback(now_ms)
            except Exception as error:
                services.failures.punctuator_failed(name, error)

        queue, is_stream = services.punctuators.queue(clock), clock is Punctuation.STREAM_TIME
        now_ms = self.record.stream_time_ms if is_stream else services.now_ms()
        if start_ms is not None:
            return queue.schedule(start_ms, interval_ms, guarded, after_ms=now_ms)
        return queue.schedule(0 if is_stream else now_ms + interval_ms, interval_ms, guarded)

    def call_async(self, calls: AsyncCalls) -> Process:
        """Return a function that calls a coroutine function for the records of this node."""
        return self._services.calls.one_by_one(calls, self)

    def call_in_batches(self, calls: BatchCalls) -> Process:
        """Return a function that calls a function with lists of the records of this node."""
        return self._services.calls.in_batches(calls, self)

    def request_commit(self) -> None:
        """Request a commit as soon as possible."""
        self._services.request_commit()

    def remembers(self, store: str, read: Callable[[], int], write: Callable[[int], None]) -> None:
        """Register functions that read and set a stream time that belongs to a store."""
        if not self.reference_behaviour:
            self.remembered = store, read, write

    def on_init(self, callback: Callable[[], None]) -> None:
        """Register a function to call once after all nodes are bound, parents before children."""
        self._init.append(callback)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a function to call once when the task is suspended or closed, parents before children."""
        self._close.append(callback)


class Clock(NamedTuple):
    """A stream time of a node, in ms; -1 before the node's first record."""

    read: Callable[[], int]
    write: Callable[[int], None]


class _Chain(NamedTuple):
    """Consecutive nodes that are statements, and the function that follows them."""

    links: tuple[Link, ...]
    tail: Process


@dataclass(frozen=True, slots=True)
class BoundTopology:
    """The nodes of one task, ready to run. ``sources``: the function for the records of each source node."""

    sources: Mapping[str, Process]
    nodes: tuple[BoundNode, ...]
    node_metrics: Mapping[str, NodeMetrics] = field(default_factory=dict)
    """Metrics of each node, if they are measured."""
    lateness: Sampled = field(default_factory=Sampled)
    """How far records are behind the task's stream time, in ms, if that is measured."""
    metrics: ProcessorMetrics = field(default_factory=ProcessorMetrics)
    """Metrics that processors record themselves."""

    def init(self) -> None:
        """Initialise processors, parents first."""
        for node in self.nodes:
            while node._init:
                node._init[0]()
                del node._init[0]

    def close(self) -> Exception | None:
        """Close all processors that were initialised, parents first. Return the first error, if any.

        An unavailable broker only causes a warning. Records written during the close come after the last commit: Kafka
        Streams gives no guarantee for them, and stores drop them.
        """
        first: Exception | None = None
        for node in self.nodes:
            while node._close and not node._init:
                try:
                    node._close.pop(0)()
                except BrokerUnavailableError as error:
                    _log.warning("closing node %s: %s; closing the other nodes", node.name, error)
                except Exception as error:
                    first = first or error
                except SystemExit as error:  # on a stream thread, SystemExit would stop nothing
                    first = first or StreamsError(f"closing node {node.name}: sys.exit({error.code!r}) was called")
        return first

    def clocks(self) -> dict[str, Clock]:
        """Return the stream times of the nodes, by the name of the store that they belong to.

        Additional times of one store, as cogrouped tables have, get a number.
        """
        clocks: dict[str, Clock] = {}
        for node in self.nodes:
            if node.remembered is not None:
                store, read, write = node.remembered
                number = sum(name.partition("#")[0] == store for name in clocks)
                clocks[f"{store}#{number}" if number else store] = Clock(read, write)
        return clocks


def bind_nodes(nodes: Sequence[Node], services: NodeServices) -> BoundTopology:
    """Bind all nodes of a task to its services. ``nodes`` is in the order of addition, so parents come first."""
    services.record.shared.clear()
    services.record.system_time_ms = services.now_ms()
    children: dict[str, list[str]] = {node.name: [] for node in nodes}
    for node in nodes:
        if not isinstance(node, SourceNode):
            for parent in node.parents:
                if parent not in children:
                    raise IllegalStateError(f"node {node.name} has a parent {parent} outside of its sub-topology")
                children[parent].append(node.name)
    functions: dict[str, Process] = {}
    chains: dict[str, _Chain] = {}
    bound: list[BoundNode] = []
    metrics = ProcessorMetrics()
    node_metrics = {node.name: NodeMetrics() for node in nodes} if services.settings.is_measured else {}
    lateness = Sampled()

    def node_below(name: str) -> Process:
        if not node_metrics:
            return functions[name]
        return measured(functions[name], node_metrics[name], services.now_ms, is_last=not children[name])

    for node in reversed(nodes):
        if isinstance(node, SinkNode):
            functions[node.name] = services.bind_sink(node)
            continue
        below = {name: node_below(name) for name in children[node.name]}
        if isinstance(node, SourceNode):
            functions[node.name] = _forward_to(below, services.settings.in_place_checks)
            continue
        context = BoundNode(node, services, below, metrics, node_metrics.get(node.name))
        bound.append(context)
        operator = node.operator
        if not isinstance(operator, Statement):
            functions[node.name] = operator.bind(context)
            continue
        chain = chains.get(next(iter(below))) if len(below) == 1 and not node_metrics else None
        links = ((operator, context.failed), *(() if chain is None else chain.links))
        tail = context.forward if chain is None else chain.tail
        chains[node.name] = _Chain(links, tail)
        functions[node.name] = operator.bind(context) if chain is None else fused(links, tail)
    sources = {node.name: functions[node.name] for node in nodes if isinstance(node, SourceNode)}
    if node_metrics:
        sources = {
            name: measured_source(source, node_metrics[name], services.record, lateness, services.now_ms)
            for name, source in sources.items()
        }
    return BoundTopology(sources, tuple(reversed(bound)), node_metrics, lateness, metrics)


def _forward_to(targets: Mapping[str, Process], checks: InPlaceChecks | None) -> Process:
    """Return one function that calls all targets in order."""
    if checks is not None and len(targets) > 1:
        return forward_unchanged(list(targets.items()), checks)
    children = tuple(targets.values())
    match children:
        case ():
            return _nowhere
        case (only,):
            return only
        case (first, second):

            def forward_to_two(key: Any, value: Any, timestamp_ms: int) -> None:
                first(key, value, timestamp_ms)
                second(key, value, timestamp_ms)

            return forward_to_two

    def forward(key: Any, value: Any, timestamp_ms: int) -> None:
        for child in children:
            child(key, value, timestamp_ms)

    return forward


def _nowhere(key: Any, value: Any, timestamp_ms: int) -> None:
    """A node without children."""
