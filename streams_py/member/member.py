"""One member's side of the assignment protocol, without I/O: events in, effects out.

The member writes the subscription, reads the assignment and decides when to request a rebalance. It holds the state
that a Kafka Streams thread shares with its assignor: the error code, the next scheduled rebalance, the version used and
the host maps. It does not hold the task objects; it says which tasks the thread must have. Source: Kafka Streams'
member half of ``StreamsPartitionAssignor``, and ``StreamsRebalanceListener``.

Two rules look like mistakes but are intended:

* The member never clears an error code that it received: all later subscriptions carry the code. (Leaders react only to
  the shutdown code.)
* An assignment with an error code changes only the code. The tasks and the scheduled rebalance stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, assert_never

from streams_protocol import FOLLOW_UP_NOW, NO_FOLLOW_UP, AssignmentInfo, ErrorCode, ProtocolError
from streams_protocol import decode_assignment_info as decode
from streams_protocol.types import TaskId
from streams_py.errors import MissingSourceTopicError, StreamsError, TaskAssignmentError
from streams_py.member.assignment import host_view, is_due, left_over, next_rebalance_ms, revoked_tasks, tasks_of
from streams_py.member.effects import (
    ApplyTasks,
    CloseLostTasks,
    CompleteRebalance,
    Effect,
    FailThread,
    Log,
    RequestRejoin,
    SendUserData,
    ShowHosts,
    StopApplication,
    SuspendTasks,
)
from streams_py.member.events import (
    AssignmentReceived,
    DrainRequested,
    Event,
    LoopTurned,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    ShutdownRequested,
    StandbysMeasured,
    SubscriptionRequested,
)
from streams_py.member.promotion import Promotion
from streams_py.member.settings import MemberSettings
from streams_py.member.subscription import build_user_data, next_unique_field
from streams_py.member.tasks import HostView, Tasks
from streams_py.member.versions import (
    RebalanceProtocol,
    check_received_version,
    next_used_version,
    start_protocols,
    start_version,
)


class Phase(Enum):
    """Phases of membership. A rebalance is in progress in JOINING and ASSIGNED."""

    OUTSIDE = "not in a group"
    JOINING = "subscription sent, no assignment received yet"
    ASSIGNED = "the assignment was read, the rebalance is not complete"
    STABLE = "the rebalance is complete"
    FAILED = "the rebalance is complete, and ended with an error for the thread"
    STOPPING = "the rebalance is complete, and the application is to stop"


_DEBUG, _INFO, _ERROR = 10, 20, 40  # levels of the standard library's logging


class Member:
    """The group membership of one stream thread. Events must be passed in the order they happen."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self._used_version = start_version(settings.upgrade_from)
        self._protocols = start_protocols(settings.upgrade_from)
        self._phase = Phase.OUTSIDE
        self._unique_field = 0
        self._error_code = int(ErrorCode.NONE)
        self._scheduled_ms = NO_FOLLOW_UP
        self._tasks = Tasks()
        self._suspended: frozenset[TaskId] = frozenset()
        self._hosts = HostView()
        self._draining = self._drain_told = self._joined_idle = False
        self._promotion = Promotion(settings.acceptable_lag)

    @property
    def rebalance_in_progress(self) -> bool:
        """Whether a rebalance is in progress, from the subscription on. No commits are allowed then."""
        return self._phase in (Phase.JOINING, Phase.ASSIGNED)

    @property
    def used_version(self) -> int:
        """Version of the next subscription."""
        return self._used_version

    @property
    def protocols(self) -> tuple[RebalanceProtocol, ...]:
        """Rebalance protocols for the consumer to list, least preferred first."""
        return self._protocols

    @property
    def is_drained(self) -> bool:
        """Whether this member has handed over all of its active tasks, as it requested.

        True once the member has requested it and a rebalance has ended that it joined without active tasks. Only in
        that rebalance do other members receive the tasks: the rebalance before it merely revoked them (KIP-429).
        """
        is_idle = self._joined_idle and not self._tasks.active
        return self._drain_told and is_idle and self._phase is Phase.STABLE

    @property
    def error_code(self) -> int:
        """Last error code received or set; 0 before the first one."""
        return self._error_code

    @property
    def next_rebalance_ms(self) -> int:
        """Time at which this member will request a rebalance, in ms since the epoch; 2**63-1: never."""
        return self._scheduled_ms

    @property
    def tasks(self) -> Tasks:
        """Tasks of the last usable assignment, without active tasks revoked or lost since then."""
        return self._tasks

    @property
    def hosts(self) -> HostView:
        """Host maps of the last usable assignment."""
        return self._hosts

    def handle(self, event: Event) -> tuple[Effect, ...]:
        """Process one event and return the effects to carry out, in order."""
        match event:
            case SubscriptionRequested():
                return self._on_subscription_requested(event)
            case AssignmentReceived():
                return self._on_assignment(event)
            case PartitionsRevoked():
                return self._on_revoked(event)
            case PartitionsLost():
                return self._on_lost(event)
            case PartitionsAssigned():
                return self._on_assigned()
            case LoopTurned():
                return self._on_loop_turned(event)
            case StandbysMeasured():
                return self._on_standbys_measured(event)
            case ShutdownRequested():
                self._error_code = int(ErrorCode.SHUTDOWN_REQUESTED)
                return ()
            case DrainRequested():
                self._draining = True
                return ()
            case _:
                assert_never(event)

    def validate_state(self) -> None:
        """Raise AssertionError if the member's state is inconsistent. For tests, after every event."""
        assert -128 <= self._unique_field <= 127, self._unique_field
        assert not self._tasks.active.keys() & self._tasks.standby.keys(), self._tasks
        owned = [tp for parts in self._tasks.active.values() for tp in parts]
        assert len(owned) == len(set(owned)), owned
        assert self._scheduled_ms >= 0, self._scheduled_ms

    # -- joining ---------------------------------------------------------------------------------------------------

    def _on_subscription_requested(self, event: SubscriptionRequested) -> tuple[Effect, ...]:
        self._unique_field = next_unique_field(self._unique_field)
        self._phase = Phase.JOINING
        self._drain_told, self._joined_idle = self._draining, not self._tasks.active
        self._promotion.subscribed(event.task_offset_sums)
        return (
            SendUserData(
                build_user_data(
                    self._settings,
                    used_version=self._used_version,
                    unique_field=self._unique_field,
                    error_code=self._error_code,
                    task_offset_sums=event.task_offset_sums,
                    draining=self._draining,
                )
            ),
        )

    def _on_assignment(self, event: AssignmentReceived) -> tuple[Effect, ...]:
        try:
            info = decode(event.user_data)
            if info.error_code != ErrorCode.NONE:
                self._error_code = info.error_code
                self._phase = Phase.ASSIGNED
                return (Log(_ERROR, f"the leader sent error code {info.error_code}: {_meaning(info.error_code)}"),)
            check_received_version(self._used_version, info.version, info.commonly_supported_version)
            tasks = tasks_of(event.partitions, info)
        except ProtocolError as error:
            return self._refuse(TaskAssignmentError(str(error)))
        except TaskAssignmentError as error:
            return self._refuse(error)
        return self._accept(info, tasks)

    def _refuse(self, error: StreamsError) -> tuple[Effect, ...]:
        """Reject an unusable assignment. State is unchanged; the thread fails after the rebalance."""
        self._phase = Phase.ASSIGNED
        return (FailThread(error),)

    def _accept(self, info: AssignmentInfo, tasks: Tasks) -> tuple[Effect, ...]:
        logged: list[Effect] = []
        used, changed = next_used_version(self._used_version, info.version, info.commonly_supported_version)
        if changed:
            logged.append(
                Log(_INFO, f"version {self._used_version} -> {used}: the group supports {used}; rejoining immediately")
            )
        self._used_version = used
        self._scheduled_ms = next_rebalance_ms(info, version_changed=changed, own_host=self._settings.host)
        self._tasks = tasks
        self._suspended = frozenset()
        self._hosts = host_view(info)
        self._promotion.assigned(tasks.standby)
        self._phase = Phase.ASSIGNED
        return (*logged, ShowHosts(self._hosts), ApplyTasks(tasks))

    def _on_assigned(self) -> tuple[Effect, ...]:
        """End the rebalance: continue or fail, depending on the error code."""
        code = self._error_code
        if code in (ErrorCode.NONE, ErrorCode.VERSION_PROBING):
            self._phase = Phase.STABLE
            return (CompleteRebalance(),)
        failure = _failure(code)
        if failure is None:
            self._phase = Phase.STOPPING
            return (CompleteRebalance(), StopApplication())
        if code not in _KNOWN_CODES:
            return (failure,)  # an unknown code leaves the rebalance incomplete
        self._phase = Phase.FAILED
        return (CompleteRebalance(), failure)

    # -- leaving partitions ------------------------------------------------------------------------------------------

    def _on_revoked(self, event: PartitionsRevoked) -> tuple[Effect, ...]:
        active = self._tasks.active
        revoked = revoked_tasks(active, event.partitions)
        rest = left_over(active, event.partitions, revoked)
        logged = (Log(_DEBUG, f"revoked partitions that end no task: {', '.join(map(str, rest))}"),) if rest else ()
        self._keep(lambda task: task not in revoked)
        self._suspended |= frozenset(revoked)
        return (*logged, SuspendTasks(revoked)) if event.partitions else logged

    def _on_lost(self, event: PartitionsLost) -> tuple[Effect, ...]:
        lost = tuple(sorted(self._suspended.union(self._tasks.active)))
        self._keep(lambda task: False)
        self._suspended = frozenset()
        self._phase = Phase.OUTSIDE
        return (CloseLostTasks(lost),)

    def _keep(self, stays: Callable[[object], bool]) -> None:
        self._tasks = Tasks(
            {task: parts for task, parts in self._tasks.active.items() if stays(task)}, self._tasks.standby
        )

    # -- asking for a rebalance ------------------------------------------------------------------------------------

    def _on_loop_turned(self, event: LoopTurned) -> tuple[Effect, ...]:
        if self._error_code == ErrorCode.SHUTDOWN_REQUESTED:
            if self._phase is Phase.STOPPING:
                return ()  # all members have received the shutdown code
            return (RequestRejoin("the application is shutting down"),)
        if self._draining and not self._drain_told and self._phase is Phase.STABLE:
            return (RequestRejoin("its tasks are to be handed over"),)
        if self.rebalance_in_progress or not is_due(self._scheduled_ms, event.now_ms):
            return ()
        reason = "immediate" if self._scheduled_ms == FOLLOW_UP_NOW else f"planned for {self._scheduled_ms}"
        self._scheduled_ms = NO_FOLLOW_UP
        return (RequestRejoin(f"follow-up rebalance, {reason}"),)

    def _on_standbys_measured(self, event: StandbysMeasured) -> tuple[Effect, ...]:
        if self._phase is not Phase.STABLE or not self._settings.asks_when_caught_up:
            return ()
        reason = self._promotion.reason(event.now_ms, event.progress)
        return () if reason is None else (RequestRejoin(reason),)


_KNOWN_CODES: Final = frozenset(int(code) for code in ErrorCode)


def _meaning(code: int) -> str:
    match code:
        case ErrorCode.INCOMPLETE_SOURCE_TOPIC_METADATA:
            return "a source topic does not exist; the leader's log names it. Create it, then restart"
        case ErrorCode.VERSION_PROBING:
            return "the group is probing for a common version"
        case ErrorCode.ASSIGNMENT_ERROR:
            return (
                "the group could not be assigned, or not with this member in it: its user data cannot be read, or its "
                "topology reads other topics than the leader's under the same application.id; the leader's log has the "
                "reason"
            )
        case ErrorCode.SHUTDOWN_REQUESTED:
            return "a member asked the whole application to stop"
        case _:
            return "unknown to this version; the leader's log may say more"


def _failure(code: int) -> FailThread | None:
    """Return the effect of an error code on the thread; None for a shutdown."""
    if code == ErrorCode.SHUTDOWN_REQUESTED:
        return None
    if code == ErrorCode.INCOMPLETE_SOURCE_TOPIC_METADATA:
        return FailThread(MissingSourceTopicError(_meaning(code)))
    return FailThread(TaskAssignmentError(f"error code {code}: {_meaning(code)}"))
