"""Tasks with fake stores, consumer and records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from streams_protocol.types import TaskId, TopicPartition
from streams_py import serdes
from streams_py.errors import ProductionError, StateError
from streams_py.ports import BEGINNING, RawRecord
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.asynchronous.event_loop import Background, EventLoop
from streams_py.runtime.tasks.record.collector import ChangelogWriter, RecordCollector
from streams_py.runtime.tasks.record.node_services import SharedServices
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.state.tasks.committed_inputs import CommittedInputs
from streams_py.testing.memory_clients import ManualClock, MemoryProducer, MemoryRecord
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.topology import Topology

APP = "app"


class FakeStore:
    """A logged store of str -> int without a cache."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.content: dict[str, int] = {}
        self.log: ChangelogWriter | None = None
        self.context = RecordContext()

    def get(self, key: str) -> int | None:
        return self.content.get(key)

    def put(self, key: str, value: int) -> None:
        self.content[key] = value
        if self.log is not None:
            self.log(key.encode(), value.to_bytes(8, "big"), self.context.timestamp)


class FakeStores:
    """Implements TaskStores in memory and records the calls."""

    def __init__(self, names: Sequence[str] = (), partition: int = 0) -> None:
        self.is_open = False
        self.calls: list[str] = []
        self.stores = {name: FakeStore(name) for name in names}
        self._topics = {name: f"{APP}-{name}-changelog" for name in names}
        self._partition = partition
        self.changelog_offsets: dict[TopicPartition, int] = {}
        self.source_changelogs: frozenset[TopicPartition] = frozenset()
        self.open_error: Exception | None = None
        self.in_bulk: bool | None = None
        self.inputs = CommittedInputs()

    @property
    def changelog_partitions(self) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(topic, self._partition) for topic in self._topics.values())

    def open(self) -> None:
        if self.open_error is not None:
            raise self.open_error
        self.calls.append("open")
        self.is_open = True

    def attach(self, record: RecordContext, writer: Callable[[str, int], ChangelogWriter] | None) -> None:
        for name, store in self.stores.items():
            store.context = record
            store.log = None if writer is None else writer(self._topics[name], self._partition)

    def store(self, name: str) -> Any:
        return self.stores[name]

    def is_of(self, changelog: TopicPartition, topic_id: str | None) -> bool:
        return True

    def changelog_replaced(self, changelog: TopicPartition, topic_id: str, acked: int | None) -> None: ...

    def restore_position(self, changelog: TopicPartition) -> int:
        return self.changelog_offsets.get(changelog, BEGINNING)

    def restore(self, changelog: TopicPartition, records: Sequence[RawRecord], *, in_bulk: bool = False) -> None:
        self.in_bulk = in_bulk
        store = self.stores[self.store_of(changelog)]
        for record in records:
            key, value = record.key(), record.value()
            assert key is not None
            assert value is not None
            store.content[key.decode()] = int.from_bytes(value, "big")
            self.changelog_offsets[changelog] = record.offset()

    awaits_disk = False

    def flush_restored(self) -> bool:
        self.calls.append("flush restored")
        return True

    def end_loading(self) -> None:
        self.calls.append("end loading")

    def store_of(self, changelog: TopicPartition) -> str:
        return next(name for name, topic in self._topics.items() if topic == changelog.topic)

    def flush_caches(self, order: Iterable[str]) -> None:
        self.calls.extend(f"flush {name}" for name in order)

    def clear_caches(self) -> None:
        self.calls.append("clear caches")

    def update_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.changelog_offsets.update(offsets)

    uncommitted_bytes = 0

    def store_metrics(self, seconds: float) -> Sequence[tuple[str, str, Mapping[str, float]]]:
        return []

    def commit(self, inputs: Mapping[TopicPartition, int]) -> None:
        self.inputs.note(self.inputs.changed(inputs))
        self.calls.append("commit")

    def note_damage(self, error: StateError) -> bool:
        return False

    damage: StateError | None = None

    def roll_back(self) -> None:
        self.calls.append("roll back")

    def forget(self, changelogs: Collection[TopicPartition]) -> None:
        for changelog in changelogs:
            self.changelog_offsets.pop(changelog, None)
        self.calls.append(f"forget {', '.join(map(str, changelogs))}")

    def checkpoint(self, *, enforce: bool) -> None:
        self.calls.append(f"checkpoint{' enforced' if enforce else ''}")

    def close_files_aside(self) -> bool:
        return True

    def close(self, *, wipe: bool = False) -> None:
        self.calls.append("close")
        self.is_open = False


class FakeInputs:
    """Positions and lags that the test sets."""

    def __init__(self) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.lags: dict[TopicPartition, int] = {}

    def position(self, partition: TopicPartition) -> int | None:
        return self.positions.get(partition)

    def lag(self, partition: TopicPartition) -> int | None:
        return self.lags.get(partition)


def report_failed(producer: MemoryProducer, *errors: ProductionError) -> None:
    """Let sends of a producer have failed, as a broker may report later."""
    producer._errors.extend(errors)  # its public argument `refuse` fails the send itself


class Kit:
    """One active task and its environment."""

    def __init__(
        self,
        topology: Topology,
        *,
        inputs: Sequence[str] = ("in",),
        stores: Sequence[str] = (),
        producer: MemoryProducer | None = None,
        start: bool = True,
        subtopology: int = 0,
        global_stores: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock(1_000_000)
        self.producer = producer or MemoryProducer(clock=self.clock)
        self.positions = FakeInputs()
        self.stores = FakeStores(stores)
        settings = {"default_key_serde": serdes.STRING, "default_value_serde": serdes.STRING, **settings}
        self.settings = TaskSettings(application_id=APP, **settings)
        self.partitions = [TopicPartition(topic, 0) for topic in inputs]
        self.task = ActiveTask(
            TaskId(subtopology, 0),
            topology.subtopology(subtopology),
            self.partitions,
            self.stores,
            collector=RecordCollector(TaskId(subtopology, 0), self.producer, self.settings),
            inputs=self.positions,
            shared=SharedServices(
                clock=self.clock, global_stores=global_stores or {}, background=Background(EventLoop("test"))
            ),
        )
        if start:
            self.task.initialize()
            self.task.complete_restoration({})

    def add(self, *records: MemoryRecord) -> None:
        """Deliver records, as the consumer does."""
        for record in records:
            partition = TopicPartition(record.topic(), record.partition())
            self.task.add_records(partition, [record])
            self.positions.positions[partition] = record.offset() + 1

    def sent(self, topic: str) -> list[tuple[bytes | None, bytes | None, int]]:
        """Return (key, value, timestamp) of the records written to a topic."""
        return [(r.key(), r.value(), r.timestamp()[1]) for r in self.producer.sent if r.topic() == topic]


def record(
    value: str | None,
    *,
    key: str | None = "k",
    at: int = 0,
    offset: int = 0,
    topic: str = "in",
    raw_value: bytes | None = None,
    **options: Any,
) -> MemoryRecord:
    """Create a record of text, or of ``raw_value``."""
    encoded_key = None if key is None else key.encode()
    encoded_value = raw_value or (None if value is None else value.encode())
    return MemoryRecord(topic, 0, offset, encoded_key, encoded_value, timestamp_ms=at, **options)
