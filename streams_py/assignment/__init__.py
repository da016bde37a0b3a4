"""Task assignment (KIP-924): the public interface for your own assignor, and the built-in ones.

Start with :class:`TaskAssignor`; :mod:`streams_py.assignment.task_assignment_utils` has building blocks for it.
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
from streams_py.assignment.validation import validate_task_assignment

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
    "TaskAssignment",
    "TaskAssignor",
    "TaskId",
    "TaskInfo",
    "TaskTopicPartition",
    "TaskType",
    "validate_task_assignment",
]
