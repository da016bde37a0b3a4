"""The interface between the REST application and its worker.

Every method may be called on any thread, and may wait.

Methods raise errors of :mod:`streams_py.connect.errors`: NotFoundError for unknown connectors and tasks, NotLeaderError
with the URL of the right worker, RebalanceExpectedError if the request may succeed in a moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from streams_protocol.connect import TaskId
from streams_py.connect.stores.configs import TargetState
from streams_py.connect.worker.group_view import GroupView


class JobStatusView(Protocol):
    """The status of a connector or a task."""

    @property
    def state(self) -> Enum:
        """The state. Its value is for users: ``RUNNING``, ``FAILED``, ..."""
        ...

    @property
    def worker_id(self) -> str: ...
    @property
    def trace(self) -> str | None:
        """Traceback of a failed job. None for other jobs."""
        ...


class ConnectorStatusView(Protocol):
    @property
    def connector(self) -> JobStatusView | None:
        """Status of the connector itself, or None before its first status."""
        ...

    @property
    def tasks(self) -> Mapping[TaskId, JobStatusView]: ...


class SessionKeyView(Protocol):
    @property
    def key(self) -> str:
        """The session key for signatures of requests between workers, in base64."""
        ...


class RestHerder(Protocol):
    """The methods of a worker that the REST interface uses."""

    # -- the worker itself ---------------------------------------------------------------------------------------------

    def cluster_id(self) -> str | None:
        """Return the id of the Kafka cluster, or None if it has no id."""
        ...

    def is_ready(self) -> bool:
        """Whether the topics have been read and the worker is in its group.

        Does not wait. Raises EndedError.
        """
        ...

    def ping(self) -> None:
        """Return when the herder's thread has answered."""
        ...

    def signs_requests(self) -> bool:
        """Whether the group's protocol requires signatures of requests between workers."""
        ...

    @property
    def session_key(self) -> SessionKeyView | None:
        """The group's session key, or None if it is unknown."""
        ...

    def metrics(self) -> Mapping[str, Mapping[str, int | str]]:
        """Return metrics of this worker, by metric group."""
        ...

    # -- any worker ----------------------------------------------------------------------------------------------------

    def connectors(self) -> Sequence[str]: ...
    def config(self, name: str) -> Mapping[str, str]: ...
    def shown(self, name: str, config: Mapping[str, str]) -> Mapping[str, str]:
        """Return a configuration of a connector or task without its secrets."""
        ...

    def kind(self, name: str) -> str:
        """Return ``source``, ``sink`` or ``unknown``."""
        ...

    def task_configs(self, name: str) -> Sequence[Mapping[str, str]]: ...
    def status(self, name: str) -> ConnectorStatusView: ...
    def offsets(self, name: str) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Return (partition, offset) pairs of a connector."""
        ...

    def pause_connector(self, name: str) -> None: ...
    def resume_connector(self, name: str) -> None: ...

    # -- the leader ----------------------------------------------------------------------------------------------------

    def create_connector(self, name: str, config: Mapping[str, str], state: TargetState | None) -> None:
        """Create a connector. Raises AlreadyExistsError, BadRequestError."""
        ...

    def put_connector(self, name: str, config: Mapping[str, str]) -> bool:
        """Create or change a connector. Returns whether it is new. Raises BadRequestError."""
        ...

    def delete_connector(self, name: str) -> None: ...
    def stop_connector(self, name: str) -> None: ...
    def alter_offsets(self, name: str, changes: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]) -> bool:
        """Change offsets of a stopped connector. Raises BadRequestError.

        Returns whether the connector has also changed offsets that it keeps outside Kafka.
        """
        ...

    def reset_offsets(self, name: str) -> bool:
        """Remove all offsets of a stopped connector. Returns and raises like :meth:`alter_offsets`."""
        ...

    def restart_connector(self, name: str, *, include_tasks: bool, only_failed: bool) -> None: ...
    def group(self) -> GroupView:
        """Return all workers and their jobs."""
        ...

    def put_tasks(self, name: str, configs: list[dict[str, str]]) -> None:
        """Store task configurations from the worker that runs the connector."""
        ...

    # -- the owner -----------------------------------------------------------------------------------------------------

    def restart_task(self, task: TaskId) -> None: ...
