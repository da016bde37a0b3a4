"""Task assignment (KIP-924): the public interface of assignors, and the built-in assignors.

Start with :class:`TaskAssignor`. The functions are building blocks for your own assignor
(:mod:`.task_assignment_utils`).
"""

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.api import (
    ApplicationState,
    AssignedTask,
    AssignmentConfigs,
    AssignmentError,
    GroupAssignment,
    GroupSubscription,
    KafkaStreamsAssignment,
    KafkaStreamsState,
    TaskAssignment,
    TaskAssignor,
    TaskInfo,
    TaskTopicPartition,
    TaskType,
)
from streams_py.assignment.task_assignment_utils import (
    RackAwareOptimizationParams,
    default_standby_task_assignment,
    identity_assignment,
    optimize_rack_aware_active_tasks,
    optimize_rack_aware_standby_tasks,
    validate_task_assignment,
)

__all__ = [
    "ApplicationState",
    "AssignedTask",
    "AssignmentConfigs",
    "AssignmentError",
    "GroupAssignment",
    "GroupSubscription",
    "KafkaStreamsAssignment",
    "KafkaStreamsState",
    "ProcessId",
    "RackAwareOptimizationParams",
    "TaskAssignment",
    "TaskAssignor",
    "TaskId",
    "TaskInfo",
    "TaskTopicPartition",
    "TaskType",
    "default_standby_task_assignment",
    "identity_assignment",
    "optimize_rack_aware_active_tasks",
    "optimize_rack_aware_standby_tasks",
    "validate_task_assignment",
]
