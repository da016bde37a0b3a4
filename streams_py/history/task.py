"""One task over its history, from the first record to the last."""

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
from streams_py.history.kept_state import entries_of, is_read_at_end, with_history_logging
from streams_py.history.loading import TopologyNotFoundError, TopologySource
from streams_py.history.plan import Stage
from streams_py.history.records import Columns, HistoryProducer
from streams_py.ports import RawRecord
from streams_py.runtime.offline.executor import EverythingDelivered, TaskEnvironment, TaskExecutor
from streams_py.runtime.tasks.record.binding import Node
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.opening.stores import changelog_topic
from streams_py.topology.declare.stores import StoreBuilder, StoreKind
from streams_py.topology.physical.assembly import GlobalStore
from streams_py.topology.physical.subtopologies import Subtopology
from streams_py.topology.topology import Topology

_RELIEVE_EVERY_RECORDS = 100_000
_UNCOMMITTED_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class StageOrders:
    """Everything that a worker needs to run tasks of one stage. It is sent to the worker.

    Attributes:
        source: the topology.
        config: settings of the application, with ``application.id``. Settings of Kafka clients are left out, as
            tasks do not need them.
        stage: the stage.
        folder: folder for the state of running tasks; None for the system's temporary folder.
        tables: contents of the global tables, if the stage reads any.
    """

    source: TopologySource
    config: Mapping[str, Any]
    stage: Stage
    folder: str | None = None
    tables: TableContents = field(default_factory=dict)

    def load(self) -> StageTopology:
        """Build the topology, once for all tasks of a worker. Raises TopologyError when the worker cannot."""
        try:
            topology = self.source.build()
        except TopologyNotFoundError as error:  # the driver has found it
            raise TopologyNotFoundError(
                f"on a Spark worker: {error}; install it there, or ship it with --py-files and name it as module:name"
            ) from None
        stores = topology.global_stores
        declared = {name: (stores[name], topic) for topic, name in topology.global_topics.items()}
        fillers = [node for sub in topology.subtopologies() if sub.is_global for node in sub.nodes]
        return StageTopology(self, topology.subtopology(self.stage.id), self.settings(), declared, fillers)

    def settings(self) -> TaskSettings:
        """Return settings of the tasks: no timeout for retries, and final results are emitted after every record."""
        config = StreamsConfig.of({**self.config, "bootstrap.servers": "embedded"})
        return replace(TaskSettings.from_config(config), emit_interval_ms=0, task_timeout_ms=0)


@dataclass(frozen=True, slots=True)
class StageTopology:
    """The orders with the topology that a worker has built.

    Attributes:
        orders: the orders.
        nodes: the sub-topology of the stage.
        settings: settings of the tasks.
        global_stores: store -> declaration and topic.
        global_nodes: the nodes that fill global stores.
    """

    orders: StageOrders
    nodes: Subtopology
    settings: TaskSettings
    global_stores: Mapping[str, tuple[GlobalStore, str]]
    global_nodes: Sequence[Node]

    def fill_tables(self) -> FrozenTables | None:
        """Fill the global tables, for all tasks of a worker. Returns None when the stage reads none."""
        tables = self.orders.tables
        if not tables:
            return None
        return FrozenTables(self.global_stores, self.global_nodes, self.settings, tables, self.orders.folder)


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """The counts and positions of one task.

    Attributes:
        task: partition number of the task.
        records: number of processed records.
        dropped: number of dropped records.
        positions: input topic -> (offset to continue from, metadata to commit with it). The offset in a topic between
            stages is its number of records.
        written: topic -> (partition, number of records written).
        read: input topic -> number of records processed.
    """

    task: int
    records: int
    dropped: int
    positions: Mapping[str, tuple[int, str]]
    written: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    read: Mapping[str, int] = field(default_factory=dict)


class StillClock:
    """A clock that always returns 0. Operators that depend on the time are refused."""

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0

    def sleep_ms(self, duration_ms: int) -> None:
        """Return immediately: with a clock that does not move, a wait would never end."""


class HistoryTask:
    """The run of one task: call ``feed`` in the order of processing, then ``finish``, then ``close``.

    ``global_stores`` has the stores of global tables, by name.
    """

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
            if not is_read_at_end(store)
        }
        self._producer = HistoryProducer(stage.outputs, self._folds)
        self._directory = StateDirectory(str(self._folder.path), settings.application_id, warns_of_temporary=False)
        self._inputs = EverythingDelivered()
        inputs = [TopicPartition(topic, number) for topic, count in stage.inputs.items() if number < count]
        environment = TaskEnvironment(
            settings=settings,
            producer=self._producer,
            clock=StillClock(),
            directory=self._directory,
            all_on_disk=True,  # stores may grow larger than live, and each core runs a task
            inputs=self._inputs,
            owner="history",
        )
        try:
            self._directory.open()
            nodes = replace(topology.nodes, stores=tuple(map(with_history_logging, topology.nodes.stores)))
            self._executor = TaskExecutor(self._task_id, nodes, inputs, environment, global_stores=global_stores)
            self._executor.start()
        except BaseException:
            self._remove()
            raise

    def _place_of(self, topic: str) -> Any:
        if self._database is None:
            self._database = TaskDatabase(str(self._folder.path / "folds"), sorted(self._folds))
        return self._database.store(topic)

    def feed(self, topic: str, records: Sequence[RawRecord]) -> None:
        """Process records of one topic. Errors of user code name the node, topic, partition and offset."""
        partition = TopicPartition(topic, self._task_id.partition)
        executor, task = self._executor, self._executor.task
        self._inputs.next_offsets[partition] = records[-1].offset() + 1
        executor.add(partition, records)
        while task.buffered_records:
            executor.step(task.buffered_records)
        if executor.had_punctuators:
            raise UnsupportedOperationError(
                f"task {self._task_id}: a processor has scheduled a punctuator, although its supplier is batch_safe; "
                "punctuators are not called over a history, so run this topology live",
                task_id=self._task_id,
            )
        self._read[topic] += len(records)
        self._uncommitted += len(records)
        is_long = bool(self._folds) and self._uncommitted >= _RELIEVE_EVERY_RECORDS
        if is_long or task.stores.uncommitted_bytes > _UNCOMMITTED_BYTES_MAX:
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
        """Topic -> records that were written since the caller last cleared them."""
        return self._producer.columns

    def finish(self) -> TaskSummary:
        """Commit after the last ``feed`` and return the summary. ``states`` and ``columns`` are complete then."""
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
        """Yield the changelog that each store has or would have, with its entries.

        See :mod:`streams_py.history.kept_state`.
        """
        for topic, store in self._states.items():
            fold = self._folds.get(topic)
            yield topic, entries_of(store, self._executor.store(store.name)) if fold is None else fold.entries()

    def close(self) -> None:
        """Close the task and remove its files. Raises StreamsError when a processor's ``close`` has failed."""
        try:
            failed = self._executor.close()
        finally:
            self._remove()
        if failed is not None:
            raise StreamsError(
                f"task {self._task_id}: closing a processor: {failed}", task_id=self._task_id
            ) from failed

    def abandon(self) -> None:
        """Close the task after an error and remove its files."""
        self._executor.task.close_dirty()
        self._remove()

    def _remove(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        self._directory.close()
        self._folder.remove()


def versioned_changelogs(topology: Topology, application_id: str) -> frozenset[str]:
    """Return the changelogs of versioned stores. They have several records per key: its versions."""
    return _changelogs(topology, application_id, lambda store: store.kind is StoreKind.VERSIONED_KEY_VALUE)


def ordered_changelogs(topology: Topology, application_id: str) -> frozenset[str]:
    """Return the changelogs whose records must be written in the order of the fold."""
    return _changelogs(topology, application_id, keeps_order)


def _changelogs(topology: Topology, application_id: str, is_wanted: Callable[[StoreBuilder], bool]) -> frozenset[str]:
    stores = [store for sub in topology.subtopologies() for store in sub.stores]
    return frozenset(changelog_topic(store, application_id) for store in stores if is_wanted(store))
