"""The events that the simulator passes to checkers, and the base class of checkers.

Checkers see facts, never the internals of the simulator: a published assignment, a partition that became usable, an
accepted commit, the outcome of a run. Each promise has its checker, in a separate file. A checker reports nothing if
it finds nothing.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from streams_protocol import AssignmentInfo, SubscriptionInfo
from streams_protocol.types import HostInfo, ProcessId, TaskId, TopicPartition
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.ports import MemberAssignment, MemberSubscription


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken. ``liveness``: it was kept too late or never; otherwise safety was violated."""

    promise: str
    at_ms: int
    text: str
    liveness: bool = False
    traceback: str = ""
    """Traceback of the user's code, if that failed; otherwise empty."""

    def __str__(self) -> str:
        return f"{self.promise} ({'liveness' if self.liveness else 'safety'}): {self.text}"


@dataclass(frozen=True)  # no slots: `hosts` is cached, because several checkers use it
class Published:
    """A finished assign step, seen from outside.

    ``members`` are the subscriptions as the coordinator had them, ``subscriptions`` their decoded user data (None if it
    is unreadable or of a future version). ``infos`` is the decoded assignment of each member (None if unreadable).
    ``tasks`` maps every task to its input partitions, computed independently of the leader. ``failure`` is set instead
    of assignments if the leader published nothing. ``disturbed`` is True if the simulator made a broker request fail
    during the step. ``assignor_error`` is set if the application's assignor failed.
    """

    at_ms: int
    generation: int
    leader: str
    leader_newest: int
    members: Mapping[str, MemberSubscription]
    subscriptions: Mapping[str, SubscriptionInfo | None]
    hostile: frozenset[str]
    clients: Mapping[str, object]
    """Identity behind each member: equal values are the same process, as far as the leader can tell."""
    assignments: Mapping[str, MemberAssignment]
    infos: Mapping[str, AssignmentInfo | None]
    tasks: Mapping[TaskId, tuple[TopicPartition, ...]]
    stateful: frozenset[TaskId]
    configs: AssignmentConfigs
    assignor: str
    failure: Exception | None = None
    disturbed: bool = False
    assignor_error: Exception | None = None
    assignor_spoiled: bool = False
    """Whether the simulator made the assignor fail."""
    callback_error: Exception | None = None
    """Error that ``on_assignment_computed`` raised."""
    source_missing: bool = False
    error_code: int = 0
    """Error code sent to *all* members; 0 if the group was assigned."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Version of each subscription that is readable or of a future version."""
    written: Mapping[str, int] = field(default_factory=dict)
    """Version of each encoded assignment."""
    again: Callable[[random.Random], Mapping[str, MemberAssignment] | None] | None = None
    """Repeats the step with members and topics in another order; None if it cannot be repeated."""

    @property
    def normal(self) -> bool:
        """Whether tasks were assigned by a working assignor."""
        return self.failure is None and self.error_code == 0 and self.assignor_error is None

    @cached_property
    def hosts(self) -> Mapping[HostInfo, ProcessId]:
        """Process id by end point.

        Empty if two processes share an end point, or if members of one process differ in it. A leader then does not
        know which one is right, and one of them may have none.
        """
        found: dict[HostInfo, ProcessId] = {}
        texts: dict[ProcessId, str] = {}
        for info in self.subscriptions.values():
            if info is None:
                continue
            text = info.endpoint or ""
            if texts.setdefault(info.process_id, text) != text:
                return {}
            if text:
                name, _, port = text.rpartition(":")
                host = HostInfo(name, int(port)) if port.isdigit() else HostInfo(name, 0)
                if found.setdefault(host, info.process_id) != info.process_id:
                    return {}
        return found


@dataclass(frozen=True, slots=True)
class Gained:
    """A consumer gained a partition. ``others`` are members of the same generation that may also use it."""

    at_ms: int
    partition: TopicPartition
    member: str
    generation: int
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """The coordinator accepted a commit. ``grant`` is the number of the grant with which the member got the
    partition."""

    at_ms: int
    partition: TopicPartition
    member: str
    generation: int
    grant: int


@dataclass(frozen=True, slots=True)
class Restored:
    """An active task was found to be restored. ``lacking`` records of its changelogs are not in its store."""

    at_ms: int
    task: TaskId
    member: str
    lacking: int


class Placed(NamedTuple):
    """The number of a process and the name of one of its threads."""

    process: int
    thread: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run: the state after the faults stopped and the group stopped rebalancing, or reached a limit.

    Times are in ms after the end of the faults. Counts are rebalances since then. None means never.
    """

    at_ms: int
    assignor: str
    configs: AssignmentConfigs
    stateful: int
    """Number of stateful tasks."""
    tasks: int
    quiet: bool
    """Whether no member wants another rebalance."""
    rebalances: int
    running_after_ms: int | None
    """First time at which every task was active on a healthy member."""
    last_move_after: int
    """Rebalances until the placement of active tasks changed for the last time."""
    catch_up_rounds: int
    """Probing intervals that a warm-up task needs at most to catch up."""
    membership_changes: int
    """Number of membership changes after the last fault, because sessions expired or threads were replaced."""
    final_version: int | None
    """Version of the last assignment; None without an assignment."""
    highest_common_version: int
    version_after: int
    """Rebalances, since the last membership change, until the group used its final version."""
    unassigned: tuple[TaskId, ...] = ()
    """Tasks that are not active on a healthy member at the end."""
    before: Mapping[TaskId, Placed] = field(default_factory=dict)
    """Placement of the active tasks when the group had stopped rebalancing; empty if no further rebalance was run."""
    after: Mapping[TaskId, Placed] = field(default_factory=dict)
    """Placement of the active tasks after one more rebalance without any change."""
    failures: tuple[str, ...] = ()
    """Threads that failed although the faults had stopped."""
    hostile: bool = False
    """Whether a hostile member stayed until the end."""
    retry_pending: bool = False
    """Whether the application's assignor failed in the last rebalance and the group has no time for a retry.

    Assignments carry that time from version 7 on, so this occurs only in upgrades from releases before 2.6."""
    user_assignor: bool = False
    """Whether the assignor under test is the user's, and not the simulator's own that may be made to fail."""
    oscillates: bool = False
    """Whether the group keeps rebalancing because its assignor repeats the same placements, as sticky ones may."""
    oscillated_until: int = 0
    """Rebalances until a sticky assignor repeated the same placements for the last time; 0 if it never oscillated."""


class Checker:
    """Checks one promise. Subclasses override the methods that they need, and call :meth:`report`."""

    promise: str = ""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.checks = 0
        """Number of checks made."""

    def report(self, at_ms: int, text: str, *, liveness: bool = False, error: BaseException | None = None) -> None:
        """Record a violation. ``error``: the error of user code that failed, for its traceback."""
        trace = "".join(traceback.format_exception(error)) if error is not None else ""
        self.violations.append(Violation(self.promise, at_ms, text, liveness, trace))

    def published(self, seen: Published) -> None:
        """Called when a leader has finished an assign step."""

    def gained(self, seen: Gained) -> None:
        """Called when a member gains a partition."""

    def committed(self, seen: Committed) -> None:
        """Called when the coordinator accepts a commit."""

    def restored(self, seen: Restored) -> None:
        """Called when an active task has restored its stores and runs."""

    def ended(self, seen: Outcome) -> None:
        """Called once, at the end of the run."""
