"""The jobs of this worker process. Used by the herder's thread only."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from streams_protocol.connect import TaskId
from streams_py.connect.api import SourceTask
from streams_py.connect.assignment.jobs import Jobs
from streams_py.connect.policy.classes import Converter, converter_of
from streams_py.connect.policy.secrets import scrubbed
from streams_py.connect.ports import ConnectClients, SinkConsumer, SinkListener
from streams_py.connect.settings import WorkerSettings
from streams_py.connect.stores.configs import TargetState
from streams_py.connect.stores.offsets import OffsetStore
from streams_py.connect.stores.statuses import Job, JobState, JobStatus, StatusStore
from streams_py.connect.tasks.connector import ConnectorThread
from streams_py.connect.tasks.job import JobThread
from streams_py.connect.tasks.sink import SinkTaskThread
from streams_py.connect.tasks.source import SourceTaskThread
from streams_py.connect.tasks.task import TaskSettings, TaskStart
from streams_py.connect.worker.offsets import sink_group
from streams_py.errors import ConfigError
from streams_py.system.printable import named

_POOL = 8
_CONNECTOR_GRACE_S = 5.0


class RunningJobs:
    """Starts and stops threads, and writes their statuses.

    Args:
        generation: Returns the group's current generation.
        on_tasks: Receives a connector's task configurations, on the connector's thread.
        on_report: Called with every state.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        clients: ConnectClients,
        offsets: OffsetStore,
        statuses: StatusStore,
        generation: Callable[[], int],
        on_tasks: Callable[[str, list[dict[str, str]]], None],
        on_report: Callable[[Job, JobState], None],
    ) -> None:
        self._settings = settings
        self._policy = settings.policy
        self._clients = clients
        self._offsets = offsets
        self._statuses = statuses
        self._generation = generation
        self._on_tasks = on_tasks
        self._on_report = on_report
        self._threads: dict[Job, JobThread] = {}
        self._unstartable: set[Job] = set()
        self._pool = ThreadPoolExecutor(_POOL, thread_name_prefix="connect-stopping")

    @property
    def alive(self) -> Jobs:
        """All jobs that were started and not stopped, including failed jobs."""
        jobs = {*list(self._threads), *self._unstartable.copy()}  # other threads read this, so both are copied first
        return Jobs.of(
            (job for job in jobs if not isinstance(job, TaskId)), (job for job in jobs if isinstance(job, TaskId))
        )

    def runs(self, job: Job) -> bool:
        """Whether a job runs here and has not failed."""
        thread = self._threads.get(job)
        return thread is not None and thread.is_alive and not thread.failed

    def start_connector(self, name: str, props: Mapping[str, str], target: TargetState) -> None:
        reader = self._offsets.reader(name)
        self._start(ConnectorThread(name, props, target, self.report, reader, self._on_tasks, self._policy))

    def start_task(
        self, task: TaskId, connector: Mapping[str, str], props: Mapping[str, str], target: TargetState
    ) -> None:
        """Start a task. If it cannot be created (class, converter, client settings), it has failed."""
        given: list[tuple[Mapping[str, str], Mapping[str, str]]] = []

        def hide_secrets(text: str) -> str:
            for config, resolved in given:
                text = scrubbed(text, config, resolved)
            return text

        try:
            resolve = self._policy.providers.resolve
            given += [(connector, resolve(connector)), (props, resolve(props))]
            thread = self._new_task(task, given[0][1], given[1][1], target, hide_secrets)
        except Exception as error:
            self._unstartable.add(task)
            self.report(task, JobState.FAILED, hide_secrets(named(error)))
        else:
            self._start(thread)

    def set_target(self, name: str, target: TargetState) -> None:
        """Set the requested state of a connector and of its tasks here."""
        for job, thread in self._threads.items():
            if job == name or (isinstance(job, TaskId) and job.connector == name):
                thread.set_target(target)

    def stop(self, jobs: Jobs) -> None:
        """Stop the jobs that are here, in parallel. Jobs that take too long are abandoned."""
        wanted: list[Job] = [*sorted(jobs.connectors), *sorted(jobs.tasks)]
        for job in wanted:
            if job in self._unstartable:
                self._unstartable.discard(job)
                self.report(job, JobState.UNASSIGNED)
        threads = [thread for job in wanted if (thread := self._threads.pop(job, None)) is not None]
        for thread in threads:
            self._pool.submit(thread.signal_stop)
        now = time.monotonic()
        tasks_until = now + self._settings.task_shutdown_graceful_timeout_ms / 1000
        for thread in threads:
            until = tasks_until if isinstance(thread.job, TaskId) else now + _CONNECTOR_GRACE_S
            if not thread.wait_stopped(max(0.0, until - time.monotonic())):
                thread.abandon()
                self.report(thread.job, JobState.UNASSIGNED)

    def stop_all(self) -> None:
        self.stop(self.alive)

    def close(self) -> None:
        self._pool.shutdown(wait=False)

    def report(self, job: Job, state: JobState, trace: str | None = None) -> None:
        """Write a status. Any thread."""
        self._on_report(job, state)
        self._statuses.put(job, JobStatus(state, self._settings.worker_id, self._generation(), trace))

    def _start(self, thread: JobThread) -> None:
        self._threads[thread.job] = thread
        thread.start()

    def _new_task(
        self,
        task: TaskId,
        connector: Mapping[str, str],
        props: Mapping[str, str],
        target: TargetState,
        hide_secrets: Callable[[str], str],
    ) -> JobThread:
        """Create a task's thread. ``connector`` and ``props`` have resolved placeholders."""
        settings, policy = self._settings, self._policy
        problems = policy.overrides.problems(connector)
        if problems:
            raise ConfigError(problems[0])
        made = policy.plugins.task(props)
        how = TaskSettings(
            key_converter=self._converter(connector, "key.converter", settings.key_converter),
            value_converter=self._converter(connector, "value.converter", settings.value_converter),
            tolerates_errors=connector.get("errors.tolerance", "none").lower() == "all",
            flush_interval_s=settings.offset_flush_interval_ms / 1000,
            flush_timeout_s=settings.offset_flush_timeout_ms / 1000,
        )
        start = TaskStart(task, props, target, self.report, how, hide_secrets)
        client_id = f"{settings.client}-{task}"
        if isinstance(made, SourceTask):
            producer = self._clients.producer(client_id, _overrides(connector, "producer.override."))
            return SourceTaskThread(start, task=made, producer=producer, offsets=self._offsets)
        topics = [topic for part in props.get("topics", "").split(",") if (topic := part.strip())]
        pattern = props.get("topics.regex")
        if bool(topics) == bool(pattern):
            raise ConfigError(
                f"{task.connector}: a sink connector requires either topics or topics.regex", key="topics"
            )

        def subscribe(listener: SinkListener) -> SinkConsumer:
            group = sink_group(task.connector)
            overrides = _overrides(connector, "consumer.override.")
            return self._clients.sink_consumer(client_id, group, topics, pattern, listener, overrides)

        return SinkTaskThread(start, task=made, subscribe=subscribe)

    def _converter(self, connector: Mapping[str, str], key: str, default: str) -> Converter:
        return self._policy.plugins.converter(key, connector[key]) if key in connector else converter_of(key, default)


def _overrides(connector: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key[len(prefix) :]: value for key, value in connector.items() if key.startswith(prefix)}
