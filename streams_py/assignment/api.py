"""KIP-924: the public interface between the group leader and a task assignor, yours or a built-in one.

Write a subclass of :class:`TaskAssignor`, name it in ``task.assignor.class`` (``"package.module:Class"`` or the class
itself), and the group leader asks it where every task goes. Names and meaning follow Kafka Streams' package
``org.apache.kafka.streams.processor.assignment`` as shipped; plain accessors became attributes.
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
    STANDBY = "STANDBY"


@dataclass(frozen=True, slots=True)
class AssignedTask:
    """A task in a role, as given to a client (KIP-924)."""

    id: TaskId
    type: TaskType

    def __str__(self) -> str:
        return f"AssignedTask{{{self.type.value}, {self.id}}}"


class KafkaStreamsAssignment:
    """The tasks of one client; mutable, so that the functions of ``TaskAssignmentUtils`` can refine it (KIP-924)."""

    __slots__ = ("_deadline", "_process_id", "_read_only", "_tasks")

    def __init__(self, process_id: ProcessId, tasks: Iterable[AssignedTask] = ()) -> None:
        """IllegalStateError when a task is given in both roles. Equal entries count once."""
        self._process_id = process_id
        self._tasks: dict[TaskId, AssignedTask] = {}
        self._deadline: datetime | None = None
        self._read_only = False
        for task in tasks:
            if self._tasks.setdefault(task.id, task) is not task and self._tasks[task.id] != task:
                raise IllegalStateError(f"client {process_id} is given task {task.id} twice: as active and as standby")

    def with_followup_rebalance(self, deadline: datetime) -> KafkaStreamsAssignment:
        """The same assignment with a follow-up: the client starts a rebalance at this (timezone-aware) instant.

        The result is a read-only view: it shows later changes of the original but refuses its own.
        """
        view = KafkaStreamsAssignment(self._process_id)
        view._tasks, view._deadline, view._read_only = self._tasks, deadline, True
        return view

    @property
    def process_id(self) -> ProcessId:
        """Id of the process that gets these tasks."""
        return self._process_id

    @property
    def tasks(self) -> Mapping[TaskId, AssignedTask]:
        """Its tasks by id; a live, read-only view."""
        return MappingProxyType(self._tasks)

    @property
    def followup_rebalance_deadline(self) -> datetime | None:
        """Instant of the follow-up rebalance, or None."""
        return self._deadline

    def assign_task(self, task: AssignedTask) -> None:
        """Add a task; an entry of the same id is replaced, whatever its role."""
        self._check_writable()
        self._tasks[task.id] = task

    def remove_task(self, task: AssignedTask) -> None:
        """Remove the entry with the task's id, whatever its role; nothing happens when there is none."""
        self._check_writable()
        self._tasks.pop(task.id, None)

    def _check_writable(self) -> None:
        if self._read_only:
            raise UnsupportedOperationError(
                "an assignment made by with_followup_rebalance is a view; change the assignment it was made from"
            )

    def __str__(self) -> str:
        tasks = ", ".join(str(self._tasks[task]) for task in in_hash_order(self._tasks, task_hash))
        followup = "" if self._deadline is None else f", follow-up at {self._deadline.isoformat()}"
        return f"KafkaStreamsAssignment{{{self._process_id}, [{tasks}]{followup}}}"

    __repr__ = __str__


class TaskTopicPartition(Protocol):
    """A partition that a task reads or writes as its changelog; a source topic used as changelog is both.

    Equal when the partition and both flags are.
    """

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and number."""

    @property
    def is_source(self) -> bool:
        """True when the task reads records of it."""

    @property
    def is_changelog(self) -> bool:
        """True when it is the changelog of one of the task's stores; a source topic can be that as well."""

    def rack_ids(self) -> frozenset[str] | None:
        """Racks of the replicas that have one (``broker.rack``); None when the partition's replicas are not known.

        The first call for any partition looks all of them up, which may take a request to the cluster.
        """


class TaskInfo(Protocol):
    """What is known about a task."""

    @property
    def id(self) -> TaskId:
        """Sub-topology and partition."""

    @property
    def is_stateful(self) -> bool:
        """Whether the sub-topology has a state store, with or without changelog."""

    @property
    def state_store_names(self) -> frozenset[str]:
        """The stores of its sub-topology."""

    @property
    def topic_partitions(self) -> frozenset[TaskTopicPartition]:
        """Inputs and changelogs."""


class KafkaStreamsState(Protocol):
    """What is known about one client before the rebalance."""

    @property
    def process_id(self) -> ProcessId:
        """Which client it is; it keeps its id as long as it keeps its state directory."""

    @property
    def num_processing_threads(self) -> int:
        """Number of its member consumers: its capacity."""

    @property
    def consumer_client_ids(self) -> Sequence[str]:
        """Its consumers, ascending."""

    @property
    def previous_active_tasks(self) -> Sequence[TaskId]:
        """Tasks it ran as active, ascending; may name tasks that no longer exist."""

    @property
    def previous_standby_tasks(self) -> Sequence[TaskId]:
        """Tasks it had as standby or has state of, ascending; may name tasks that no longer exist."""

    @property
    def host_info(self) -> HostInfo | None:
        """Its ``application.server``; None when it has none."""

    @property
    def client_tags(self) -> Mapping[str, str]:
        """Its settings ``client.tag.*`` (KIP-708), without the prefix."""

    @property
    def rack_id(self) -> str | None:
        """``client.rack`` of its first consumer."""

    def lag_for(self, task: TaskId) -> int:
        """Lag in records of a task with changelog; -2 when it is running as active here, -3 when unknown.

        UnsupportedOperationError when lags were not requested, IllegalStateError for any other task.
        """

    def prev_tasks_by_lag(self, consumer_client_id: str) -> list[TaskId]:
        """Tasks with a lag that this consumer had, ordered by lag, then id; empty for an unknown consumer.

        UnsupportedOperationError when lags were not requested.
        """

    def stateful_tasks_to_lag_sums(self) -> dict[TaskId, int]:
        """Lag of every task with changelog. UnsupportedOperationError when lags were not requested."""


class ApplicationState(Protocol):
    """Input of :meth:`TaskAssignor.assign`."""

    def kafka_streams_states(self, *, compute_task_lags: bool = False) -> Mapping[ProcessId, KafkaStreamsState]:
        """All clients. Lags can be read only from the states asked for with ``compute_task_lags=True``.

        After the end offsets could not be fetched every lag is -3, except -2 where a task was running.
        """

    def assignment_configs(self) -> AssignmentConfigs:
        """The leader's settings that placement depends on."""

    def all_tasks(self) -> Mapping[TaskId, TaskInfo]:
        """Every task of the application; read-only."""


class AssignmentError(Enum):
    """Result of validating an assignment (KIP-924)."""

    NONE = "the assignment is valid"
    ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES = "a task is active on more than one client"
    INVALID_STANDBY_TASK = "a stateless task is assigned as standby"
    MISSING_PROCESS_ID = "a client of the group has no entry in the assignment"
    UNKNOWN_PROCESS_ID = "an entry of the assignment is for a client that is not in the group"
    UNKNOWN_TASK_ID = "a task is assigned that the application does not have"


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """What the leader sends to each member, by member id."""

    group_assignment: Mapping[str, MemberAssignment] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSubscription:
    """What each member subscribed with, by member id."""

    group_subscription: Mapping[str, MemberSubscription] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """Answer of a task assignor: one entry for each client, also for clients without tasks."""

    assignment: Collection[KafkaStreamsAssignment]


class TaskAssignor(abc.ABC):
    """Decides which client gets which task (KIP-924).

    A new instance is made and configured for every rebalance on the group leader; what it remembers does not survive.
    """

    @abc.abstractmethod
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place every task; each client of ``application_state`` gets an entry, also one without tasks.

        To refuse, raise ``streams_py.errors.TaskAssignmentError`` with the reason. Then, as after any other exception,
        after an answer that breaks a rule of :class:`AssignmentError`, and when this does not return in time, every
        member keeps the tasks that it has, the error is logged and kept with the leader's thread, and the leader asks
        again after a while. (Kafka Streams sends everybody an error assignment, which ends all threads.)
        ``on_assignment_computed`` is not called after an exception.

        Called on the leader in a thread that does nothing else meanwhile. Decide by ids and numbers alone, never by
        the clock, chance or the order of a set: otherwise tasks move for no reason whenever the group rebalances.
        """

    def on_assignment_computed(  # noqa: B027  # optional hook, empty on purpose
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        """Called after each :meth:`assign` that returned, with the result of its validation.

        The group assignment is empty after UNKNOWN_PROCESS_ID and UNKNOWN_TASK_ID.
        """

    def configure(self, configs: Mapping[str, object]) -> None:  # noqa: B027  # optional hook, empty on purpose
        """Receives the application's configuration as the user wrote it, before :meth:`assign`."""
