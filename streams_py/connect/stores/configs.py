"""The config topic: the connectors and tasks to run.

Formats and rules are those of ``KafkaConfigBackingStore``.

:class:`ConfigTable` processes records. :class:`ConfigStore` reads and writes the topic.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.leader import ConfigSnapshot
from streams_py.connect.stores.log import TopicLog
from streams_py.errors import TimeoutExceededError
from streams_py.ports import RawRecord
from streams_py.system.foreign_json import loads as loads_foreign

_log = logging.getLogger("streams_py.connect")

_WRITE_BUDGET_S = 30.0
_TASKS_MAX = 1_000_000
"""Maximum number of tasks of a connector.

Each task takes memory before its configuration is known.
"""


class TargetState(Enum):
    """The requested state of a connector and its tasks."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The group's key for requests between workers. ``created_ms`` is since the epoch."""

    key: str = field(repr=False)
    algorithm: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """A request to restart a connector.

    ``include_tasks`` also restarts its tasks. ``only_failed`` restarts failed jobs only.
    """

    connector: str
    include_tasks: bool
    only_failed: bool


@dataclass(frozen=True, slots=True)
class ConnectorUpdated:
    name: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class ConnectorRemoved:
    name: str


@dataclass(frozen=True, slots=True)
class TasksUpdated:
    name: str


@dataclass(frozen=True, slots=True)
class TargetStateChanged:
    name: str


ConfigChange = ConnectorUpdated | ConnectorRemoved | TasksUpdated | TargetStateChanged | RestartRequest | SessionKey


@dataclass(frozen=True, slots=True)
class Configs:
    """The content of the config topic.

    Attributes:
        offset: The topic has been read up to this offset. -1: nothing read.
        connectors: Configuration of each connector.
        tasks: Configuration of each task.
        task_counts: Number of tasks of each connector.
        target_states: Requested state of each connector.
        applied: Configuration of each connector when its tasks were last committed.
        inconsistent: Connectors whose task set is incomplete.
        session_key: Key for requests between workers.
    """

    offset: int = -1
    connectors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tasks: Mapping[TaskId, Mapping[str, str]] = field(default_factory=dict)
    task_counts: Mapping[str, int] = field(default_factory=dict)
    target_states: Mapping[str, TargetState] = field(default_factory=dict)
    applied: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    inconsistent: frozenset[str] = frozenset()
    session_key: SessionKey | None = None

    def task_configs(self, name: str) -> list[Mapping[str, str]]:
        """Return the configurations of all tasks of a connector. Empty while they are inconsistent."""
        if name in self.inconsistent:
            return []
        return [self.tasks[TaskId(name, n)] for n in range(self.task_counts.get(name, 0))]

    def target_state(self, name: str) -> TargetState:
        return self.target_states.get(name, TargetState.STARTED)

    @property
    def group_view(self) -> ConfigSnapshot:
        """The part of the content that the assignor needs."""
        counts = {name: self.task_counts.get(name, 0) for name in self.connectors}
        return ConfigSnapshot(self.offset, counts, self.inconsistent)


class ConfigTable:
    """Applies records one by one. Not thread-safe."""

    def __init__(self) -> None:
        self._offset = -1
        self._connectors: dict[str, dict[str, str]] = {}
        self._tasks: dict[TaskId, dict[str, str]] = {}
        self._counts: dict[str, int] = {}
        self._states: dict[str, TargetState] = {}
        self._applied: dict[str, dict[str, str]] = {}
        self._pending: dict[str, dict[int, dict[str, str]]] = {}
        self._early: dict[str, tuple[int, dict[int, dict[str, str]]]] = {}
        """Committed tasks of connectors whose record has not been read yet.

        After compaction, the record of a connector that was written again comes after its tasks.
        """
        self._inconsistent: set[str] = set()
        self._session_key: SessionKey | None = None

    def snapshot(self) -> Configs:
        return Configs(
            self._offset,
            dict(self._connectors),
            dict(self._tasks),
            dict(self._counts),
            dict(self._states),
            dict(self._applied),
            frozenset(self._inconsistent),
            self._session_key,
        )

    def apply(self, key: bytes | None, value: bytes | None, offset: int) -> ConfigChange | None:
        """Apply a record and return the change.

        A record that is not JSON is skipped, without a new offset.
        """
        try:
            content = None if value is None else loads_foreign(value)
            text = (key or b"").decode()
        except ValueError:
            _log.error("the config record at offset %d is not JSON; ignoring it", offset)
            return None
        self._offset = offset + 1
        try:
            return self._dispatch(text, content)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError) as error:
            _log.error("the config record %s at offset %d is not valid; ignoring it: %r", text, offset, error)
            return None

    def _dispatch(self, key: str, content: Any) -> ConfigChange | None:
        for prefix, handle in (
            ("target-state-", self._target_state),
            ("connector-", self._connector),
            ("task-", self._task),
            ("commit-", self._commit),
            ("restart-connector-", self._restart),
        ):
            if key.startswith(prefix):
                return handle(key[len(prefix) :], content)
        if key == "session-key":
            if content is not None:
                self._session_key = SessionKey(
                    str(content["key"]), str(content["algorithm"]), int(content["creation-timestamp"])
                )
            return self._session_key
        if not key.startswith(("tasks-fencing-", "logger-cluster-")):
            _log.warning("unknown key %r of a config record; ignoring it", key)
        return None

    def _target_state(self, name: str, content: Any) -> ConfigChange | None:
        if content is None:
            self._states.pop(name, None)
            return None  # the connector is deleted as well
        state = TargetState(content["state.v2"] if content.get("state.v2") is not None else content["state"])
        before = self._states.get(name)
        self._states[name] = state
        return TargetStateChanged(name) if name in self._connectors and before is not state else None

    def _connector(self, name: str, content: Any) -> ConfigChange | None:
        if content is None:
            self._states.pop(name, None)
            known = self._connectors.pop(name, None)
            self._forget_tasks(name)
            return None if known is None else ConnectorRemoved(name)
        is_new = name not in self._connectors
        self._connectors[name] = _strings(content["properties"])
        self._states.setdefault(name, TargetState.STARTED)
        if name in self._early:
            # `applied` remains unset, so the connector's worker writes the tasks again.
            self._replace_tasks(name, *self._early.pop(name))
        return ConnectorUpdated(name, is_new)

    def _task(self, text: str, content: Any) -> None:
        name, _, number = text.rpartition("-")
        if content is not None:
            self._pending.setdefault(name, {})[_whole(int(number))] = _strings(content["properties"])

    def _commit(self, name: str, content: Any) -> ConfigChange | None:
        if content is None:
            self._forget_tasks(name)
            return None  # the connector was deleted before
        count = _whole(content["tasks"])
        pending = self._pending.pop(name, {})
        if name not in self._connectors:
            self._early[name] = count, pending
            return None
        if not self._replace_tasks(name, count, pending):
            return None
        self._applied[name] = self._connectors[name]
        return TasksUpdated(name)

    def _replace_tasks(self, name: str, count: int, configs: Mapping[int, dict[str, str]]) -> bool:
        """Replace a connector's tasks. Returns False if a task has no configuration."""
        self._counts[name] = count
        if not all(number in configs for number in range(count)):
            _log.error("%s: some of its %d tasks have no configuration; no task runs until all have one", name, count)
            self._inconsistent.add(name)
            return False
        self._drop_tasks(name)
        self._tasks.update({TaskId(name, number): configs[number] for number in range(count)})
        self._inconsistent.discard(name)
        return True

    def _restart(self, name: str, content: Any) -> ConfigChange | None:
        if content is None or name not in self._connectors:
            return None
        return RestartRequest(name, bool(content["include-tasks"]), bool(content["only-failed"]))

    def _forget_tasks(self, name: str) -> None:
        self._pending.pop(name, None)
        self._early.pop(name, None)
        self._counts.pop(name, None)
        self._applied.pop(name, None)
        self._inconsistent.discard(name)
        self._drop_tasks(name)

    def _drop_tasks(self, name: str) -> None:
        for task in [task for task in self._tasks if task.connector == name]:
            del self._tasks[task]


class ConfigStore:
    """The config topic.

    Calls ``on_change`` for changes after the first read, on the reader's thread.
    """

    def __init__(self, make_log: Callable[[Callable[[RawRecord], None]], TopicLog]) -> None:
        self._table = ConfigTable()
        self._lock = threading.Lock()
        self._newest = Configs()
        self._on_change: Callable[[ConfigChange], None] | None = None
        self._log = make_log(self._read)

    def start(self, on_change: Callable[[ConfigChange], None]) -> None:
        self._log.start(1)
        with self._lock:
            self._newest = self._table.snapshot()
            self._on_change = on_change

    def stop(self) -> None:
        self._log.stop()

    def snapshot(self) -> Configs:
        """Return the newest content, from memory."""
        with self._lock:
            return self._newest

    def read_to_end(self, timeout_s: float) -> bool:
        return self._log.read_to_end(timeout_s)

    def put_connector(self, name: str, props: Mapping[str, str], target_state: TargetState | None = None) -> None:
        """Create or change a connector."""
        with self._writing() as left:
            if target_state is not None:
                self._write(f"target-state-{name}", _state_value(target_state), left)
            self._write(f"connector-{name}", {"properties": dict(props)}, left)

    def remove_connector(self, name: str) -> None:
        """Delete a connector and its tasks.

        The tasks need tombstones of their own. Otherwise a later connector of this name would get these tasks, once
        compaction has removed the connector's tombstone.
        """
        count = self.snapshot().task_counts.get(name, 0)
        with self._writing() as left:
            self._write(f"connector-{name}", None, left)
            self._write(f"target-state-{name}", None, left)
            self._write(f"commit-{name}", None, left)
            self._log.write_all([(f"task-{name}-{number}".encode(), None) for number in range(count)], left())

    def put_tasks(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Replace all tasks of a connector. Takes effect with the last record."""
        with self._writing() as left:
            self._sync(left)
            records = [
                (f"task-{name}-{n}".encode(), _json({"properties": dict(props)})) for n, props in enumerate(configs)
            ]
            self._log.write_all(records, left())
            self._sync(left)
            self._write(f"commit-{name}", {"tasks": len(configs)}, left)

    def put_target_state(self, name: str, state: TargetState) -> None:
        with self._writing() as left:
            self._write(f"target-state-{name}", _state_value(state), left)

    def put_session_key(self, key: SessionKey) -> None:
        with self._writing() as left:
            value = {"key": key.key, "algorithm": key.algorithm, "creation-timestamp": key.created_ms}
            self._write("session-key", value, left)

    def put_restart(self, request: RestartRequest) -> None:
        with self._writing() as left:
            value = {"include-tasks": request.include_tasks, "only-failed": request.only_failed}
            self._write(f"restart-connector-{request.connector}", value, left)

    @contextmanager
    def _writing(self) -> Iterator[Callable[[], float]]:
        """Yield a function for the remaining time, and read the written records back at the end."""
        deadline = time.monotonic() + _WRITE_BUDGET_S

        def left() -> float:
            return max(0.0, deadline - time.monotonic())

        yield left
        self._sync(left)

    def _write(self, key: str, value: Any, left: Callable[[], float]) -> None:
        self._log.write(key.encode(), None if value is None else _json(value), left())

    def _sync(self, left: Callable[[], float]) -> None:
        if not self._log.read_to_end(left()):
            raise TimeoutExceededError(f"the config topic could not be read to its end in {_WRITE_BUDGET_S:.0f} s")

    def _read(self, record: RawRecord) -> None:
        change = self._table.apply(record.key(), record.value(), record.offset())
        if self._on_change is None:  # during the first read, a copy per record would be wasted
            return
        with self._lock:
            self._newest = self._table.snapshot()
        if change is not None:
            self._on_change(change)


def _whole(number: Any) -> int:
    if type(number) is not int or not 0 <= number <= _TASKS_MAX:
        raise ValueError(f"a task number or task count must be from 0 to {_TASKS_MAX}")
    return number


def _strings(properties: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): value if isinstance(value, str) else json.dumps(value) for key, value in properties.items()}


def _state_value(state: TargetState) -> dict[str, str]:
    old = TargetState.PAUSED if state is TargetState.STOPPED else state
    return {"state": old.value, "state.v2": state.value}


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
