"""KIP-924's public interface between the group leader and a task assignor.

Write a subclass of :class:`TaskAssignor` and set ``task.assignor.class`` to it (``"package.module:Class"`` or the class
itself). The group leader then calls it to place the tasks. Names and meanings follow Kafka Streams' package
``org.apache.kafka.streams.processor.assignment``; plain accessors are attributes here.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from streams_protocol.types import HostInfo, ProcessId, TaskId, TopicPartition
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.java_order import in_hash_order, task_hash
from streams_py.errors import IllegalStateError, UnsupportedOperationError
from streams_py.ports import MemberAssignment, MemberSubscription

__all__ = [
    "ApplicationState",
    "AssignedTask",
    "AssignmentConfigs",
    "AssignmentError",
    "GroupAssignment",
    "GroupSubscription",
    "KafkaStreamsAssignment",
    "KafkaStreamsState",
    "TaskAssignment",
    "TaskAssignor",
    "TaskInfo",
    "TaskTopicPartition",
    "TaskType",
]


class TaskType(Enum):
    """Role of a task on a client."""

    ACTIVE = "ACTIVE"
    """The task processes records."""
    STANDBY = "STANDBY"
    """The task only keeps a copy of the state. Warm-up tasks count as standby tasks."""


@dataclass(frozen=True, slots=True)
class AssignedTask:
    """A task in a role, as assigned to a client (KIP-924)."""

    id: TaskId
    """The task."""
    type: TaskType
    """Its role."""

    def __str__(self) -> str:
        return f"AssignedTask{{{self.type.value}, {self.id}}}"


class KafkaStreamsAssignment:
    """The tasks of one client (KIP-924). Mutable, so that ``TaskAssignmentUtils`` can refine it."""

    __slots__ = ("_deadline", "_process_id", "_read_only", "_tasks")

    def __init__(self, process_id: ProcessId, tasks: Iterable[AssignedTask] = ()) -> None:
        """Equal entries count once.

        Raises:
            IllegalStateError: a task is passed in both roles.
        """
        self._process_id = process_id
        self._tasks: dict[TaskId, AssignedTask] = {}
        self._deadline: datetime | None = None
        self._read_only = False
        for task in tasks:
            if self._tasks.setdefault(task.id, task) is not task and self._tasks[task.id] != task:
                raise IllegalStateError(f"client {process_id} is given task {task.id} twice: as active and as standby")

    def with_followup_rebalance(self, deadline: datetime) -> KafkaStreamsAssignment:
        """Return this assignment with a follow-up: the client starts a rebalance at ``deadline``.

        ``deadline`` must have a time zone. The result is a read-only view: it shows later changes of the original, but
        cannot be changed itself.
        """
        view = KafkaStreamsAssignment(self._process_id)
        view._tasks, view._deadline, view._read_only = self._tasks, deadline, True
        return view

    @property
    def process_id(self) -> ProcessId:
        """Id of the process that receives these tasks."""
        return self._process_id

    @property
    def tasks(self) -> Mapping[TaskId, AssignedTask]:
        """Its tasks by id, as a live, read-only view."""
        return MappingProxyType(self._tasks)

    @property
    def followup_rebalance_deadline(self) -> datetime | None:
        """Time of the follow-up rebalance, or None."""
        return self._deadline

    def assign_task(self, task: AssignedTask) -> None:
        """Add a task. It replaces an entry with the same id, whatever its role."""
        self._check_writable()
        self._tasks[task.id] = task

    def remove_task(self, task: AssignedTask) -> None:
        """Remove the entry with the task's id, whatever its role, if there is one."""
        self._check_writable()
        self._tasks.pop(task.id, None)

    def _check_writable(self) -> None:
        if self._read_only:
            raise UnsupportedOperationError(
                "the result of with_followup_rebalance is a read-only view; change the original assignment"
            )

    def __str__(self) -> str:
        tasks = ", ".join(str(self._tasks[task]) for task in in_hash_order(self._tasks, task_hash))
        followup = "" if self._deadline is None else f", follow-up at {self._deadline.isoformat()}"
        return f"KafkaStreamsAssignment{{{self._process_id}, [{tasks}]{followup}}}"

    __repr__ = __str__


class TaskTopicPartition(Protocol):
    """A partition that a task reads as input, or uses as changelog, or both.

    A source topic that is also a changelog has both flags. Two objects are equal if the partition and both flags are
    equal.
    """

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition number."""

    @property
    def is_source(self) -> bool:
        """Whether the task reads its records as input."""

    @property
    def is_changelog(self) -> bool:
        """Whether it is the changelog of a store of the task. A source topic can be one, too."""

    def rack_ids(self) -> frozenset[str] | None:
        """Return the racks (``broker.rack``) of the replicas; None when the replicas are unknown.

        Replicas without a rack are ignored. The first call for any partition looks up the racks of all partitions,
        which may take a request to the cluster.
        """


class TaskInfo(Protocol):
    """The properties of a task."""

    @property
    def id(self) -> TaskId:
        """Task id: sub-topology and partition."""

    @property
    def is_stateful(self) -> bool:
        """Whether the sub-topology has a state store, with or without a changelog."""

    @property
    def state_store_names(self) -> frozenset[str]:
        """Names of the state stores of its sub-topology."""

    @property
    def topic_partitions(self) -> frozenset[TaskTopicPartition]:
        """Its input and changelog partitions."""


class KafkaStreamsState(Protocol):
    """The state of one client before the rebalance."""

    @property
    def process_id(self) -> ProcessId:
        """Id of the client. It does not change as long as the client keeps its state directory."""

    @property
    def num_processing_threads(self) -> int:
        """Number of its member consumers, which is its capacity."""

    @property
    def consumer_client_ids(self) -> Sequence[str]:
        """Its consumers, ascending."""

    @property
    def previous_active_tasks(self) -> Sequence[TaskId]:
        """Its previous active tasks, ascending; may include tasks that no longer exist."""

    @property
    def previous_standby_tasks(self) -> Sequence[TaskId]:
        """Tasks of which it was a standby or has state, ascending; may include removed tasks."""

    @property
    def host_info(self) -> HostInfo | None:
        """Its ``application.server``, or None."""

    @property
    def client_tags(self) -> Mapping[str, str]:
        """Its settings ``client.tag.*`` (KIP-708), without the prefix."""

    @property
    def rack_id(self) -> str | None:
        """``client.rack`` of its first consumer."""

    def lag_for(self, task: TaskId) -> int:
        """Return the lag of a task with a changelog, in records.

        -2 means that the task is running as active on this client, -3 that the lag is unknown.

        Raises:
            UnsupportedOperationError: lags were not requested.
            IllegalStateError: the task does not exist or has no changelog.
        """

    def prev_tasks_by_lag(self, consumer_client_id: str) -> list[TaskId]:
        """Return the previous tasks of this consumer that have a lag, ordered by lag, then by id.

        Empty for an unknown consumer.

        Raises:
            UnsupportedOperationError: lags were not requested.
        """

    def stateful_tasks_to_lag_sums(self) -> dict[TaskId, int]:
        """Return the lag of every task with a changelog.

        Raises:
            UnsupportedOperationError: lags were not requested.
        """


class ApplicationState(Protocol):
    """Input of :meth:`TaskAssignor.assign`."""

    def kafka_streams_states(self, *, compute_task_lags: bool = False) -> Mapping[ProcessId, KafkaStreamsState]:
        """Return all clients. Only the states of ``compute_task_lags=True`` have lags.

        If the end offsets could not be fetched, every lag is -3, except -2 where a task was running.
        """

    def assignment_configs(self) -> AssignmentConfigs:
        """Return the leader's settings for the placement of tasks."""

    def all_tasks(self) -> Mapping[TaskId, TaskInfo]:
        """Return every task of the application, read-only."""


class AssignmentError(Enum):
    """Result of validating an assignment (KIP-924)."""

    NONE = "the assignment is valid"
    ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES = "a task is active on more than one client"
    INVALID_STANDBY_TASK = "a stateless task is assigned as standby"
    MISSING_PROCESS_ID = "a client of the group has no entry in the assignment"
    UNKNOWN_PROCESS_ID = "an entry of the assignment is for a client that is not in the group"
    UNKNOWN_TASK_ID = "an assigned task does not exist in the application"


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """The assignment that the leader sends to each member, by member id."""

    group_assignment: Mapping[str, MemberAssignment] = field(default_factory=dict)
    """Member id -> assignment."""


@dataclass(frozen=True, slots=True)
class GroupSubscription:
    """The subscription of each member, by member id."""

    group_subscription: Mapping[str, MemberSubscription] = field(default_factory=dict)
    """Member id -> subscription."""


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """The answer of a task assignor: one entry for each client, including clients without tasks."""

    assignment: Collection[KafkaStreamsAssignment]
    """One entry for each client."""


class TaskAssignor(abc.ABC):
    """Assigns tasks to clients (KIP-924).

    The group leader creates and configures a new instance for every rebalance, so an instance cannot remember anything.
    """

    @abc.abstractmethod
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place every task. Each client of ``application_state`` needs an entry, even without tasks.

        To refuse the rebalance, raise ``streams_py.errors.TaskAssignmentError`` with the reason. The call fails if it
        raises this or any other exception, if its answer breaks a rule of :class:`AssignmentError`, or if it does not
        return in time. Then every member keeps its tasks, the error is logged and kept with the leader's thread, and
        the leader tries again after a delay. (Kafka Streams sends all members an error assignment, which stops all
        threads.) ``on_assignment_computed`` is not called after an exception.

        The leader calls this method in a thread that does nothing else at that time. Decide only by ids and numbers,
        never by the clock, random values or the order of a set. Otherwise tasks move without a reason whenever the
        group rebalances.
        """

    def on_assignment_computed(  # noqa: B027  # optional hook, empty on purpose
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        """Called after each :meth:`assign` that returned, with the result of its validation.

        The group assignment is empty after UNKNOWN_PROCESS_ID and UNKNOWN_TASK_ID.
        """

    def configure(self, configs: Mapping[str, object]) -> None:  # noqa: B027  # optional hook, empty on purpose
        """Called before :meth:`assign`, with the application's configuration as the user wrote it."""
