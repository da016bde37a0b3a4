"""Runs one task of a topology without a stream thread.

The task is the runtime's own :class:`ActiveTask` with the runtime's own stores; only the surrounding stream thread is
missing. The caller adds records in the order of processing, decides when to commit, and receives all output through the
producer. So the test driver, comparisons with recorded runs, and Spark workers that process months of history all
behave like the live application.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streams_protocol.types import TaskId, TopicPartition
from streams_py.ports import Clock, RawRecord, RecordProducer
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.asynchronous.event_loop import Background
from streams_py.runtime.tasks.record.binding import Node
from streams_py.runtime.tasks.record.collector import RecordCollector
from streams_py.runtime.tasks.record.node_services import SharedServices
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.runtime.tasks.task import TaskNodes
from streams_py.state.caching.cache import RecordCache
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.opening.stores import Store, StoreDefaults
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.topology.declare.names import topic_on_broker
from streams_py.topology.declare.nodes import SourceNode

_NEVER_WAIT = -1


@dataclass(slots=True)
class EverythingDelivered:
    """Stands in for a task's consumer: it knows ``next_offsets``, and everything else has been delivered."""

    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record; None before the first one."""
        return self.next_offsets.get(partition)

    def lag(self, partition: TopicPartition) -> int | None:
        """Return 0: all records have been delivered."""
        return 0


@dataclass(frozen=True, kw_only=True)
class TaskEnvironment:
    """Resources that several executors share.

    Attributes:
        directory: Location of the stores. If it is not persistent, the stores are in memory.
        all_on_disk: Whether stores that are declared to be in memory are on disk, too.
        task_ids: Returns the tasks that write with ``producer``.
    """

    settings: TaskSettings
    producer: RecordProducer
    clock: Clock
    directory: StateDirectory
    all_on_disk: bool = False
    inputs: EverythingDelivered = field(default_factory=EverythingDelivered)
    cache: RecordCache | None = None
    background: Background | None = None
    task_ids: Callable[[], Collection[TaskId]] | None = None
    owner: str = "offline"


class TaskExecutor:
    """One task. It never waits for other partitions: all buffered records are processed.

    ``inputs`` are its input partitions.
    """

    def __init__(
        self,
        task_id: TaskId,
        nodes: TaskNodes,
        inputs: Collection[TopicPartition],
        environment: TaskEnvironment,
        *,
        global_stores: Mapping[str, Any] | None = None,
    ) -> None:
        settings = replace(environment.settings, max_task_idle_ms=_NEVER_WAIT)
        self._producer = environment.producer
        defaults = StoreDefaults(
            settings.default_key_serde,
            settings.default_value_serde,
            persistent=environment.directory.is_persistent and settings.persistent_stores,
            all_on_disk=environment.all_on_disk,
            reference_behaviour=settings.reference_behaviour,
        )
        stores = TaskState(
            task_id,
            nodes.stores,
            StoreEnvironment(environment.directory, environment.owner, defaults, environment.cache),
            application_id=settings.application_id,
            measuring=settings.measuring(environment.clock),
        )
        self.task = ActiveTask(
            task_id,
            nodes,
            inputs,
            stores,
            collector=RecordCollector(task_id, environment.producer, settings, sharing=environment.task_ids),
            inputs=environment.inputs,
            shared=SharedServices(
                clock=environment.clock, global_stores=global_stores or {}, background=environment.background
            ),
        )

    def start(self) -> None:
        """Open the stores, then bind and initialise the nodes."""
        self.task.initialize()
        self.task.complete_restoration({})

    def add(self, partition: TopicPartition, records: Sequence[RawRecord]) -> None:
        """Buffer records of one input partition, in offset order."""
        self.task.add_records(partition, records)

    def step(self, max_records: int = 1) -> int:
        """Process up to ``max_records`` records, then due stream-time punctuators. Return the number of records."""
        task = self.task
        taken = task.process(max_records)
        if taken:
            task.await_answers()
            task.punctuators.fire_stream_time()
            task.await_answers()
        return taken

    @property
    def had_punctuators(self) -> bool:
        """Whether a processor has ever scheduled a punctuator, even if it was cancelled since."""
        return self.task.punctuators.were_used

    def commit(self) -> None:
        """Flush and commit, if anything happened since the last commit."""
        task = self.task
        if task.commit_needed:
            task.flush_caches()
            while task.await_answers():
                task.flush_caches()
            self._producer.check()
            task.post_commit(enforce_checkpoint=False, acked=self._producer.acked_offsets())

    def store(self, name: str) -> Store:
        """Return an open store."""
        found: Store = self.task.stores.store(name)
        return found

    def close(self) -> Exception | None:
        """Suspend and close the task. Return the error of a processor's ``close``, if one raised."""
        failed: Exception | None = None
        try:
            self.task.suspend()
        except Exception as error:
            failed = error
        self.task.close_clean()
        return failed


def exact_topics(nodes: Sequence[Node], application_id: str) -> list[str]:
    """Return the full names of the topics that these nodes read by name."""
    return [
        topic_on_broker(application_id, topic, is_internal=node.is_internal)
        for node in nodes
        if isinstance(node, SourceNode)
        for topic in node.topics
    ]
