"""What a member wants done; to be carried out in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from streams_protocol.types import TaskId
from streams_py.errors import StreamsError
from streams_py.member.assignment import HostView, Tasks

__all__ = [
    "ApplyTasks",
    "CloseLostTasks",
    "CompleteRebalance",
    "Effect",
    "FailThread",
    "Log",
    "RequestRejoin",
    "SendUserData",
    "ShowHosts",
    "StopApplication",
    "SuspendTasks",
]


@dataclass(frozen=True, slots=True)
class SendUserData:
    """Put these bytes into the JoinGroup request."""

    user_data: bytes


@dataclass(frozen=True, slots=True)
class ShowHosts:
    """Replace what interactive queries know about hosts."""

    hosts: HostView


@dataclass(frozen=True, slots=True)
class ApplyTasks:
    """Close, keep, recycle, create: afterwards exactly these tasks exist on this thread."""

    tasks: Tasks


@dataclass(frozen=True, slots=True)
class SuspendTasks:
    """Partitions go: commit, then suspend these active tasks, which may be none; the next ApplyTasks resumes, closes or
    recycles them. Nothing is processed until then."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class CloseLostTasks:
    """Close these active tasks, suspended ones among them, without committing; standbys stay."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class CompleteRebalance:
    """Release the directory locks of tasks that this thread does not have; commits are allowed again."""


@dataclass(frozen=True, slots=True)
class RequestRejoin:
    """Join the group again."""

    reason: str


@dataclass(frozen=True, slots=True)
class FailThread:
    """Raise this error in the stream thread, for the uncaught-exception handler."""

    error: StreamsError


@dataclass(frozen=True, slots=True)
class StopApplication:
    """Close this client; it ends in ERROR, because a member asked for it."""


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line at a level of the standard library's ``logging``."""

    level: int
    text: str


Effect: TypeAlias = (
    SendUserData
    | ShowHosts
    | ApplyTasks
    | SuspendTasks
    | CloseLostTasks
    | CompleteRebalance
    | RequestRejoin
    | FailThread
    | StopApplication
    | Log
)
