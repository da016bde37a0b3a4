"""A group of workers in memory: one state, a leader, owners of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import httpx

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.jobs import Jobs
from streams_py.connect.errors import (
    AlreadyExistsError,
    BadRequestError,
    NotFoundError,
    NotLeaderError,
    RebalanceExpectedError,
)
from streams_py.connect.rest.app import rest_app
from streams_py.connect.stores.configs import TargetState
from streams_py.connect.worker.group_view import GroupView, Unassigned, WorkerView


class State(Enum):
    RUNNING = "RUNNING"
    FAILED = "FAILED"


@dataclass
class Status:
    state: State
    worker_id: str
    trace: str | None = None


@dataclass
class Connector:
    config: dict[str, str]
    target: str = "STARTED"
    tasks: list[dict[str, str]] = field(default_factory=list)
    connector: Status | None = None
    statuses: dict[TaskId, Status] = field(default_factory=dict)


@dataclass
class Key:
    key: str


@dataclass
class Group:
    """The state that all workers share. ``leader`` and the ``owners`` are URLs."""

    leader: str | None = "http://w1/"
    connectors: dict[str, Connector] = field(default_factory=dict)
    owners: dict[TaskId, str] = field(default_factory=dict)
    done: list[tuple[str, str]] = field(default_factory=list)
    key: Key | None = None
    signs: bool = True
    rebalances_left: int = 0


class MemoryHerder:
    """A worker of a group. ``leader`` overrides the group's leader in this worker's view."""

    def __init__(self, group: Group, url: str = "http://w1/", leader: str | None = None) -> None:
        self._group, self._url, self._leader = group, url, leader
        self.ready = True
        self.on_ping: Callable[[], Any] = lambda: None

    def _lead(self, what: str) -> None:
        self._settled()
        leader = self._leader or self._group.leader
        if leader != self._url:
            raise NotLeaderError("only the leader can do this", leader)
        self._group.done.append((self._url, what))

    def _settled(self) -> None:
        if self._group.rebalances_left:
            self._group.rebalances_left -= 1
            raise RebalanceExpectedError("the group is changing")

    def _of(self, name: str) -> Connector:
        if name not in self._group.connectors:
            raise NotFoundError(f"connector {name} does not exist")
        return self._group.connectors[name]

    def cluster_id(self) -> str:
        return "cluster"

    def is_ready(self) -> bool:
        return self.ready

    def metrics(self) -> dict[str, dict[str, int | str]]:
        return {"connect-worker-metrics": {"task-count": 1}}

    def ping(self) -> None:
        self.on_ping()

    def signs_requests(self) -> bool:
        return self._group.signs

    @property
    def session_key(self) -> Key | None:
        return self._group.key

    def connectors(self) -> list[str]:
        return sorted(self._group.connectors)

    def config(self, name: str) -> dict[str, str]:
        return self._of(name).config

    def kind(self, name: str) -> str:
        self._of(name)
        return "source"

    def task_configs(self, name: str) -> list[dict[str, str]]:
        return self._of(name).tasks

    def status(self, name: str) -> Any:
        found = self._of(name)

        class Answer:
            connector, tasks = found.connector, found.statuses

        return Answer

    def offsets(self, name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        self._of(name)
        return [({"file": "f"}, {"position": 3})]

    def shown(self, name: str, config: Any) -> dict[str, str]:
        return dict(config)

    def alter_offsets(self, name: str, changes: Any) -> bool:
        self._lead(f"alter {name} {changes}")
        self._of(name)
        return name == "c"

    def reset_offsets(self, name: str) -> bool:
        self._lead(f"reset {name}")
        self._of(name)
        return name == "c"

    def pause_connector(self, name: str) -> None:
        self._of(name).target = "PAUSED"

    def resume_connector(self, name: str) -> None:
        self._of(name).target = "STARTED"

    def create_connector(self, name: str, config: dict[str, str], state: TargetState | None) -> None:
        self._lead("create")
        if name in self._group.connectors:
            raise AlreadyExistsError(f"connector {name} exists already")
        self.put_connector(name, config)
        self._of(name).target = (state or TargetState.STARTED).value

    def put_connector(self, name: str, config: dict[str, str]) -> bool:
        self._lead("put")
        if "connector.class" not in config:
            raise BadRequestError("connector.class is required")
        is_new = name not in self._group.connectors
        self._group.connectors.setdefault(name, Connector({})).config = dict(config)
        return is_new

    def delete_connector(self, name: str) -> None:
        self._lead("delete")
        self._of(name)
        del self._group.connectors[name]

    def stop_connector(self, name: str) -> None:
        self._lead("stop")
        self._of(name).target = "STOPPED"

    def restart_connector(self, name: str, *, include_tasks: bool, only_failed: bool) -> None:
        self._lead(f"restart {include_tasks} {only_failed}")
        self._of(name)

    def group(self) -> GroupView:
        self._lead("group")
        running = Jobs.of(["c"], [TaskId("c", 0)])
        workers = (
            WorkerView("w1:1", is_leader=True, owned=running, listed=None),
            WorkerView("w2:1", is_leader=False, owned=Jobs(), listed=Jobs.of((), [TaskId("c", 7)])),
        )
        return GroupView("static", 0, workers, {TaskId("c", 1): Unassigned(("w1:1",), "it is moving")})

    def put_tasks(self, name: str, configs: list[dict[str, str]]) -> None:
        self._lead("tasks")
        self._of(name).tasks = configs

    def restart_task(self, task: TaskId) -> None:
        owner = self._group.owners.get(task)
        if owner is None:
            raise NotFoundError(f"task {task} does not exist")
        if owner != self._url:
            raise NotLeaderError("not here", owner if self._group.leader == self._url else self._group.leader)
        self._group.done.append((self._url, f"restart {task}"))


class Network(httpx.AsyncBaseTransport):
    """A network of workers. Unknown hosts cannot be reached. ``asked`` contains the requests between workers."""

    def __init__(self) -> None:
        self.apps: dict[str, Any] = {}
        self.asked: list[str] = []

    def add(self, herder: MemoryHerder, host: str = "w1", **settings: Any) -> Any:
        self.apps[host] = rest_app(herder, transport=self, **settings)
        return self.apps[host]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.method} {request.url}")
        if request.url.host not in self.apps:
            raise httpx.ConnectError("connection refused")
        return await httpx.ASGITransport(self.apps[request.url.host]).handle_async_request(request)
