"""Opens the parts of the classic protocol: for a client, and for each of its stream threads."""

from __future__ import annotations

import threading
import uuid
import weakref
from dataclasses import replace

from streams_protocol.types import ProcessId
from streams_py.assignment.assignors.registry import choose_assignor
from streams_py.config.client_keys import ClientRole, member_instance_id
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import MissingSourceTopicError, StreamsError, TaskAssignmentError
from streams_py.leader.leader import GroupLeader
from streams_py.leader.settings import LeaderSettings
from streams_py.member.member import Member
from streams_py.member.settings import MemberSettings
from streams_py.ports import Admin, Clients, Clock, Membership
from streams_py.runtime.group.classic.group_processes import GroupProcesses
from streams_py.runtime.group.classic.leader_executor import (
    GroupTopology,
    LeaderExecutor,
    LeaderLimits,
    LeaderOutcome,
    TimedAssignSteps,
)
from streams_py.runtime.group.classic.member_listener import MemberListener
from streams_py.runtime.group.classic.rebalance_log import RebalanceLog
from streams_py.runtime.group.classic.recorder import RebalanceRecorder
from streams_py.runtime.group.classic.topic_cleanup import CleanupCheck
from streams_py.runtime.group.classic.transport import ClassicTransport, StaticMember
from streams_py.runtime.group.inbox import Inbox
from streams_py.runtime.group.missing_sources import name_missing_sources
from streams_py.runtime.group.observers import GroupObservers
from streams_py.runtime.group.thread_calls import ThreadCalls, max_poll_interval_ms
from streams_py.runtime.group.timeline import Timekeeper
from streams_py.runtime.group.transport import MemberSignals, TaskListener, TaskReport
from streams_py.topology.topology import Topology


def check_assignor(config: StreamsConfig) -> None:
    """Raise AssignorError if ``task.assignor.class`` is not an assignor."""
    if config.task_assignor_class is not None:
        choose_assignor(config.task_assignor_class)


def _leader_settings(config: StreamsConfig, process_id: ProcessId) -> LeaderSettings:
    settings = LeaderSettings.from_config(config, process_id=process_id, future_process_id=uuid.uuid4())
    if config.task_assignor_class is not None and choose_assignor(config.task_assignor_class).built_in is not None:
        return replace(settings, task_assignor=None, internal_assignor=config.task_assignor_class)
    return settings


class ClassicProtocol:
    """The membership of one client in a classic group (``GroupProtocol``).

    Args:
        observers: The observers of the client's rebalances.
    """

    def __init__(
        self,
        clients: Clients,
        topology: Topology,
        config: StreamsConfig,
        admin: Admin,
        clock: Clock,
        process_id: ProcessId,
        observers: GroupObservers,
    ) -> None:
        self._clients = clients
        self._topology = GroupTopology(topology, config.application_id, config.original)
        self._subscription = topology.subscription(config.application_id)
        self._config = config
        self._admin = admin
        self._clock = clock
        self._leader = _leader_settings(config, process_id)
        self._observers = observers
        self._wait_ms = max_poll_interval_ms(config)
        self._processes = GroupProcesses(clients.group_admin, config.application_id)
        self._cleanup = CleanupCheck(admin)
        self._outcomes: dict[int, LeaderOutcome] = {}  # by the number of the thread, also after its end
        self._memberships: weakref.WeakSet[Membership] = weakref.WeakSet()  # a thread that has ended is not kept
        self._lock = threading.Lock()

    def open(
        self, thread: str, index: int, inbox: Inbox[TaskListener], signals: MemberSignals, report: TaskReport
    ) -> ClassicTransport:
        """Return the transport of a stream thread, not started yet."""
        times = Timekeeper(thread, self._observers.listeners)
        calls = ThreadCalls(inbox, signals, wait_ms=self._wait_ms)
        member = Member(MemberSettings.from_config(self._config, process_id=self._leader.process_id))
        observer = self._observers.events.watch(self._leader, lambda: _forming(membership))
        executor = LeaderExecutor(
            GroupLeader(self._leader),
            self._topology,
            self._admin,
            self._clock,
            LeaderLimits.within(self._wait_ms),
            signals,
            TimedAssignSteps(observer, times),
            self._cleanup,
        )
        recorder = RebalanceRecorder(index, RebalanceLog(thread, self._clock), times, self._observers.joins)
        listener = MemberListener(member, executor, calls, signals, report, recorder, self._explain)
        membership = self._clients.membership(thread, index, listener)
        self._subscribe(membership)
        with self._lock:
            self._outcomes[index] = executor.outcome
            self._memberships.add(membership)
        static = StaticMember(thread, self._admin, self._config.application_id, self._instance_id(index))
        return ClassicTransport(membership, listener, calls, member, executor, report, self._clock, static)

    def expect_rebalance(self) -> None:
        """Let all members of this client send heartbeats more often for some seconds."""
        with self._lock:
            memberships = list(self._memberships)
        for membership in memberships:
            membership.expect_rebalance()

    def processes(self) -> frozenset[str] | None:
        """Return the ids of all processes with a member in the group; None if unknown."""
        return self._processes()

    def close(self) -> None:
        """Close the connection of :meth:`processes`."""
        self._processes.close()

    def _subscribe(self, membership: Membership) -> None:
        if isinstance(self._subscription, tuple):
            membership.subscribe(frozenset(self._subscription))
        else:
            membership.subscribe(frozenset(), self._subscription.pattern)

    def _instance_id(self, index: int) -> str | None:
        return member_instance_id(self._config.setting_for(ClientRole.MAIN_CONSUMER, "group.instance.id"), index)

    def _explain(self, error: StreamsError) -> StreamsError:
        """Return the reason for a failed assignment if this client has the leader. The protocol carries only codes."""
        if isinstance(error, TaskAssignmentError):
            with self._lock:
                failures = [outcome.failure for outcome in self._outcomes.values()]
            return next((failure for failure in failures if failure is not None), error)
        if isinstance(error, MissingSourceTopicError):
            return name_missing_sources(error, self._topology.metadata(()), self._admin, self._config.bootstrap_servers)
        return error


def _forming(membership: Membership) -> tuple[int, str] | None:
    """Return generation and member id while the member computes an assignment as leader."""
    metadata = membership.forming()
    return None if metadata is None else (metadata.generation, metadata.member_id)
