"""What the simulator shows to the checkers, and what a checker is.

Checkers see facts, never the simulator's insides: an assignment that was published, a partition that became usable, a
commit that was accepted, how a run ended. Each promise has a checker in a file of its own; a checker that finds
nothing says nothing.
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

__all__ = ["Checker", "Committed", "Gained", "Outcome", "Placed", "Published", "Restored", "Violation"]


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken. ``liveness`` tells "not in time" from "never allowed"."""

    promise: str
    at_ms: int
    text: str
    liveness: bool = False
    traceback: str = ""
    """Of the user's own code, where that is what failed."""

    def __str__(self) -> str:
        return f"{self.promise} ({'liveness' if self.liveness else 'safety'}): {self.text}"


@dataclass(frozen=True)  # no slots: it caches what several checkers ask
class Published:
    """One assign step that ended, seen from outside.

    ``members`` are the subscriptions as the coordinator had them, ``subscriptions`` what is in them (None where the
    user data cannot be read or is a future member's). ``infos`` is what each member was sent (None: unreadable).
    ``tasks`` maps every task to its input partitions, by an account that is not the leader's. ``failure`` is set
    instead of assignments when nothing was published; ``disturbed`` when a request to the brokers was made to fail
    meanwhile; ``assignor_error`` when the application's assignor failed.
    """

    at_ms: int
    generation: int
    leader: str
    leader_newest: int
    members: Mapping[str, MemberSubscription]
    subscriptions: Mapping[str, SubscriptionInfo | None]
    hostile: frozenset[str]
    clients: Mapping[str, object]
    """Who is behind each member: equal values are one process, as far as the leader can know."""
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
    """Whether the simulator has made the assignor fail."""
    callback_error: Exception | None = None
    """What ``on_assignment_computed`` raised."""
    source_missing: bool = False
    error_code: int = 0
    """The code that *everybody* was to be sent; 0 when the group was assigned."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Version in which each readable or future member spoke."""
    written: Mapping[str, int] = field(default_factory=dict)
    """Version in which each member was answered, as its bytes say."""
    again: Callable[[random.Random], Mapping[str, MemberAssignment] | None] | None = None
    """Runs the same step once more, with members and topics in another order; None when it cannot be repeated."""

    @property
    def normal(self) -> bool:
        """True for an assignment of tasks, with a working assignor."""
        return self.failure is None and self.error_code == 0 and self.assignor_error is None

    @cached_property
    def hosts(self) -> Mapping[HostInfo, ProcessId]:
        """End points of the processes; empty when two of them share one, or one has two."""
        found: dict[HostInfo, ProcessId] = {}
        for info in self.subscriptions.values():
            if info is not None and info.endpoint:
                name, _, port = info.endpoint.rpartition(":")
                host = HostInfo(name, int(port)) if port.isdigit() else HostInfo(name, 0)
                if found.setdefault(host, info.process_id) != info.process_id:
                    return {}
        return found if len(set(found.values())) == len(found) else {}


@dataclass(frozen=True, slots=True)
class Gained:
    """A member's consumer may use a partition from now on; ``others`` are members of this generation that also may."""

    at_ms: int
    partition: TopicPartition
    member: str
    generation: int
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """The coordinator accepted a commit. ``grant`` numbers the moment at which the member got the partition."""

    at_ms: int
    partition: TopicPartition
    member: str
    generation: int
    grant: int


@dataclass(frozen=True, slots=True)
class Restored:
    """An active task is seen to be restored; ``lacking`` records of its changelogs are not in its store."""

    at_ms: int
    task: TaskId
    member: str
    lacking: int


class Placed(NamedTuple):
    """A process, by number, and one of its threads."""

    process: int
    thread: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: what was true after the faults had stopped and everything had come to rest, or had not.

    Times are in ms after the end of the faults, counts are of rebalances since then; None means never.
    """

    at_ms: int
    assignor: str
    configs: AssignmentConfigs
    stateful: int
    """How many tasks have state."""
    tasks: int
    quiet: bool
    """Nobody wants another rebalance."""
    rebalances: int
    running_after_ms: int | None
    """First moment at which every task was active on a healthy member."""
    last_move_after: int
    """Rebalances until the placement of active tasks changed for the last time."""
    catch_up_rounds: int
    """Probing intervals that a warm-up needs at most to catch up."""
    membership_changes: int
    """How often members came or went after the last fault, because sessions ended then or threads were replaced."""
    final_version: int | None
    """Version of the last assignment; None when there was none."""
    highest_common_version: int
    version_after: int
    """Rebalances, since members changed for the last time, until the group spoke its final version for good."""
    idle: tuple[TaskId, ...] = ()
    """Tasks that nobody healthy has at the end."""
    before: Mapping[TaskId, Placed] = field(default_factory=dict)
    """Where the active tasks were when the group had come to rest; empty when that was not tried out."""
    after: Mapping[TaskId, Placed] = field(default_factory=dict)
    """Where they were after one more rebalance with nothing new."""
    failures: tuple[str, ...] = ()
    """Threads that failed although the faults had stopped."""
    hostile: bool = False
    """A poisonous member stayed until the end."""
    retry_pending: bool = False
    """The application's assignor failed in the last rebalance, and nobody could be told when to try again: assignments
    say that from version 7 on. Only groups on their way from releases before 2.6 are in that position."""
    own_assignor: bool = False
    """The assignor is the user's own: simulated to be judged, not as one of ours that may fail."""
    circles: bool = False
    """The group does not come to rest because its assignor goes round in circles, and this one is known to do so."""


class Checker:
    """Watches for one promise. Subclasses override what they need and call :meth:`report`."""

    promise: str = ""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.looked = 0
        """How often something was checked."""

    def report(self, at_ms: int, text: str, *, liveness: bool = False, error: BaseException | None = None) -> None:
        """Note a violation; with the traceback of ``error``, when user code has failed."""
        trace = "".join(traceback.format_exception(error)) if error is not None else ""
        self.violations.append(Violation(self.promise, at_ms, text, liveness, trace))

    def published(self, seen: Published) -> None:
        """A leader finished an assign step."""

    def gained(self, seen: Gained) -> None:
        """A partition became usable on a member."""

    def committed(self, seen: Committed) -> None:
        """A commit was accepted."""

    def restored(self, seen: Restored) -> None:
        """An active task has its stores, and runs."""

    def ended(self, seen: Outcome) -> None:
        """The run is over."""
