"""The shared parts of the threads of source and sink tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streams_protocol.connect import TaskId
from streams_py.connect.policy.classes import Converter
from streams_py.connect.stores.configs import TargetState
from streams_py.connect.stores.statuses import JobState
from streams_py.connect.tasks.job import JobThread, StatusReport


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """Settings of a task from the worker's settings and the connector's configuration."""

    key_converter: Converter
    value_converter: Converter
    tolerates_errors: bool = False
    flush_interval_s: float = 60.0
    flush_timeout_s: float = 5.0
    retry_backoff_s: float = 1.0


@dataclass(frozen=True, slots=True)
class TaskStart:
    """The parameters of a task's thread."""

    job: TaskId
    props: Mapping[str, str]
    target: TargetState
    report: StatusReport
    settings: TaskSettings
    hide_secrets: Callable[[str], str]
    """Removes the secrets of the configuration from a text."""


class TaskThread(JobThread):
    """Runs one task. Also its context."""

    def __init__(self, start: TaskStart) -> None:
        super().__init__(start.job, start.target, start.report)
        self._props = start.props
        self._hide_secrets = start.hide_secrets
        self._settings = start.settings
        self._state: JobState | None = None

    def is_paused(self) -> bool:
        """Whether the task must pause now. Reports every change to the worker."""
        paused = self._target is not TargetState.STARTED
        state = JobState.PAUSED if paused else JobState.RUNNING
        if state is not self._state:
            self._state = state
            self.report(state)
        return paused

    def scrubbed(self, text: str) -> str:
        return self._hide_secrets(text)

    def configs(self) -> Mapping[str, str]:
        return self._props
