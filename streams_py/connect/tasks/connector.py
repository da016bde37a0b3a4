"""The thread of a connector. All calls of the plug-in's Connector come from this thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from streams_py.connect.api import Connector, OffsetReader
from streams_py.connect.policy.classes import class_name
from streams_py.connect.policy.secrets import scrubbed
from streams_py.connect.policy.worker_policy import WorkerPolicy
from streams_py.connect.stores.configs import TargetState
from streams_py.connect.stores.statuses import JobState
from streams_py.connect.tasks.job import JobThread, StatusReport
from streams_py.errors import ConfigError

_STATES = {TargetState.PAUSED: JobState.PAUSED, TargetState.STOPPED: JobState.STOPPED}


class ConnectorThread(JobThread):
    """Runs one connector.

    ``props`` is its configuration, with placeholders. ``on_tasks`` receives the task configurations when they may have
    changed: after a start, after a resume, and when the connector requests it.
    """

    def __init__(
        self,
        name: str,
        props: Mapping[str, str],
        target: TargetState,
        report: StatusReport,
        offset_reader: OffsetReader,
        on_tasks: Callable[[str, list[dict[str, str]]], None],
        policy: WorkerPolicy,
    ) -> None:
        super().__init__(name, target, report)
        self.name = name
        self._given = props
        self._props: Mapping[str, str] = props
        self._policy = policy
        self._offset_reader = offset_reader
        self._on_tasks = on_tasks
        self._asked = False
        self._errors: deque[BaseException] = deque()
        self._connector: Connector | None = None
        self._reached: TargetState | None = None

    # -- ConnectorContext ----------------------------------------------------------------------------------------------

    def request_task_reconfiguration(self) -> None:
        with self._changed:
            self._asked = True
            self._changed.notify_all()

    def raise_error(self, error: BaseException) -> None:
        with self._changed:
            self._errors.append(error)
            self._changed.notify_all()

    @property
    def offset_reader(self) -> OffsetReader:
        return self._offset_reader

    # -- the thread ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            while self._wait():
                if self._errors:
                    raise self._errors.popleft()
                if self._target is not self._reached:
                    self._reach(self._target)
                elif self._connector is not None:
                    self._asked = False
                    tasks = task_props(self._connector, self._props)
                    restore = self._policy.providers.restore
                    self._on_tasks(self.name, [restore(one, self._props, self._given) for one in tasks])
                else:
                    self._asked = False  # paused: it gets the request again after its next start
        finally:
            self._stop_connector()

    def _wait(self) -> bool:
        """Wait for work. Returns False when the thread must stop."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._stopping.is_set() or self._asked or bool(self._errors) or self._target is not self._reached
                )
            )
        return not self._stopping.is_set()

    def _reach(self, target: TargetState) -> None:
        self._reached = target
        self._stop_connector()
        if target is TargetState.STARTED:
            self._props = self._policy.providers.resolve(self._given)
            connector = self._policy.plugins.connector(self._props)
            connector.initialize(self)
            connector.start(self._props)
            self._connector = connector
            self.report(JobState.RUNNING)
            self.request_task_reconfiguration()
        else:
            self.report(_STATES[target])

    def scrubbed(self, text: str) -> str:
        return scrubbed(text, self._given, self._props)

    def _stop_connector(self) -> None:
        connector, self._connector = self._connector, None
        if connector is not None:
            connector.stop()

    def close(self) -> None:
        """Do nothing: a connector has no clients."""


def task_props(connector: Connector, props: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the configurations of all tasks, with the worker's additions.

    ConfigError if there are too many.
    """
    maximum = int(props.get("tasks.max", "1"))
    configs = connector.task_configs(maximum)
    if len(configs) > maximum and props.get("tasks.max.enforce", "true").lower() != "false":
        raise ConfigError(
            f"{props.get('name')}: the connector requests {len(configs)} tasks, but tasks.max is {maximum}",
            key="tasks.max",
        )
    added = {key: props[key] for key in ("topics", "topics.regex") if key in props}
    task_class = class_name(connector.task_class())
    return [{**config, "task.class": task_class, **added} for config in configs]
