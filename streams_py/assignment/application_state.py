"""KIP-924's ``ApplicationState`` as a view of an ``AssignmentProblem``.

Values are computed when an assignor first requests them: task descriptions on the first ``all_tasks``, lag tables on
the first ``stateful_tasks_to_lag_sums`` of a client, racks on the first ``rack_ids`` of any partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from streams_protocol.types import HostInfo, ProcessId, TaskId, TopicPartition
from streams_py.assignment.api import AssignmentConfigs, KafkaStreamsState, TaskInfo, TaskTopicPartition
from streams_py.assignment.problem import AssignmentProblem, ClientInput
from streams_py.errors import IllegalStateError, UnsupportedOperationError


class RackLookup:
    """Racks of partitions. The first request looks up the racks of all partitions."""

    __slots__ = ("_look_up", "_racks")

    def __init__(self, look_up: Callable[[], Mapping[TopicPartition, frozenset[str]]] | None = None) -> None:
        """``look_up`` returns the known racks; None means that no racks are known.

        Partitions that it leaves out have no rack ids.
        """
        self._look_up = look_up
        self._racks: Mapping[TopicPartition, frozenset[str]] | None = None

    def racks_of(self, partition: TopicPartition) -> frozenset[str] | None:
        """Return the racks of the partition's replicas, or None."""
        if self._racks is None:
            self._racks = self._look_up() if self._look_up is not None else {}
        return self._racks.get(partition)


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition of a task. Objects are equal if the partition and both flags are equal."""

    topic_partition: TopicPartition
    is_source: bool
    is_changelog: bool
    racks: RackLookup = field(default_factory=RackLookup, compare=False, repr=False)

    def rack_ids(self) -> frozenset[str] | None:
        """Return the racks of the replicas, or None if they are unknown."""
        return self.racks.racks_of(self.topic_partition)


@dataclass(frozen=True, slots=True)
class TaskDescription:
    """A task as an assignor sees it.

    ``state_store_names`` are all stores of the sub-topology, logged or not.
    """

    id: TaskId
    state_store_names: frozenset[str] = frozenset()
    topic_partitions: frozenset[TaskTopicPartition] = frozenset()

    @property
    def is_stateful(self) -> bool:
        """Whether the sub-topology has a state store."""
        return bool(self.state_store_names)

    @classmethod
    def of(
        cls,
        id: TaskId,
        *,
        stores: Iterable[str] = (),
        sources: Iterable[TopicPartition] = (),
        changelogs: Iterable[TopicPartition] = (),
        racks: RackLookup | None = None,
    ) -> TaskDescription:
        """Create a description from inputs and changelogs.

        A partition that is both gets one description with both flags.
        """
        lookup = racks if racks is not None else RackLookup()
        source_set, changelog_set = frozenset(sources), frozenset(changelogs)
        partitions = frozenset(
            PartitionDescription(partition, partition in source_set, partition in changelog_set, lookup)
            for partition in source_set | changelog_set
        )
        return cls(id, frozenset(stores), partitions)


class ClientView:
    """One client of the problem as KIP-924's ``KafkaStreamsState``."""

    __slots__ = ("_client", "_ends", "_with_lags")

    def __init__(self, client: ClientInput, end_offset_sums: Mapping[TaskId, int], *, with_lags: bool) -> None:
        self._client = client
        self._ends = end_offset_sums
        self._with_lags = with_lags

    @property
    def process_id(self) -> ProcessId:
        """Id of the client's process, which identifies the client."""
        return self._client.process_id

    @property
    def num_processing_threads(self) -> int:
        """Number of its member consumers."""
        return self._client.capacity

    @property
    def consumer_client_ids(self) -> Sequence[str]:
        """Its consumers, ascending."""
        return tuple(sorted(self._client.consumers))

    @property
    def previous_active_tasks(self) -> Sequence[TaskId]:
        """Its previous active tasks, ascending."""
        return tuple(self._client.previous_active)

    @property
    def previous_standby_tasks(self) -> Sequence[TaskId]:
        """Tasks of which it was a standby or has state, ascending."""
        return tuple(self._client.previous_standby)

    @property
    def host_info(self) -> HostInfo | None:
        """``application.server``, if set."""
        return self._client.host

    @property
    def client_tags(self) -> Mapping[str, str]:
        """``client.tag.*``."""
        return MappingProxyType(dict(self._client.tags))

    @property
    def rack_id(self) -> str | None:
        """``client.rack``, if set."""
        return self._client.rack

    def lag_for(self, task: TaskId) -> int:
        """Return the lag of a task with a changelog, in records; -2: running here, -3: unknown."""
        self._check_lags()
        if task not in self._ends:
            raise IllegalStateError(f"task {task} has no lag: it has no changelog or does not exist", task_id=task)
        return self._client.lags.get(task, self._ends[task])

    def prev_tasks_by_lag(self, consumer_client_id: str) -> list[TaskId]:
        """Return the consumer's previous tasks that have a lag, by lag, then by id."""
        self._check_lags()
        tasks = self._client.consumer_tasks.get(consumer_client_id, ())
        return sorted((task for task in tasks if task in self._ends), key=lambda task: (self.lag_for(task), task))

    def stateful_tasks_to_lag_sums(self) -> dict[TaskId, int]:
        """Return the lag of every task with a changelog."""
        self._check_lags()
        lags = self._client.lags
        return {task: lags.get(task, end) for task, end in self._ends.items()}

    def _check_lags(self) -> None:
        if not self._with_lags:
            raise UnsupportedOperationError(
                "task lags were not requested; take the client from kafka_streams_states(compute_task_lags=True)"
            )


class ProblemState:
    """An ``AssignmentProblem`` as KIP-924's ``ApplicationState``."""

    def __init__(
        self, problem: AssignmentProblem, describe_tasks: Callable[[], Iterable[TaskInfo]] | None = None
    ) -> None:
        """``describe_tasks`` is called at most once.

        Without it, tasks have no partitions and no store names.
        """
        self._problem = problem
        self._describe = describe_tasks
        self._tasks: Mapping[TaskId, TaskInfo] | None = None
        self._states: dict[bool, Mapping[ProcessId, KafkaStreamsState]] = {}

    def kafka_streams_states(self, *, compute_task_lags: bool = False) -> Mapping[ProcessId, KafkaStreamsState]:
        """Return all clients in the problem's order; always the same map for the same flag."""
        found = self._states.get(compute_task_lags)
        if found is None:
            ends = self._problem.end_offset_sums
            found = MappingProxyType(
                {c.process_id: ClientView(c, ends, with_lags=compute_task_lags) for c in self._problem.clients}
            )
            self._states[compute_task_lags] = found
        return found

    def assignment_configs(self) -> AssignmentConfigs:
        """Return the settings of this rebalance."""
        return self._problem.configs

    def all_tasks(self) -> Mapping[TaskId, TaskInfo]:
        """Return all tasks, in the order of their descriptions."""
        if self._tasks is None:
            described: Iterable[TaskInfo] = (
                self._describe() if self._describe is not None else map(TaskDescription.of, self._problem.tasks)
            )
            self._tasks = MappingProxyType({info.id: info for info in described})
        return self._tasks
