"""The operator of a user's processor, which converts between plain calls and records."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

from streams_protocol.types import TaskId
from streams_py.errors import ProcessingError, TopologyError
from streams_py.serdes import Serde
from streams_py.topology.declare.nodes import Cancellable, NodeContext, Process, Punctuation
from streams_py.topology.declare.processor import (
    ConnectedStoreProvider,
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    Record,
    RecordMetadata,
)
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.metrics.processor_metrics import ProcessorMetrics

RecordGenerator: TypeAlias = Callable[[Any, Any], Iterable[Any] | None]
AnyProcessor = Processor[Any, Any, Any, Any] | FixedKeyProcessor[Any, Any, Any]
AnyRecord = Record[Any, Any] | FixedKeyRecord[Any, Any]


class ProcessorOperator:
    """Runs one processor per task. Raises TopologyError for a supplier that cannot serve several tasks."""

    def __init__(self, processor: Callable[[], AnyProcessor] | RecordGenerator, *, fixed_key: bool = False) -> None:
        wanted: type[AnyProcessor] = FixedKeyProcessor if fixed_key else Processor
        if not callable(processor):
            raise TopologyError(f"{processor!r} cannot be called; use a {wanted.__name__} class or a function")
        supplier = _supplier_of(processor, fixed_key=fixed_key)
        first, second = supplier(), supplier()
        if not isinstance(first, wanted):
            raise TopologyError(f"the supplier must return a {wanted.__name__}; it returned {first!r}")
        if first is second:
            raise TopologyError(
                f"the supplier returned the same {type(first).__name__} twice; it must return a new one for each task, "
                "because tasks must not share state"
            )
        self._supplier = supplier
        self.replayable = bool(getattr(processor, "batch_safe", False))
        """Whether its author declares that it needs no punctuators, no clock and no other services."""
        self._record_class: Callable[[Any, Any, int, Any], AnyRecord] = FixedKeyRecord if fixed_key else Record

    def bind(self, node: NodeContext) -> Process:
        """Return the function of a new processor, which is initialised when all nodes are bound."""
        processor = self._supplier()
        initialise: Callable[[Any], None] = processor.init
        context_of = BoundFixedKeyContext if self._record_class is FixedKeyRecord else BoundContext
        node.on_init(lambda: initialise(context_of(node)))
        node.on_close(processor.close)
        handle: Callable[[Any], None] = processor.process
        make_record, context, failed = self._record_class, node.record, node.failed

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            context.timestamp = timestamp_ms  # the processor's stores log with this timestamp
            try:
                handle(make_record(key, value, timestamp_ms, tuple(context.headers)))
            except Exception as error:
                failed(error, key, value, timestamp_ms)

        return process


def _supplier_of(processor: Callable[..., Any], *, fixed_key: bool) -> Callable[[], AnyProcessor]:
    """Return the supplier itself, or one that runs a function for each record."""
    if _takes_records(processor):
        return partial(_FixedKeyFunctionProcessor if fixed_key else _FunctionProcessor, processor)
    try:
        inspect.signature(processor).bind()
    except TypeError:
        title = getattr(processor, "__name__", type(processor).__name__)
        raise TopologyError(
            f"{title} is neither a supplier of processors, which is called without arguments, nor a function of "
            "(record, context)"
        ) from None
    except ValueError:  # written in C, without a signature
        pass
    return processor


def _takes_records(processor: Callable[..., Any]) -> bool:
    """Whether it is a function of a record and a context; a supplier is called without arguments."""
    if inspect.isclass(processor):
        return False
    try:
        signature = inspect.signature(processor)
        signature.bind(None, None)
    except (TypeError, ValueError):  # another number of arguments, or written in C
        return False
    required = [each for each in signature.parameters.values() if each.default is each.empty]
    return any(each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in required)


class _FunctionProcessor(Processor[Any, Any, Any, Any]):
    """Forwards the records that a function yields or returns."""

    def __init__(self, generate: RecordGenerator) -> None:
        self._generate = generate

    def process(self, record: Record[Any, Any]) -> None:
        context = self.context
        for made in self._generate(record, context) or ():
            context.forward(made)


class _FixedKeyFunctionProcessor(FixedKeyProcessor[Any, Any, Any]):
    """Same as _FunctionProcessor, for records that keep their key."""

    def __init__(self, generate: RecordGenerator) -> None:
        self._generate = generate

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        context = self.context
        for made in self._generate(record, context) or ():
            context.forward(made)


def stores_of_supplier(supplier: object) -> tuple[StoreBuilder, ...]:
    """Return the stores of a supplier (``stores()``); empty for a plain function or class."""
    if inspect.isclass(supplier):
        # A class is called to create processors. A ``stores`` *method* of its instances has nothing to do with us.
        found = inspect.getattr_static(supplier, "stores", None)
        if not isinstance(found, staticmethod | classmethod):
            return ()
    return tuple(_declared(supplier)) if isinstance(supplier, ConnectedStoreProvider) else ()


def _declared(provider: ConnectedStoreProvider) -> Iterable[StoreBuilder]:
    return provider.stores() or ()


class BoundContext:
    """ProcessorContext and FixedKeyProcessorContext of one node in one task."""

    __slots__ = ("_children", "_forward", "_node", "_record")

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._record = node.record
        self._forward = node.forward
        self._children: Mapping[str, Process] = node.children

    def forward(self, record: AnyRecord, *, child: str | None = None) -> None:
        """Send to all children or to one of them.

        During the call the record context describes the forwarded record.
        """
        timestamp: object = record.timestamp
        if not isinstance(timestamp, int) or timestamp < 0:
            raise ProcessingError(
                f"node {self._node.name!r} forwards a record with timestamp {timestamp!r}; "
                "a timestamp must be a non-negative int, in ms since the epoch"
            )
        target = self._forward if child is None else self._child(child)
        context = self._record
        headers, timestamp_ms = context.headers, context.timestamp
        context.headers = tuple(record.headers)
        context.timestamp = record.timestamp
        try:
            target(record.key, record.value, record.timestamp)
        finally:
            context.headers = headers
            context.timestamp = timestamp_ms

    def _child(self, name: str) -> Process:
        try:
            return self._children[name]
        except KeyError:
            known = ", ".join(self._children) or "none"
            raise ProcessingError(f"node {self._node.name!r} has no child {name!r}; its children: {known}") from None

    @property
    def task_id(self) -> TaskId:
        return self._node.task_id

    @property
    def application_id(self) -> str:
        return self._node.application_id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        record = self._record
        return None if record.topic is None else RecordMetadata(record.topic, record.partition, record.offset)

    @property
    def app_configs(self) -> Mapping[str, Any]:
        return self._node.app_configs

    @property
    def state_dir(self) -> str:
        return self._node.state_dir

    @property
    def metrics(self) -> ProcessorMetrics:
        return self._node.metrics

    @property
    def key_serde(self) -> Serde[Any] | None:
        return self._node.serde_defaults.key

    @property
    def value_serde(self) -> Serde[Any] | None:
        return self._node.serde_defaults.value

    def get_state_store(self, name: str) -> Any:
        return self._node.store(name)

    def schedule(
        self, interval_ms: int, clock: Punctuation, callback: Callable[[int], None], *, start_ms: int | None = None
    ) -> Cancellable:
        return self._node.schedule(interval_ms, clock, callback, start_ms)

    def commit(self) -> None:
        self._node.request_commit()

    def current_stream_time_ms(self) -> int:
        return self._record.stream_time_ms

    def current_system_time_ms(self) -> int:
        return self._record.system_time_ms


class BoundFixedKeyContext(BoundContext):
    """Rejects records whose key may have changed, because they would not be repartitioned."""

    __slots__ = ()

    def forward(self, record: AnyRecord, *, child: str | None = None) -> None:
        """Forward as in any context, but only records derived from the input record."""
        if not isinstance(record, FixedKeyRecord):
            raise ProcessingError(
                f"node {self._node.name!r} cannot change keys, but forwards a {type(record).__name__}; forward "
                "record.with_value(...) of its input record, or use process() instead of process_values()"
            )
        super().forward(record, child=child)
