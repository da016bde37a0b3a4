"""The worker's main thread: keeps the group membership and runs the assigned jobs.

Source: Kafka's ``DistributedHerder``.

Only this thread changes the assignment. Requests from outside (:class:`~streams_py.connect.worker.worker.Worker`) are
queued for it.
"""

from __future__ import annotations

import base64
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from streams_protocol.connect import Assignment, TaskId
from streams_py.connect.assignment.jobs import NOTHING, Jobs
from streams_py.connect.assignment.leader import GroupLeader
from streams_py.connect.errors import NotFoundError, NotLeaderError, RebalanceExpectedError
from streams_py.connect.group.member import GroupMember, JobListener, MemberSettings
from streams_py.connect.ports import ConnectClients
from streams_py.connect.settings import WorkerSettings
from streams_py.connect.stores.configs import (
    ConfigChange,
    Configs,
    ConnectorRemoved,
    ConnectorUpdated,
    RestartRequest,
    SessionKey,
    TargetState,
    TargetStateChanged,
    TasksUpdated,
)
from streams_py.connect.stores.statuses import Job, JobState
from streams_py.connect.worker.jobs import RunningJobs
from streams_py.connect.worker.metrics import WorkerCounters
from streams_py.connect.worker.requests import RequestQueue
from streams_py.connect.worker.stores import Stores
from streams_py.errors import ConfigError, StreamsError

_log = logging.getLogger("streams_py.connect")

TaskConfigs: TypeAlias = "list[dict[str, str]]"
Forward: TypeAlias = "Callable[[str, str, TaskConfigs, SessionKey | None], None]"
"""Sends task configurations to the leader.

The arguments are the leader's URL, the connector, its task configurations, and the session key for signing. Called on a
separate thread. Raises if the leader did not accept them.
"""

_STATUS_FLUSH_S = 5.0
_RETRY_FIRST_S = 0.25
_RETRY_MAX_S = 60.0
_UNSYNCED_RETRIES = 5
_IDLE_S = 60.0


class Herder(JobListener):
    """The herder. :meth:`run` is the thread's function.

    ``forward`` sends task configurations to another worker.
    """

    def __init__(self, settings: WorkerSettings, clients: ConnectClients, stores: Stores, forward: Forward) -> None:
        self._settings = settings
        self._stores = stores
        self._forward = forward
        self._forwarding = ThreadPoolExecutor(1, thread_name_prefix="connect-forward")
        self._changes: deque[ConfigChange] = deque()
        self._stopping = threading.Event()
        self._generation = -1
        self._running = NOTHING  # jobs that the next start may skip
        self._to_restart: set[TaskId] = set()
        self._scheduled_s = float("inf")
        self._resolved = True
        self._can_read = True
        self._retries_left = _UNSYNCED_RETRIES
        self.counters = WorkerCounters()
        self.jobs = RunningJobs(
            settings,
            clients,
            stores.offsets,
            stores.statuses,
            lambda: self._generation,
            self._on_tasks,
            self.counters.reported,
        )
        self.member = GroupMember(
            MemberSettings(
                url=settings.url,
                mode=settings.connect_protocol,
                static_connectors=settings.static_connectors,
                static_tasks=settings.static_tasks,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
                retry_backoff_ms=settings.retry_backoff_ms,
            ),
            lambda: stores.configs.snapshot().group_view,
            self,
            GroupLeader(settings.scheduled_rebalance_max_delay_ms, lambda: int(time.monotonic() * 1000)),
            clients.coordinator,
        )
        self.requests = RequestQueue(self.member.wakeup)

    # -- from other threads --------------------------------------------------------------------------------------------

    def on_change(self, change: ConfigChange) -> None:
        """Handle a change of the config topic."""
        self._changes.append(change)
        self.member.wakeup()

    def stop(self) -> None:
        """Make :meth:`run` return."""
        self._stopping.set()
        self.member.wakeup()

    def run(self) -> None:
        """Run until :meth:`stop`. Raises ConfigError if the group can never accept this worker."""
        try:
            while not self._stopping.is_set():
                try:
                    self._turn()
                except ConfigError:
                    raise
                except StreamsError as error:  # a temporary outage of a broker must not stop the worker
                    _log.warning("the worker's loop failed; retrying: %s", error)
                    self._stopping.wait(self._settings.retry_backoff_ms / 1000)
        finally:
            self.requests.close()
            self._forwarding.shutdown(wait=False, cancel_futures=True)
            self.jobs.stop_all()
            self._stores.statuses.flush(_STATUS_FLUSH_S)
            self.member.stop()
            self.jobs.close()

    # -- for requests, on this thread ----------------------------------------------------------------------------------

    def require_leader(self) -> None:
        """Raise NotLeaderError, or RebalanceExpectedError while the leader is unknown."""
        held = self.member.held
        if self._changes or self.member.needs_rejoin() or held is None:
            raise RebalanceExpectedError("the group is changing; try again in a moment")
        if not self.member.is_leader:
            raise NotLeaderError(f"only the leader can do this; the leader is {held.leader_url}", held.leader_url)

    def restart_task(self, task: TaskId) -> None:
        """Stop and start a task of this worker. Raises NotFoundError for other tasks."""
        if task not in self.jobs.alive.tasks:
            raise NotFoundError(f"{task} is not on this worker")
        self._restart(Jobs.of((), [task]))

    def write_tasks(self, name: str, configs: TaskConfigs) -> None:
        """Write changed task configurations. Raises like :meth:`require_leader`."""
        self.require_leader()
        if self._differ(name, configs):
            self._stores.configs.put_tasks(name, configs)

    # -- the group, on this thread -------------------------------------------------------------------------------------

    def on_revoked(self, jobs: Jobs) -> None:
        self.jobs.stop(jobs)
        self._running -= jobs
        self._stores.statuses.flush(_STATUS_FLUSH_S)

    def on_assigned(self, held: Assignment, generation: int) -> None:
        self._generation = generation
        self._scheduled_s = time.monotonic() + held.delay_ms / 1000 if held.delay_ms else float("inf")
        self._resolved = False
        self.counters.completed(generation)
        self._check_lists(held)
        if self.member.is_leader:
            self._forget_statuses()

    def _check_lists(self, held: Assignment) -> None:
        listed = self.member.listed
        if listed is None or not self.member.lists_are_in_force:
            return
        unexpected = self.counters.note_unexpected(Jobs.of(held.connectors, held.tasks) - listed)
        if unexpected:
            _log.error("the leader assigned jobs that this worker does not list; running them: %s", unexpected)

    def _forget_statuses(self) -> None:
        configured = self._configs.group_view.jobs
        for job in self._stores.statuses.jobs():
            if job not in (configured.tasks if isinstance(job, TaskId) else configured.connectors):
                self.jobs.report(job, JobState.DESTROYED)

    # -- one turn ------------------------------------------------------------------------------------------------------

    @property
    def _configs(self) -> Configs:
        return self._stores.configs.snapshot()

    def _turn(self) -> None:
        if not self._can_read and not self._read_to_end():
            return
        self.member.poll(0)
        if not self._resolve():
            return
        self._rotate_session_key()
        self.requests.run_due()
        if self._act_on_changes():
            return
        due_s = min(self.requests.next_s, self._scheduled_s, time.monotonic() + _IDLE_S)
        if not self._changes and not self._stopping.is_set():  # the first poll may have used up their wakeup
            self.member.poll(max(0.0, due_s - time.monotonic()))
        if self._scheduled_s < float("inf"):
            self._resolved = False
        self._resolve()

    def _resolve(self) -> bool:
        """Agree with the group on the config topic, and start new jobs.

        Returns False if that must wait.
        """
        held = self.member.held
        if self._resolved:
            return True
        if held is None:
            return False
        offset = self._configs.offset
        if held.failed:
            if (self.member.is_leader or offset < held.config_offset) and not self._read_to_end():
                return False
            self.member.request_rejoin()
            return False
        if offset < held.config_offset and not self._read_to_end():
            return False
        if time.monotonic() >= self._scheduled_s:
            self._scheduled_s = float("inf")
            self.member.request_rejoin()
            return False
        if self._configs.offset != held.config_offset:
            self.member.request_rejoin()
            return False
        self._start_work(held)
        self._resolved = True
        if held.revoked_connectors or held.revoked_tasks:
            self.member.request_rejoin()
            return False
        return True

    def _read_to_end(self) -> bool:
        if self._stores.configs.read_to_end(self._settings.worker_sync_timeout_ms / 1000):
            self._can_read, self._retries_left = True, _UNSYNCED_RETRIES
            return True
        self._can_read = False
        _log.warning("the config topic could not be read to its end in time; leaving the group temporarily")
        self.member.maybe_leave_group("the config topic cannot be read")
        self._back_off()
        return False

    def _back_off(self) -> None:
        if not self.member.mode.is_cooperative:
            self._stopping.wait(self._settings.worker_unsync_backoff_ms / 1000)
        elif self._retries_left:
            wait_ms = self._settings.scheduled_rebalance_max_delay_ms // 10 // self._retries_left
            self._retries_left -= 1
            self._stopping.wait(wait_ms / 1000)
        else:
            self.on_revoked(self.jobs.alive)
            self.member.held = None
            self._retries_left = _UNSYNCED_RETRIES

    def _start_work(self, held: Assignment) -> None:
        configs, holding = self._configs, Jobs.of(held.connectors, held.tasks)
        self._running -= Jobs.of((), self._to_restart)
        self._to_restart = set()
        new = holding - self._running
        self._start(new, configs)
        self._running = holding if self.member.mode.is_cooperative else NOTHING

    def _start(self, jobs: Jobs, configs: Configs) -> None:
        self.jobs.stop(self.jobs.alive & jobs)
        for name in sorted(jobs.connectors & configs.connectors.keys()):
            self.jobs.start_connector(name, configs.connectors[name], configs.target_state(name))
        for task in sorted(jobs.tasks & configs.tasks.keys()):
            connector = configs.connectors.get(task.connector)
            if connector is not None:
                self.jobs.start_task(task, connector, configs.tasks[task], configs.target_state(task.connector))

    def _restart(self, jobs: Jobs) -> None:
        restarting: list[Job] = [*jobs.connectors, *jobs.tasks]
        for job in restarting:
            self.jobs.report(job, JobState.RESTARTING)
        self._start(jobs, self._configs)

    def _rotate_session_key(self) -> None:
        if not self.member.is_leader or not self.member.mode.signs_requests:
            return
        key, now_ms = self._configs.session_key, int(time.time() * 1000)
        ttl_ms = self._settings.inter_worker_key_ttl_ms
        if key is None or (ttl_ms and now_ms - key.created_ms >= ttl_ms):
            fresh = base64.b64encode(secrets.token_bytes(32)).decode()
            try:
                self._stores.configs.put_session_key(SessionKey(fresh, "HmacSHA256", now_ms))
            except StreamsError as error:
                _log.warning("writing the session key failed; retrying: %s", error)

    # -- changes of the config topic -----------------------------------------------------------------------------------

    def _act_on_changes(self) -> bool:
        """Process changes. Returns whether they require a rebalance."""
        rebalance = False
        restarts: dict[str, RestartRequest] = {}
        while self._changes:
            change = self._changes.popleft()
            match change:
                case ConnectorUpdated(name, is_new):
                    if is_new:
                        rebalance = True
                    elif name in self.jobs.alive.connectors:
                        self._start(Jobs.of([name]), self._configs)
                case ConnectorRemoved():
                    rebalance = True
                case TasksUpdated(name):
                    rebalance = True
                    if self.member.mode.is_cooperative:
                        changed = [task for task in self.jobs.alive.tasks if task.connector == name]
                        self.jobs.stop(Jobs.of((), changed))
                        self._to_restart.update(changed)
                case TargetStateChanged(name):
                    self.jobs.set_target(name, self._configs.target_state(name))
                case RestartRequest(name):
                    restarts[name] = _stronger(restarts.get(name), change)
                case SessionKey():
                    pass
        for request in restarts.values():
            self._act_on_restart(request)
        if rebalance:
            self.member.request_rejoin()
        return rebalance

    def _act_on_restart(self, request: RestartRequest) -> None:
        def wanted(job: Job) -> bool:
            return not (request.only_failed and self.jobs.runs(job))

        alive = self.jobs.alive
        tasks = [task for task in alive.tasks if task.connector == request.connector and wanted(task)]
        name = request.connector
        connectors = [name] if name in alive.connectors and wanted(name) else []
        self._restart(Jobs.of(connectors, tasks if request.include_tasks else ()))

    # -- task configurations -------------------------------------------------------------------------------------------

    def _on_tasks(self, name: str, configs: TaskConfigs) -> None:
        """Queue the publication of task configurations. Called on the connector's thread."""
        self.requests.add(lambda: self._publish(name, configs, _RETRY_FIRST_S))

    def _publish(self, name: str, configs: TaskConfigs, retry_s: float) -> None:
        started = self._configs.target_state(name) is TargetState.STARTED
        held = self.member.held
        if not started or not self.jobs.runs(name) or not self._differ(name, configs):
            return
        if held is not None and not self.member.needs_rejoin() and not self.member.is_leader:
            key, url = self._configs.session_key, held.leader_url
            self._forwarding.submit(self._forward_tasks, url, name, configs, key, retry_s)
            return
        try:
            self.write_tasks(name, configs)
        except StreamsError as error:
            self._publish_later(name, configs, retry_s, error)

    def _forward_tasks(self, url: str, name: str, configs: TaskConfigs, key: SessionKey | None, retry_s: float) -> None:
        try:
            self._forward(url, name, configs, key)
        except Exception as error:
            self._publish_later(name, configs, retry_s, error)

    def _publish_later(self, name: str, configs: TaskConfigs, retry_s: float, error: Exception) -> None:
        level = logging.DEBUG if isinstance(error, RebalanceExpectedError) else logging.WARNING
        _log.log(level, "configuring the tasks of %s failed; retrying in %.2f s: %s", name, retry_s, error)
        self.requests.add(lambda: self._publish(name, configs, min(2 * retry_s, _RETRY_MAX_S)), retry_s)

    def _differ(self, name: str, new: TaskConfigs) -> bool:
        configs = self._configs
        connector = configs.connectors.get(name)
        if connector is None:
            return False
        return configs.applied.get(name) != connector or [dict(one) for one in configs.task_configs(name)] != new


def _stronger(one: RestartRequest | None, two: RestartRequest) -> RestartRequest:
    """Return the one of two requests for a connector that restarts more."""
    if one is None:
        return two

    def impact(request: RestartRequest) -> tuple[bool, bool]:
        return request.include_tasks, not request.only_failed

    return max(one, two, key=impact)
