"""One worker, as used by its REST interface and its command.

Lists and statuses come from this worker's own view. Operations of the leader raise NotLeaderError on other workers,
with the leader's URL, so that the caller can be redirected.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import TypeVar

from streams_protocol.connect import TaskId
from streams_py.connect.api import JsonMap, SinkConnector, SourceConnector
from streams_py.connect.assignment.jobs import Jobs
from streams_py.connect.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConnectError,
    EndedError,
    NotFoundError,
    NotLeaderError,
    RebalanceExpectedError,
    StartingError,
)
from streams_py.connect.group.member import GroupMember
from streams_py.connect.policy.worker_policy import LoadedConnector, WorkerPolicy
from streams_py.connect.ports import ConnectClients
from streams_py.connect.settings import WorkerSettings
from streams_py.connect.stores.configs import Configs, RestartRequest, SessionKey, TargetState
from streams_py.connect.stores.statuses import JobStatus
from streams_py.connect.worker.group_view import GroupView, group_view
from streams_py.connect.worker.herder import Forward, Herder, TaskConfigs
from streams_py.connect.worker.metrics import Metrics, worker_metrics
from streams_py.connect.worker.offsets import ConnectorOffsets, OffsetChange
from streams_py.connect.worker.stores import Stores
from streams_py.errors import ConfigError
from streams_py.system.printable import text_of

_log = logging.getLogger("streams_py.connect")

_Answer = TypeVar("_Answer")

_REQUEST_S = 90.0
_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """Statuses of a connector and its tasks. ``connector`` is None before its first status."""

    connector: JobStatus | None
    tasks: Mapping[TaskId, JobStatus]


class Worker:
    """A worker, started with :meth:`start`. Thread-safe.

    ``forward`` sends task configurations to another worker's :meth:`put_tasks`. Requests raise
    :class:`~streams_py.connect.errors.ConnectError`.
    """

    def __init__(self, settings: WorkerSettings, clients: ConnectClients, forward: Forward) -> None:
        self.settings = settings
        self._policy = settings.policy
        self._has_read = False
        self._cluster_id: str | None = None
        self._stores = Stores(settings, clients)
        self._offsets = ConnectorOffsets(self._stores.offsets, clients)
        self._herder = Herder(settings, clients, self._stores, forward)
        self._thread = threading.Thread(target=self._run, name="connect-herder", daemon=True)
        self.failure: Exception | None = None
        """The error that stopped the worker, or None."""

    def start(self) -> None:
        """Read the topics, then join the group on a thread.

        Raises ConfigError or BrokerUnavailableError.
        """
        try:
            self._stores.start(self._herder.on_change)
        except BaseException:
            self._herder.member.stop()
            self._stores.stop()
            raise
        self._thread.start()
        self._has_read = True

    def wait(self, timeout_s: float) -> bool:
        """Wait until the worker has stopped. Returns False if it still runs after ``timeout_s``."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop all jobs, leave the group and close all clients."""
        self._herder.stop()
        if self._thread.ident is not None:
            self._thread.join(_STOP_S)
        self._stores.stop()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def member(self) -> GroupMember:
        """The group membership: mode, leader, assigned jobs."""
        return self._herder.member

    @property
    def jobs(self) -> Jobs:
        """The jobs of this worker now, including failed jobs."""
        return self._herder.jobs.alive

    @property
    def configs(self) -> Configs:
        """This worker's view of the config topic.

        Raises StartingError before it is read, EndedError after the stop.
        """
        self._require_work()
        return self._stores.configs.snapshot()

    @property
    def session_key(self) -> SessionKey | None:
        """The key for signatures of requests between workers, or None before the first key."""
        return self.configs.session_key

    def is_ready(self) -> bool:
        """Whether the topics have been read and the worker has joined its group.

        Does not wait. Raises EndedError.
        """
        if not self._has_read:
            return False
        self._require_work()
        return self.member.held is not None

    def ping(self) -> None:
        """Return when the herder's thread has answered."""
        self._ask(lambda: None)

    def signs_requests(self) -> bool:
        """Whether the group's protocol requires signatures of requests between workers."""
        return self.member.mode.signs_requests

    def cluster_id(self) -> str | None:
        """Return the id of the Kafka cluster. Raises BrokerUnavailableError."""
        if self._cluster_id is None:
            self._cluster_id = self._stores.cluster_id()
        return self._cluster_id

    def metrics(self) -> Metrics:
        """Return metrics by metric group."""
        return worker_metrics(self.member, self._herder.jobs, self._herder.counters)

    # -- reading -------------------------------------------------------------------------------------------------------

    def connectors(self) -> list[str]:
        """Return the names of connectors, in ascending order."""
        return sorted(self.configs.connectors)

    def config(self, name: str) -> dict[str, str]:
        """Return a connector's configuration."""
        return dict(self._known(name))

    def shown(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        """Return a configuration of a connector or task, with placeholders and without secrets."""
        return self._policy.shown(config, self.configs.connectors.get(name, config))

    def kind(self, name: str) -> str:
        """Return ``source`` or ``sink``, or ``unknown`` if its class cannot be imported here."""
        kind = self._policy.kind_of(self._known(name))
        if kind is not None and issubclass(kind, SourceConnector):
            return "source"
        return "sink" if kind is not None and issubclass(kind, SinkConnector) else "unknown"

    def task_configs(self, name: str) -> list[dict[str, str]]:
        """Return the configurations of a connector's tasks, by number."""
        self._known(name)
        return [dict(one) for one in self.configs.task_configs(name)]

    def status(self, name: str) -> ConnectorStatus:
        """Return the statuses, as far as the status topic has been read."""
        self._known(name)
        tasks = self._stores.statuses.tasks_of(name)
        return ConnectorStatus(self._stores.statuses.get(name), tasks)

    def offsets(self, name: str) -> list[tuple[JsonMap, JsonMap]]:
        """Return (partition, offset) pairs of a connector. Sinks: of the consumer group."""
        return self._offsets.read(name, self._connector(name).connector)

    # -- for the leader ------------------------------------------------------------------------------------------------

    def create_connector(self, name: str, config: Mapping[str, str], state: TargetState | None = None) -> None:
        """Create a connector. Raises AlreadyExistsError."""
        props = _checked(name, config, self._policy)

        def create() -> None:
            self._herder.require_leader()
            if name in self.configs.connectors:
                raise AlreadyExistsError(f"connector {name} exists already; change it with PUT")
            self._stores.configs.put_connector(name, props, state)

        self._ask(create)

    def put_connector(self, name: str, config: Mapping[str, str]) -> bool:
        """Create or change a connector. Returns whether it is new."""
        props = _checked(name, config, self._policy)

        def put() -> bool:
            self._herder.require_leader()
            known = self.configs.connectors.get(name)
            if known != props:  # a repeated record would move the connector after its tasks in the compacted topic
                self._stores.configs.put_connector(name, props)
            return known is None

        return self._ask(put)

    def delete_connector(self, name: str) -> None:
        def delete() -> None:
            self._herder.require_leader()
            self._known(name)
            self._stores.configs.remove_connector(name)

        self._ask(delete)

    def stop_connector(self, name: str) -> None:
        """Stop a connector. It keeps its configuration, and has no tasks until it is resumed."""

        def stop() -> None:
            self._herder.require_leader()
            self._known(name)
            self._stores.configs.put_tasks(name, [])
            self._stores.configs.put_target_state(name, TargetState.STOPPED)

        self._ask(stop)

    def alter_offsets(self, name: str, changes: Sequence[OffsetChange]) -> bool:
        """Change offsets of a stopped connector.

        Returns whether the connector has also changed offsets outside Kafka.
        """
        return self._ask(lambda: self._offsets.alter(name, self._stopped(name), changes))

    def reset_offsets(self, name: str) -> bool:
        """Remove all offsets of a stopped connector. Returns like :meth:`alter_offsets`."""
        return self._ask(lambda: self._offsets.reset(name, self._stopped(name)))

    def restart_connector(self, name: str, *, include_tasks: bool = False, only_failed: bool = False) -> None:
        def restart() -> None:
            self._herder.require_leader()
            self._known(name)
            self._stores.configs.put_restart(RestartRequest(name, include_tasks, only_failed))

        self._ask(restart)

    def put_tasks(self, name: str, configs: TaskConfigs) -> None:
        """Store task configurations from the worker that runs the connector."""

        def put() -> None:
            self._known(name)
            self._herder.write_tasks(name, configs)

        self._ask(put)

    # -- for any worker, or the owner ----------------------------------------------------------------------------------

    def group(self) -> GroupView:
        """Return all workers and their jobs. Only the leader knows them."""

        def look() -> GroupView:
            self._herder.require_leader()
            led = self.member.leader_view
            if led is None:
                raise RebalanceExpectedError("the group is changing; try again in a moment")
            return group_view(led, self.member.member_id(), self.member.mode)

        return self._ask(look)

    def pause_connector(self, name: str) -> None:
        self._set_target(name, TargetState.PAUSED)

    def resume_connector(self, name: str) -> None:
        self._set_target(name, TargetState.STARTED)

    def restart_task(self, task: TaskId) -> None:
        """Restart a task of this worker.

        For other tasks, NotLeaderError has the URL of the right worker.
        """

        def restart() -> None:
            self._known(task.connector)
            if task.task >= len(self.configs.task_configs(task.connector)):
                raise NotFoundError(f"task {task} does not exist")
            if task in self.jobs.tasks:
                self._herder.restart_task(task)
                return
            held = self.member.held
            url = self.member.owner_url(task) if self.member.is_leader else held.leader_url if held else None
            raise NotLeaderError(f"{task} is not on this worker", url)

        self._ask(restart)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _set_target(self, name: str, state: TargetState) -> None:
        def put() -> None:
            self._known(name)
            self._stores.configs.put_target_state(name, state)

        self._ask(put)

    def _connector(self, name: str) -> LoadedConnector:
        try:
            return self._policy.load(self._known(name))
        except ConfigError as error:
            raise BadRequestError(f"{name}: {error}") from None

    def _stopped(self, name: str) -> LoadedConnector:
        """Return the connector, if this worker leads and may change its offsets."""
        self._herder.require_leader()
        connector, configs = self._connector(name), self.configs
        if configs.target_state(name) is not TargetState.STOPPED or configs.task_counts.get(name, 0):
            raise BadRequestError(
                f"connector {name} must be STOPPED before its offsets can be changed: PUT /connectors/{name}/stop"
            )
        return connector

    def _known(self, name: str) -> Mapping[str, str]:
        found = self.configs.connectors.get(name)
        if found is None:
            raise NotFoundError(f"connector {name} does not exist")
        return found

    def _require_work(self) -> None:
        if not self._has_read:
            raise StartingError("the worker is starting and still reading its topics; try again in a moment")
        if not self.is_alive:
            why = "" if self.failure is None else f": {self.failure}"
            raise EndedError(f"the worker has stopped{why}; use another worker of the group")

    def _ask(self, request: Callable[[], _Answer]) -> _Answer:
        self._require_work()
        answer = self._herder.requests.add(request)
        try:
            return answer.result(_REQUEST_S)
        except FutureTimeoutError:
            answer.cancel()  # without a waiting caller, the request must not run later
            raise ConnectError(
                f"the worker did not handle the request within {_REQUEST_S:.0f} s; check that the brokers are up"
            ) from None

    def _run(self) -> None:
        try:
            self._herder.run()
        except Exception as error:
            self.failure = error
            _log.exception("the worker stopped: %s", text_of(error))


def _checked(name: str, config: Mapping[str, str], policy: WorkerPolicy) -> dict[str, str]:
    """Return the configuration including the name.

    BadRequestError lists everything that is wrong.
    """
    wrong: list[str] = []
    if not name.strip() or "/" in name:
        wrong.append(f"name: {name!r} is not a valid name for a connector")
    if config.get("name", name) != name:
        wrong.append(f"name: {config['name']!r} in the configuration, but {name!r} in the request")
    props = {**config, "name": name}
    if not props.get("connector.class"):
        wrong.append("connector.class is required: package.module:Class")
    maximum = props.get("tasks.max", "1")
    if not maximum.isdecimal() or int(maximum) < 1:
        wrong.append(f"tasks.max = {maximum!r} must be a whole number of at least 1")
    if props.get("errors.tolerance", "none").lower() not in ("none", "all"):
        wrong.append(f"errors.tolerance = {props['errors.tolerance']!r} is neither none nor all")
    wrong = wrong or policy.problems(props)
    if wrong:
        raise BadRequestError("; ".join(wrong))
    return props
