"""One task over its history, from the first record to the last one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from streams_protocol.types import TaskId, TopicPartition
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import StreamsError, UnsupportedOperationError
from streams_py.history.fold import FoldEntry, fold_of, keeps_order
from streams_py.history.folders import TemporaryFolder
from streams_py.history.global_tables import FrozenTables, TableContents
from streams_py.history.kept_state import entries_of, is_its_own_fold, logging_what_is_folded
from streams_py.history.loading import TopologyNotFoundError
from streams_py.history.plan import Stage
from streams_py.history.records import Columns, HistoryProducer
from streams_py.history.travel import TopologySource
from streams_py.ports import RawRecord
from streams_py.runtime.offline.executor import EverythingDelivered, TaskExecutor, TaskSurroundings
from streams_py.runtime.tasks.record.binding import Node
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.opening.stores import changelog_topic
from streams_py.topology.declare.stores import StoreBuilder, StoreKind
from streams_py.topology.physical.assembly import GlobalStore
from streams_py.topology.physical.subtopologies import Subtopology
from streams_py.topology.topology import Topology

__all__ = [
    "HistoryTask",
    "StageOrders",
    "StageTopology",
    "StillClock",
    "TaskSummary",
    "ordered_changelogs",
    "versioned_changelogs",
]

_RELIEVE_EVERY_RECORDS = 100_000
_UNCOMMITTED_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class StageOrders:
    """What a worker needs to run tasks of one stage; it travels there.

    ``config``: the application's settings, with ``application.id`` and without those of Kafka clients, which a task has
    no use for. ``folder``: where tasks keep their state meanwhile; None for the system's temporary folder. ``tables``:
    contents of the global tables, where the stage reads any.
    """

    source: TopologySource
    config: Mapping[str, Any]
    stage: Stage
    folder: str | None = None
    tables: TableContents = field(default_factory=dict)

    def load(self) -> StageTopology:
        """Build the topology, once for all tasks of a worker. TopologyError when a worker cannot."""
        try:
            topology = self.source.build()
        except TopologyNotFoundError as error:  # the driver could
            raise TopologyNotFoundError(
                f"on a Spark worker: {error}; install it there, or ship it with --py-files and name it as module:name"
            ) from None
        stores = topology.global_stores
        declared = {name: (stores[name], topic) for topic, name in topology.global_topics.items()}
        fillers = [node for sub in topology.subtopologies() if sub.is_global for node in sub.nodes]
        return StageTopology(self, topology.subtopology(self.stage.id), self.settings(), declared, fillers)

    def settings(self) -> TaskSettings:
        """Those of tasks over a history: they wait for nobody, and look for final results after every record."""
        config = StreamsConfig.of({**self.config, "bootstrap.servers": "embedded"})
        return replace(TaskSettings.from_config(config), emit_interval_ms=0, task_timeout_ms=0)


@dataclass(frozen=True, slots=True)
class StageTopology:
    """The orders with what they mean. ``global_stores``: store -> declaration and topic; ``global_nodes`` fill them."""

    orders: StageOrders
    nodes: Subtopology
    settings: TaskSettings
    global_stores: Mapping[str, tuple[GlobalStore, str]]
    global_nodes: Sequence[Node]

    def fill_tables(self) -> FrozenTables | None:
        """The global tables, for all tasks of a worker; None where the stage reads none."""
        tables = self.orders.tables
        if not tables:
            return None
        return FrozenTables(self.global_stores, self.global_nodes, self.settings, tables, self.orders.folder)


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """What one task did.

    ``records`` taken, and ``dropped``. ``positions``: input topic -> offset to continue from (of a topic between
    stages: how many records there were), and the text that is committed beside it. ``written``: topic ->
    (partition, records) of those that were written. ``read``: input topic -> records taken.
    """

    task: int
    records: int
    dropped: int
    positions: Mapping[str, tuple[int, str]]
    written: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    read: Mapping[str, int] = field(default_factory=dict)


class StillClock:
    """Time stands still: what depends on it has no place in a history."""

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0

    def sleep_ms(self, duration_ms: int) -> None:
        """Returns at once: with a clock that stands still a wait would never end."""


class HistoryTask:
    """The run of one task. ``feed`` in the order in which records are to be taken, then ``finish``, then ``close``.
    ``global_stores``: those of global tables, by name."""

    def __init__(self, topology: StageTopology, number: int, global_stores: Mapping[str, Any] | None = None) -> None:
        stage, settings = topology.orders.stage, topology.settings
        self._task_id = TaskId(stage.id, number)
        self._read: Counter[str] = Counter()
        self._uncommitted = 0
        self._folder = TemporaryFolder(topology.orders.folder)
        self._database: TaskDatabase | None = None
        builders = {store.name: store for store in topology.nodes.stores}
        self._states = {topic: builders[name] for name, topic in sorted(stage.stores.items())}
        self._folds = {
            topic: fold_of(store, partial(self._place_of, topic))
            for topic, store in self._states.items()
            if not is_its_own_fold(store)
        }
        self._producer = HistoryProducer(stage.outputs, self._folds)
        self._directory = StateDirectory(str(self._folder.path), settings.application_id, warns_of_temporary=False)
        self._inputs = EverythingDelivered()
        inputs = [TopicPartition(topic, number) for topic, count in stage.inputs.items() if number < count]
        surroundings = TaskSurroundings(
            settings=settings,
            producer=self._producer,
            clock=StillClock(),
            directory=self._directory,
            all_on_disk=True,  # a history may fill what a live task keeps small, on as many cores as there are
            inputs=self._inputs,
            owner="history",
        )
        try:
            self._directory.open()
            nodes = replace(topology.nodes, stores=tuple(map(logging_what_is_folded, topology.nodes.stores)))
            self._executor = TaskExecutor(self._task_id, nodes, inputs, surroundings, global_stores=global_stores)
            self._executor.start()
        except BaseException:
            self._remove()
            raise

    def _place_of(self, topic: str) -> Any:
        if self._database is None:
            self._database = TaskDatabase(str(self._folder.path / "folds"), sorted(self._folds))
        return self._database.store(topic)

    def feed(self, topic: str, records: Sequence[RawRecord]) -> None:
        """Process records of one topic. What user code raises names node, topic, partition and offset."""
        partition = TopicPartition(topic, self._task_id.partition)
        executor, task = self._executor, self._executor.task
        self._inputs.next_offsets[partition] = records[-1].offset() + 1
        executor.add(partition, records)
        while task.buffered_records:
            executor.step(task.buffered_records)
        if executor.had_punctuators:
            raise UnsupportedOperationError(
                f"task {self._task_id}: a processor has scheduled a punctuator, although its supplier says batch_safe; "
                "over a history nobody calls punctuators, so run this topology live",
                task_id=self._task_id,
            )
        self._read[topic] += len(records)
        self._uncommitted += len(records)
        is_long = bool(self._folds) and self._uncommitted >= _RELIEVE_EVERY_RECORDS
        if is_long or task.uncommitted_bytes > _UNCOMMITTED_BYTES_MAX:
            self._commit()

    def _commit(self) -> None:
        self._executor.commit()
        self._uncommitted = 0
        for fold in self._folds.values():
            fold.relieve()
        if self._database is not None:
            self._database.commit({})

    @property
    def columns(self) -> Mapping[str, Columns]:
        """What was written since somebody cleared it, by topic."""
        return self._producer.columns

    def finish(self) -> TaskSummary:
        """Everything was fed: commit. The folds and the last columns can be read then."""
        self._commit()
        task = self._executor.task
        offsets = task.committable_offsets()
        return TaskSummary(
            self._task_id.partition,
            self._read.total(),
            task.dropped_records,
            {at.topic: (offsets[at].offset, offsets[at].metadata) for at in sorted(offsets)},
            read=dict(self._read),
        )

    def states(self) -> Iterator[tuple[str, Iterator[FoldEntry]]]:
        """The changelog that each store has, or would have, and what is left of it; see
        :mod:`streams_py.history.kept_state`."""
        for topic, store in self._states.items():
            fold = self._folds.get(topic)
            yield topic, entries_of(store, self._executor.store(store.name)) if fold is None else fold.entries()

    def close(self) -> None:
        """Close and remove everything local; the error of a processor's ``close`` is raised."""
        try:
            failed = self._executor.close()
        finally:
            self._remove()
        if failed is not None:
            raise StreamsError(
                f"task {self._task_id}: closing a processor: {failed}", task_id=self._task_id
            ) from failed

    def abandon(self) -> None:
        """After an error: leave nothing behind."""
        self._executor.task.close_dirty()
        self._remove()

    def _remove(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        self._directory.close()
        self._folder.remove()


def versioned_changelogs(topology: Topology, application_id: str) -> frozenset[str]:
    """Those of versioned stores, which have several records of a key: its versions."""
    return _changelogs(topology, application_id, lambda store: store.kind is StoreKind.VERSIONED_KEY_VALUE)


def ordered_changelogs(topology: Topology, application_id: str) -> frozenset[str]:
    """Those whose records must be written in the order of the fold."""
    return _changelogs(topology, application_id, keeps_order)


def _changelogs(topology: Topology, application_id: str, is_wanted: Callable[[StoreBuilder], bool]) -> frozenset[str]:
    stores = [store for sub in topology.subtopologies() for store in sub.stores]
    return frozenset(changelog_topic(store, application_id) for store in stores if is_wanted(store))
