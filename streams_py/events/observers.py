"""What the runtime tells of itself, and nobody listens: the base of everything that writes assignment events.

The runtime calls these at every turn and never asks whether events are on. With ``assignment.events.level = none``
these very objects are called, and do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from streams_protocol.types import TaskId, TopicPartition
from streams_py.leader.effects import FailAssign, PublishAssignments
from streams_py.leader.observation import Fact
from streams_py.leader.settings import LeaderSettings
from streams_py.ports import MemberSubscription

__all__ = [
    "UNOBSERVED",
    "Forming",
    "InstanceObserver",
    "RestoreObserver",
    "RoundObserver",
    "TaskObserver",
    "Who",
    "WorkingTask",
]

Who = Callable[[], tuple[int, str]]
"""Generation and member id of the moment; (-1, "") when this is no member."""
Forming = Callable[[], tuple[int, str] | None]
"""Generation that is being formed, and the leader's member id in it, if that is known."""


class WorkingTask(Protocol):
    """What is asked of an active task."""

    @property
    def id(self) -> TaskId: ...
    @property
    def input_partitions(self) -> frozenset[TopicPartition]: ...
    def process(self, max_records: int) -> int: ...
    def oldest_waiting_ms(self) -> int | None: ...


class TaskObserver:
    """Hears what happens to the tasks of one stream thread, which makes all calls."""

    def assigned(self, task: TaskId, *, is_active: bool) -> None:
        """The task is to run here."""

    def changed(self, event: str, task: TaskId, *, is_active: bool, began_us: int | None = None) -> None:
        """A transition, one of those in ``TaskEvent``; ``began_us`` (of :meth:`now_us`) when it took time."""

    def recycled(self, task: TaskId, *, is_active: bool) -> None:
        """The task changes its role and keeps its stores."""

    def ended(self, event: str, task: TaskId, *, is_active: bool, began_us: int | None = None) -> None:
        """A transition that ends processing: ``suspended``, ``lost`` and so on."""

    def now_us(self) -> int:
        """The clock that durations are measured with."""
        return 0

    def process(self, task: WorkingTask, max_records: int) -> int:
        """``task.process(max_records)``, measured."""
        return task.process(max_records)

    def sample_if_due(
        self, tasks: Collection[WorkingTask], lag_of: Callable[[TopicPartition], int | None], commit_age_ms: int
    ) -> None:
        """A turn of the loop is over. ``lag_of``: cached lag of an input partition, None when not known."""

    def rebalanced(self, tasks: Collection[TaskId]) -> None:
        """A rebalance is over; these are all tasks of the thread now."""


UNOBSERVED: Final = TaskObserver()


class RestoreObserver:
    """Hears about restoration changelog by changelog, from the state updater, which makes all calls."""

    def started(self, changelog: TopicPartition, store: str, start: int, end: int) -> None:
        """One changelog of a task begins."""

    def advanced(self, changelog: TopicPartition, count: int) -> None:
        """Records were restored."""

    def ended(self, changelog: TopicPartition) -> None:
        """One changelog is complete."""

    def suspended(self, changelog: TopicPartition) -> None:
        """The task was taken away before the end."""

    def warm(self, task: TaskId, lag: int, since_ms: int) -> None:
        """A standby came within ``acceptable.recovery.lag``, ``since_ms`` after it was created."""


class RoundObserver:
    """Hears how far an assign step of one leader is."""

    def began(self, members: Mapping[str, MemberSubscription]) -> None:
        """The leader is asked to assign."""

    def observe(self, fact: Fact) -> None:
        """What the leader says of it."""

    def ended(self, outcome: PublishAssignments | FailAssign | BaseException, assignor: object = None) -> None:
        """The step is over. ``outcome``: the leader's last effect, or what was raised in between. ``assignor`` is the
        custom assignor's instance, if one was asked."""


class InstanceObserver:
    """Makes the observers of one application instance. Thread-safe; close it before the admin client."""

    def watch(self, settings: LeaderSettings, forming: Forming) -> RoundObserver:
        """For the leader of a stream thread."""
        return RoundObserver()

    def tasks(self, who: Who) -> TaskObserver:
        """For the tasks of a stream thread."""
        return UNOBSERVED

    def restores(self, who: Who, subtopology_of: Mapping[str, int]) -> RestoreObserver:
        """For the restorations of a stream thread's tasks; ``subtopology_of`` maps changelog topics."""
        return RestoreObserver()

    def close(self) -> None:
        """The instance ends."""
