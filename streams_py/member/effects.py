"""Effects of a member. The caller carries them out in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from streams_protocol.types import TaskId
from streams_py.errors import StreamsError
from streams_py.member.tasks import HostView, Tasks


@dataclass(frozen=True, slots=True)
class SendUserData:
    """Put these bytes into the JoinGroup request."""

    user_data: bytes


@dataclass(frozen=True, slots=True)
class ShowHosts:
    """Replace the host maps that interactive queries use."""

    hosts: HostView


@dataclass(frozen=True, slots=True)
class ApplyTasks:
    """Close, keep, recycle and create tasks, so that this thread has exactly these tasks."""

    tasks: Tasks


@dataclass(frozen=True, slots=True)
class SuspendTasks:
    """Commit, then suspend these active tasks, because their partitions are revoked.

    ``tasks`` may be empty. The thread processes no records until the next ApplyTasks, which resumes, closes or recycles
    the suspended tasks.
    """

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class CloseLostTasks:
    """Close these active tasks without committing, including suspended ones. Standbys stay."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class CompleteRebalance:
    """Allow commits again and release directory locks of tasks that this thread does not have."""


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
    """Close this client and leave it in state ERROR, because a member requested a shutdown."""


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line with a level of the standard library's ``logging``."""

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
