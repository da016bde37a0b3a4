"""A small fake task: runs a topology on Python objects, without serdes, clients or disks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streams_protocol.types import TaskId
from streams_py import serdes
from streams_py.ports import Headers
from streams_py.serdes import SerdeDefaults
from streams_py.state.stores.codec import StoreCodec
from streams_py.topology.declare.nodes import (
    InPlaceChecks,
    Process,
    ProcessorNode,
    Punctuation,
    RecordContext,
    SinkNode,
)
from streams_py.topology.declare.stores import StoreBuilder, StoreKind
from streams_py.topology.topology import Topology


class FakeStore:
    """A dict. ``log`` has the changelog records: key, value, timestamp."""

    def __init__(self, builder: StoreBuilder, record: RecordContext, *, is_cached: bool = False) -> None:
        self.name = builder.name
        self.is_cached = is_cached
        self.codec: StoreCodec[Any, Any] = StoreCodec(builder.name, serdes.STRING, builder.value_serde or serdes.STRING)
        self.rows: dict[Any, Any] = {}
        self.log: list[tuple[Any, Any, int]] = []
        self.listener: Callable[[Any, Any, Any, int], None] | None = None
        self.sends_old_values = False
        self._record = record
        self._is_timestamped = builder.kind is StoreKind.TIMESTAMPED_KEY_VALUE

    def get(self, key: Any) -> Any:
        return self.rows.get(key)

    def put(self, key: Any, value: Any) -> None:
        timestamp_ms = value[1] if self._is_timestamped and value is not None else self._record.timestamp
        self._put(key, value, timestamp_ms, value[0] if self._is_timestamped and value is not None else value)

    def put_value(self, key: Any, value: Any, timestamp_ms: int) -> None:
        self._put(key, None if value is None else (value, timestamp_ms), timestamp_ms, value)

    def updater(
        self, initializer: Callable[[], Any] | None, aggregator: Callable[[Any, Any, Any], Any]
    ) -> Callable[[Any, Any, int], tuple[Any, Any, int]]:
        def update(key: Any, value: Any, timestamp_ms: int) -> tuple[Any, Any, int]:
            stored = self.rows.get(key)
            result_ms = timestamp_ms if stored is None else max(timestamp_ms, stored[1])
            if stored is None and initializer is None:
                old, new = None, value
            else:
                old = stored[0] if stored is not None else initializer() if initializer is not None else None
                new = aggregator(key, value, old)
            self.put_value(key, new, timestamp_ms if new is None else result_ms)
            return new, old, result_ms

        return update

    def delete(self, key: Any) -> Any:
        old = self.rows.get(key)
        self._put(key, None, self._record.timestamp, None)
        return old

    def all(self) -> Iterator[tuple[Any, Any]]:
        return iter(sorted(self.rows.items()))

    def set_flush_listener(self, listener: Callable[[Any, Any, Any, int], None], *, send_old_values: bool) -> None:
        self.listener = listener
        self.sends_old_values = send_old_values

    def _put(self, key: Any, row: Any, timestamp_ms: int, logged: Any) -> None:
        self.log.append((key, logged, timestamp_ms))
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row


@dataclass
class FakeNode:
    """The NodeContext of one node."""

    name: str
    record: RecordContext
    children: Mapping[str, Process]
    task: FakeTask
    store_names: tuple[str, ...] = ()
    task_id: TaskId = field(default_factory=lambda: TaskId(0, 0))
    application_id: str = "app"
    state_dir: str = "/state"
    app_configs: Mapping[str, Any] = field(default_factory=dict)
    upgrade_from: str | None = None
    emit_interval_ms: int = 0
    reference_behaviour: bool = False
    serde_defaults: SerdeDefaults = SerdeDefaults()  # noqa: RUF009  # a tuple of nothing
    processor_metadata: dict[str, int] = field(default_factory=dict)
    in_place_checks: InPlaceChecks | None = None

    def forward(self, key: Any, value: Any, timestamp_ms: int) -> None:
        for child in self.children.values():
            child(key, value, timestamp_ms)

    def store(self, name: str) -> Any:
        if name not in self.store_names:
            raise LookupError(f"{self.name} is not connected to {name}")
        return self.task.stores[name]

    def failed(self, error: Exception, key: Any, value: Any, timestamp_ms: int) -> None:
        self.task.failures.append((self.name, error, key, value, timestamp_ms))
        if self.task.fails:
            raise error

    def dropped(self, reason: str) -> None:
        self.task.dropped.append((self.name, reason))

    def schedule(
        self, interval_ms: int, clock: Punctuation, callback: Callable[[int], None], start_ms: int | None
    ) -> Any:
        self.task.schedules.append((interval_ms, clock, callback))
        return self

    def cancel(self) -> None:
        self.task.schedules.clear()

    def request_commit(self) -> None:
        self.task.commit_requests += 1

    def on_init(self, callback: Callable[[], None]) -> None:
        self.task.on_init.append(callback)

    def on_close(self, callback: Callable[[], None]) -> None:
        self.task.on_close.append(callback)

    def remembers(self, store: str, read: Callable[[], int], write: Callable[[int], None]) -> None:
        pass

    def now_ms(self) -> int:
        return 77


class FakeTask:
    """Runs all sub-topologies of a topology as one task. Records of internal topics are fed back immediately.

    ``outputs``: topic -> records (key, value, timestamp, headers), including internal topics.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        cached: Iterable[str] = (),
        fails: bool = False,
        app_configs: Mapping[str, Any] | None = None,
        upgrade_from: str | None = None,
    ) -> None:
        self.record = RecordContext()
        self.record.system_time_ms = 77
        self.outputs: dict[str, list[tuple[Any, Any, int, Headers]]] = {}
        self.failures: list[tuple[str, Exception, Any, Any, int]] = []
        self.dropped: list[tuple[str, str]] = []
        self.schedules: list[tuple[int, Punctuation, Callable[[int], None]]] = []
        self.commit_requests = 0
        self.on_init: list[Callable[[], None]] = []
        self.on_close: list[Callable[[], None]] = []
        self.fails = fails
        names = set(cached)
        self.stores = {
            name: FakeStore(builder, self.record, is_cached=name in names) for name, builder in topology.stores.items()
        }
        self._configs = app_configs or {}
        self._upgrade_from = upgrade_from
        self._entry: dict[str, Process] = {}
        for sub in topology.subtopologies():
            functions: dict[str, Process] = {}
            for node in reversed(sub.nodes):
                children = {name: functions[name] for name in sub.children_of(node.name)}
                functions[node.name] = self._bind(node, children)
            for source in sub.sources:
                self._entry.update(dict.fromkeys(source.topics, functions[source.name]))
        for callback in self.on_init:
            callback()

    def feed(self, topic: str, key: Any, value: Any, timestamp_ms: int = 0, headers: Headers = ()) -> None:
        """Process one input record completely."""
        self.record.topic, self.record.partition, self.record.offset = topic, 0, self.record.offset + 1
        self.record.timestamp, self.record.headers = timestamp_ms, headers
        self.record.stream_time_ms = max(self.record.stream_time_ms, timestamp_ms)
        self._entry[topic](key, value, timestamp_ms)

    def out(self, topic: str = "out") -> list[tuple[Any, Any, int]]:
        """Return key, value and timestamp of the records written to a topic."""
        return [record[:3] for record in self.outputs.get(topic, [])]

    def _bind(self, node: Any, children: Mapping[str, Process]) -> Process:
        if isinstance(node, SinkNode):
            return self._sink(node)
        bound = FakeNode(
            node.name, self.record, children, self, app_configs=self._configs, upgrade_from=self._upgrade_from
        )
        if not isinstance(node, ProcessorNode):
            return bound.forward
        bound.store_names = node.stores
        return node.operator.bind(bound)

    def _sink(self, node: SinkNode) -> Process:
        def write(key: Any, value: Any, timestamp_ms: int) -> None:
            topic = node.topic if node.chooser is None else node.chooser(key, value, self.record)
            assert topic is not None
            self.outputs.setdefault(topic, []).append((key, value, timestamp_ms, self.record.headers))
            if node.is_internal:
                saved = self.record.timestamp
                self._entry[topic](key, value, timestamp_ms)
                self.record.timestamp = saved

        return write
