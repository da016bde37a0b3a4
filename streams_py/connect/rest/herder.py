"""What the REST interface needs of a worker. Every method may be called on any thread, and may wait.

Methods raise :mod:`streams_py.connect.errors`: NotFoundError for unknown connectors and tasks, NotLeaderError with the
URL of the worker to ask instead, RebalanceExpectedError when the same may work in a moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from streams_protocol.connect import TaskId
from streams_py.connect.stores.configs import TargetState
from streams_py.connect.worker.group_view import GroupView

__all__ = ["ConnectorStatusView", "JobStatusView", "RestHerder", "SessionKeyView"]


class JobStatusView(Protocol):
    """What became of a connector's instance or a task."""

    @property
    def state(self) -> Enum:
        """Its value is what users see: ``RUNNING``, ``FAILED``, ..."""
        ...

    @property
    def worker_id(self) -> str: ...
    @property
    def trace(self) -> str | None:
        """Traceback of a job that has failed; None for others."""
        ...


class ConnectorStatusView(Protocol):
    @property
    def connector(self) -> JobStatusView | None:
        """None before its first status."""
        ...

    @property
    def tasks(self) -> Mapping[TaskId, JobStatusView]: ...


class SessionKeyView(Protocol):
    @property
    def key(self) -> str:
        """The session key that signs requests among workers, in base64."""
        ...


class RestHerder(Protocol):
    """What the REST interface asks of its worker."""

    # -- the worker itself ---------------------------------------------------------------------------------------------

    def cluster_id(self) -> str | None:
        """Of the Kafka cluster; None when it has none."""
        ...

    def is_ready(self) -> bool:
        """Whether the topics are read and the worker is in its group. Does not wait. Raises EndedError."""
        ...

    def ping(self) -> None:
        """Return once the herder's thread has answered."""
        ...

    def signs_requests(self) -> bool:
        """Whether the group's protocol wants requests between workers signed."""
        ...

    @property
    def session_key(self) -> SessionKeyView | None:
        """The group's key; None while none is known."""
        ...

    def metrics(self) -> Mapping[str, Mapping[str, int | str]]:
        """Figures of this worker, by their group."""
        ...

    # -- any worker ----------------------------------------------------------------------------------------------------

    def connectors(self) -> Sequence[str]: ...
    def config(self, name: str) -> Mapping[str, str]: ...
    def shown(self, name: str, config: Mapping[str, str]) -> Mapping[str, str]:
        """A configuration of a connector, or of one of its tasks, as it may be seen."""
        ...

    def kind(self, name: str) -> str:
        """``source``, ``sink`` or ``unknown``."""
        ...

    def task_configs(self, name: str) -> Sequence[Mapping[str, str]]: ...
    def status(self, name: str) -> ConnectorStatusView: ...
    def offsets(self, name: str) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """(partition, offset) of a connector."""
        ...

    def pause_connector(self, name: str) -> None: ...
    def resume_connector(self, name: str) -> None: ...

    # -- the leader ----------------------------------------------------------------------------------------------------

    def create_connector(self, name: str, config: Mapping[str, str], state: TargetState | None) -> None:
        """Raises AlreadyExistsError, BadRequestError."""
        ...

    def put_connector(self, name: str, config: Mapping[str, str]) -> bool:
        """Create or change; True when it is new. Raises BadRequestError."""
        ...

    def delete_connector(self, name: str) -> None: ...
    def stop_connector(self, name: str) -> None: ...
    def alter_offsets(self, name: str, changes: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]) -> bool:
        """Change offsets of a stopped connector; True when it changed some of its own, too. Raises BadRequestError."""
        ...

    def reset_offsets(self, name: str) -> bool:
        """Remove all offsets of a stopped connector; as :meth:`alter_offsets`."""
        ...

    def restart_connector(self, name: str, *, include_tasks: bool, only_failed: bool) -> None: ...
    def group(self) -> GroupView:
        """All workers and what they run."""
        ...

    def put_tasks(self, name: str, configs: list[dict[str, str]]) -> None:
        """Task configurations from the worker that runs the connector."""
        ...

    # -- the owner -----------------------------------------------------------------------------------------------------

    def restart_task(self, task: TaskId) -> None: ...
