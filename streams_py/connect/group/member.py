"""A worker's assigned jobs, and their changes by rebalances.

Source: Kafka's ``WorkerCoordinator`` and ``WorkerGroupMember``.

Joins happen on the client's network thread, which only stores completed joins. The worker's thread stops and starts
jobs. It calls :meth:`GroupMember.poll`, which processes a completed join before it starts another one. So revoked jobs
are stopped before the worker rejoins.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from streams_protocol.connect import Assignment, TaskId, WorkerState, decode_assignment, encode_worker_state
from streams_py.connect.assignment.jobs import NOTHING, Jobs
from streams_py.connect.assignment.leader import ConfigSnapshot, GroupLeader, LeaderView
from streams_py.connect.assignment.lists import listed_jobs
from streams_py.connect.assignment.modes import Mode
from streams_py.connect.group.coordinator import Coordinator, GroupHandler
from streams_py.errors import ConfigError, StreamsError
from streams_py.system.printable import text_of

_log = logging.getLogger("streams_py.connect")

_JOIN_SLICE_MS = 500
_WAIT_MAX_S = 1.0


class JobListener(Protocol):
    """The worker. Called on the worker's thread, inside :meth:`GroupMember.poll`."""

    def on_revoked(self, jobs: Jobs) -> None:
        """Stop these jobs. Returns when they have stopped and their statuses are written."""
        ...

    def on_assigned(self, held: Assignment, generation: int) -> None:
        """Handle a completed join, which may have failed.

        ``held`` contains all present ``connectors`` and ``tasks``.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """Settings of a member.

    ``url`` is the worker's advertised REST URL with a final ``/``. Unset lists are None.
    """

    url: str
    mode: Mode = Mode.STATIC
    static_connectors: frozenset[str] | None = None
    static_tasks: frozenset[TaskId] | None = None
    heartbeat_interval_ms: int = 3_000
    retry_backoff_ms: int = 100


@dataclass(frozen=True, slots=True)
class _Joined:
    generation: int
    member_id: str
    protocol: str
    assignment: bytes


class GroupMember(GroupHandler):
    """The membership of one worker.

    Args:
        settings: Settings of the member.
        snapshot: Returns the newest view of the config topic, from memory.
        listener: The worker.
        leader: Decides rounds while this member leads, and keeps its memory in between.
        connect: Creates the coordinator for this member.
    """

    def __init__(
        self,
        settings: MemberSettings,
        snapshot: Callable[[], ConfigSnapshot],
        listener: JobListener,
        leader: GroupLeader,
        connect: Callable[[GroupHandler], Coordinator],
    ) -> None:
        self._settings = settings
        self._snapshot = snapshot
        self._listener = listener
        self._leader = leader
        self._joined_with = ConfigSnapshot()
        self._joined: deque[_Joined] = deque()
        self._woken = threading.Condition()
        self._is_woken = False  # stays until a poll has returned because of it
        self._stopping = False
        self.held: Assignment | None = None
        """The last assignment, with all present jobs in ``connectors`` and ``tasks``."""
        self._mode = settings.mode
        self._completed_generation = -1
        self._leader_view: LeaderView | None = None
        self._coordinator = connect(self)

    # -- for the worker's thread ---------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> None:
        """Maintain the membership for ``timeout_s``, or until :meth:`wakeup` or a completed join.

        Raises ConfigError if this worker can never join the group.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            self._find_coordinator()
            noted = self._process_joins()
            if not noted and self.needs_rejoin() and not self._stopping:
                self._join()
                noted = self._process_joins()
            self._poll_heartbeat()
            left = deadline - time.monotonic()
            with self._woken:
                if noted or left <= 0 or self._stopping or self._is_woken:
                    self._is_woken = False
                    return
                if not self._joined and not self.needs_rejoin():
                    self._woken.wait(min(left, _WAIT_MAX_S))

    def wakeup(self) -> None:
        """Make :meth:`poll` return soon: the present poll, or else the next one. Any thread."""
        with self._woken:
            self._is_woken = True
            self._woken.notify_all()

    def request_rejoin(self) -> None:
        """Ask for a rebalance; the next poll joins. Any thread."""
        self._coordinator.request_rejoin()
        with self._woken:
            self._woken.notify_all()

    def needs_rejoin(self) -> bool:
        """Whether the client requires a rejoin, or a usable assignment is missing."""
        return self._coordinator.needs_rejoin() or self.held is None or self.held.failed

    def maybe_leave_group(self, reason: str) -> None:
        """Leave the group. The next poll rejoins with the present assignment."""
        self._coordinator.leave(reason)

    def stop(self) -> None:
        """Leave the group and do not rejoin."""
        self._stopping = True
        self.wakeup()
        self._coordinator.close()

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def mode(self) -> Mode:
        """The group's mode since the last completed join. Before that, this worker's own mode."""
        return self._mode

    @property
    def lists_are_in_force(self) -> bool:
        return self._mode is Mode.STATIC and self.listed is not None

    @property
    def listed(self) -> Jobs | None:
        """The jobs that this worker lists, or None without lists."""
        return listed_jobs(self._settings.static_connectors, self._settings.static_tasks)

    def member_id(self) -> str:
        """Return the id in the current generation, or ``""`` without one."""
        return self._coordinator.generation()[1]

    @property
    def is_leader(self) -> bool:
        member_id = self.member_id()
        return bool(member_id) and self.held is not None and self.held.leader == member_id

    def owner_url(self, job: str | TaskId) -> str | None:
        """Return the URL of a job's worker. Only the leader knows it, and not while it rejoins."""
        led = self._leader_view
        return None if led is None or self.needs_rejoin() else led.owner_url(job)

    @property
    def leader_view(self) -> LeaderView | None:
        """The newest round that this member led. None for other members, and while it rejoins."""
        return None if self.needs_rejoin() else self._leader_view

    @property
    def unassignable(self) -> Jobs:
        """Configured jobs that no worker of the group may run. Only the leader knows them."""
        led = self._leader_view
        return NOTHING if led is None else led.unassignable

    # -- the client's network thread -----------------------------------------------------------------------------------

    def protocols(self) -> list[tuple[str, bytes]]:
        settings, held = self._settings, self.held
        self._joined_with = snapshot = self._snapshot()
        state = WorkerState(
            settings.url,
            snapshot.offset,
            None if held is None else replace(held, revoked_connectors=(), revoked_tasks=(), delay_ms=0),
            settings.static_connectors,
            settings.static_tasks,
        )
        return [(mode.value, encode_worker_state(state, mode.version)) for mode in settings.mode.advertised]

    def perform(self, leader: str, protocol: str, members: Mapping[str, bytes], generation: int) -> dict[str, bytes]:
        answers, self._leader_view = self._leader.lead(
            leader,
            Mode.of_wire(protocol),
            members,
            self._joined_with,
            self._snapshot,
            last_completed_generation=self._completed_generation,
            generation=generation,
        )
        return answers

    def joined(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        with self._woken:
            self._joined.append(_Joined(generation, member_id, protocol, assignment))
            self._woken.notify_all()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _find_coordinator(self) -> None:
        if not self._coordinator.is_unknown() or self._coordinator.find(self._settings.heartbeat_interval_ms):
            return
        held = self.held
        if held is not None and not held.failed:
            _log.warning(
                "no coordinator for the group: stopping all jobs, because the group may assign them to other workers"
            )
            self._listener.on_revoked(_jobs_of(held))
            self.held = None
            self._coordinator.request_rejoin()

    def _join(self) -> None:
        coordinator = self._coordinator
        if not coordinator.is_joining:
            self._prepare()
            if not coordinator.needs_rejoin():
                coordinator.request_rejoin()
        try:
            coordinator.join(_JOIN_SLICE_MS)
        except ConfigError:
            raise
        except Exception as error:  # after any error, the group must continue without this worker for a while
            _log.warning("joining failed; retrying: %s", text_of(error), exc_info=not isinstance(error, StreamsError))
            coordinator.leave("joining failed")
            time.sleep(self._settings.retry_backoff_ms / 1000)

    def _poll_heartbeat(self) -> None:
        try:
            self._coordinator.poll_heartbeat()
        except ConfigError:
            raise
        except Exception as error:
            _log.warning("heartbeats failed; rejoining: %s", text_of(error))
            self._coordinator.request_rejoin()

    def _prepare(self) -> None:
        """Prepare a rebalance. Called once per rebalance, before the JoinGroup."""
        self._leader_view = None
        if not self._mode.is_cooperative and self.held is not None and not self.held.failed:
            self._listener.on_revoked(_jobs_of(self.held))

    def _process_joins(self) -> bool:
        """Process all completed joins. Returns whether there was one."""
        noted = False
        while True:
            with self._woken:
                if not self._joined:
                    return noted
                joined = self._joined.popleft()
            self._complete(joined)
            noted = True

    def _complete(self, joined: _Joined) -> None:
        new, held = decode_assignment(joined.assignment), self.held
        before, self._mode = self._mode, Mode.of_wire(joined.protocol)
        if before is not self._mode:
            self._log_mode(before)
        jobs = Jobs.of(new.connectors, new.tasks)
        revoked = Jobs.of(new.revoked_connectors, new.revoked_tasks)
        if self._mode.is_cooperative:
            if revoked:
                self._listener.on_revoked(revoked)
            if held is not None:
                jobs |= _jobs_of(held) - revoked
        elif before.is_cooperative and held is not None:
            self._listener.on_revoked(_jobs_of(held) - jobs)  # the eager leader may have assigned them to other workers
        self.held = replace(new, connectors=tuple(sorted(jobs.connectors)), tasks=tuple(sorted(jobs.tasks)))
        self._completed_generation = joined.generation
        self._listener.on_assigned(self.held, joined.generation)

    def _log_mode(self, before: Mode) -> None:
        lists = ""
        if self.listed is not None:
            lists = f"; this worker's static lists are {'in force' if self.lists_are_in_force else 'not in force'}"
        _log.info("the group uses protocol %s now, before %s%s", self._mode.name.lower(), before.name.lower(), lists)
        if before.signs_requests and not self._mode.signs_requests:
            _log.warning("requests between workers are no longer signed, because a worker does not support signatures")


def _jobs_of(held: Assignment) -> Jobs:
    return Jobs.of(held.connectors, held.tasks)
