"""The task that writes the global stores. It belongs to no group, and reads all partitions of its topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from streams_protocol.types import TopicPartition
from streams_py.ports import Clock, RawRecord, RecordConsumer, RecordProducer
from streams_py.runtime.global_thread.progress import GLOBAL_TASK
from streams_py.runtime.global_thread.waiting import Waiting
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.record.binding import Node
from streams_py.runtime.tasks.record.collector import RecordCollector
from streams_py.runtime.tasks.record.node_services import SharedServices
from streams_py.runtime.tasks.record.source_replay import SourceReplay, source_replays
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.state.tasks.global_stores import GlobalStores
from streams_py.topology.declare.stores import StoreBuilder

RECORDS_MAX: Final = 1_000
"""Maximum number of records that the global thread reads and processes at a time."""
_FLUSH_STEP_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class GlobalNodes:
    """The nodes and stores that feed the global stores."""

    nodes: Sequence[Node]
    stores: Sequence[StoreBuilder]
    tables: Mapping[str, StoreBuilder]
    """Topic -> store of each global table. Its records are replayed while the store is restored."""
    is_global: bool = True


class ProducerOnDemand:
    """A producer that is created at its first use: only dead letters need it here."""

    def __init__(self, make: Callable[[], RecordProducer]) -> None:
        self._make = make
        self._made: RecordProducer | None = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = self._make()
        return getattr(self._made, name)

    @property
    def made(self) -> RecordProducer | None:
        """The producer, if it was created."""
        return self._made

    def close(self) -> None:
        """Close the producer, if it was created."""
        if self._made is not None:
            self._made.close()


class GlobalTask:
    """An open task, and the replays of its global tables. Used on the global thread only."""

    def __init__(
        self, task: ActiveTask, replays: Mapping[str, SourceReplay], producer: ProducerOnDemand, waiting: Waiting
    ) -> None:
        self.task = task
        self._replays = replays
        self._producer = producer
        self._waiting = waiting

    def is_table(self, partition: TopicPartition) -> bool:
        """Whether the records of a partition are replayed into the store of a global table during a restoration."""
        return partition.topic in self._replays

    def replayed(self, partition: TopicPartition, records: Sequence[RawRecord]) -> Sequence[Any]:
        """Return the rows of a global table that these records make, as processing would write them."""
        return self._waiting.retried(lambda: self._replays[partition.topic].replayed(records))

    def process(self) -> None:
        """Process all records that were added, and punctuate. Records that need an unavailable service stay."""
        while self.task.process(RECORDS_MAX):
            pass
        self.task.records.take_to_pause()  # nothing to pause: all records were processed
        self.task.punctuate()

    def process_restored(self, partition: TopicPartition, records: Sequence[RawRecord]) -> None:
        """Process these records. Waits for a service that they need."""
        self.task.add_records(partition, records)
        self.process()
        while self.task.buffered_records and not self._waiting.is_stopping():
            self._waiting.pause()
            self.process()

    def is_acknowledged(self) -> bool:
        """Whether the dead letters of all records so far are written. False if the thread is stopped first.

        Dead letters are in no store. Raises other errors of sends, after calling the production exception handler.
        """
        producer = self._producer.made
        if producer is None:
            return True
        while not self._waiting.is_stopping():
            is_flushed = not producer.flush(_FLUSH_STEP_MS)
            if not self.task.check_sends() and is_flushed:
                return True
        return False


class GlobalTasks:
    """Creates the task of the global stores.

    Args:
        settings: Settings of the client's tasks. This task has no transactions, and never waits for other partitions.
        producer: Writes the records of exception handlers (dead letters).
    """

    def __init__(
        self, nodes: GlobalNodes, stores: GlobalStores, settings: TaskSettings, producer: ProducerOnDemand, clock: Clock
    ) -> None:
        self.stores = stores
        self._nodes = nodes
        self._settings = replace(settings, max_task_idle_ms=-1, exactly_once=False)
        self._producer = producer
        self._clock = clock

    def create(self, consumer: RecordConsumer, partitions: Sequence[TopicPartition], waiting: Waiting) -> GlobalTask:
        """Return the task, not initialized yet."""
        collector = RecordCollector(GLOBAL_TASK, cast("RecordProducer", self._producer), self._settings)
        task = ActiveTask(
            GLOBAL_TASK,
            self._nodes,
            partitions,
            self.stores,
            collector=collector,
            inputs=consumer,
            shared=SharedServices(clock=self._clock),
        )
        replays = source_replays(GLOBAL_TASK, self._nodes.nodes, self._nodes.tables, self._settings, collector)
        return GlobalTask(task, replays, self._producer, waiting)
