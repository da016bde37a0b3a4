"""Observers that the runtime notifies, in versions that do nothing. Writers of assignment events derive from them.

The runtime always calls its observers, without checking whether events are enabled. With
``assignment.events.level = none`` it calls the objects of this module, which do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from streams_protocol.types import TaskId, TopicPartition
from streams_py.leader.effects import FailAssign, PublishAssignments
from streams_py.leader.observation import Fact
from streams_py.leader.settings import LeaderSettings
from streams_py.ports import MemberSubscription

Who = Callable[[], tuple[int, str]]
"""Returns the current generation and member id; (-1, "") if this process is not a member."""
Forming = Callable[[], tuple[int, str] | None]
"""Returns the generation that is being formed and the leader's member id in it; None if unknown."""


class WorkingTask(Protocol):
    """The part of an active task's interface that observers use."""

    @property
    def id(self) -> TaskId: ...
    @property
    def input_partitions(self) -> frozenset[TopicPartition]: ...
    def oldest_waiting_ms(self) -> int | None: ...
    def has_input(self) -> bool: ...


class TaskObserver:
    """An observer of the tasks of one stream thread, which makes all calls."""

    def assigned(self, task: TaskId, *, is_active: bool) -> None:
        """Called when a task was assigned to this thread."""

    def changed(self, event: str, task: TaskId, *, is_active: bool, began_us: int | None = None) -> None:
        """Called after a transition.

        Args:
            event: The transition, one of those in ``TaskEvent``.
            task: The task.
            is_active: Whether the task is active.
            began_us: The start time (by :meth:`now_us`), if the transition took time.
        """

    def recycled(self, task: TaskId, *, is_active: bool) -> None:
        """Called when a task has changed its role (``is_active``: the new one) and keeps its stores."""

    def ended(self, event: str, task: TaskId, *, is_active: bool, began_us: int | None = None) -> None:
        """Called after a transition that ends processing, such as ``suspended`` or ``lost``; see :meth:`changed`."""

    def now_us(self) -> int:
        """Return the time of the clock for durations, in us."""
        return 0

    def polled(self, began_us: int) -> None:
        """Called after each poll of the consumer. ``began_us``: the start of the poll, by :meth:`now_us`."""

    def processing(self, task: WorkingTask) -> int:
        """Called before a task processes records. Return the start time for :meth:`processed`."""
        return 0

    def processed(self, task: WorkingTask, count: int, began_us: int) -> None:
        """Called after a task has processed ``count`` records, unless it raised an error."""

    def sample_if_due(
        self, tasks: Collection[WorkingTask], lag_of: Callable[[TopicPartition], int | None], commit_age_ms: int
    ) -> None:
        """Called after each iteration of the loop. ``lag_of`` returns the cached lag of an input partition, or None."""

    def rebalanced(self, tasks: Collection[TaskId]) -> None:
        """Called after a rebalance with all tasks of the thread."""


UNOBSERVED: Final = TaskObserver()
"""A task observer that does nothing."""


class RestoreObserver:
    """An observer of restores by changelog partition. The state updater makes all calls."""

    def started(self, changelog: TopicPartition, store: str, start: int, end: int) -> None:
        """Called when the restore of a changelog partition starts."""

    def advanced(self, changelog: TopicPartition, count: int) -> None:
        """Called when ``count`` records were restored."""

    def ended(self, changelog: TopicPartition) -> None:
        """Called when a changelog partition is restored completely."""

    def suspended(self, changelog: TopicPartition) -> None:
        """Called when the task was taken away before the end of the restore."""

    def warm(self, task: TaskId, lag: int, since_ms: int) -> None:
        """Called when the lag of a standby is within ``acceptable.recovery.lag``, ``since_ms`` after its creation."""


class AssignObserver:
    """An observer of the assign steps of one leader."""

    def began(self, members: Mapping[str, MemberSubscription]) -> None:
        """Called when an assign step starts."""

    def observe(self, fact: Fact) -> None:
        """Called for each fact that the leader reports."""

    def ended(self, outcome: PublishAssignments | FailAssign | BaseException, assignor: object = None) -> None:
        """Called when an assign step has ended.

        Args:
            outcome: The leader's last effect, or the exception that ended the step.
            assignor: The instance of the custom assignor, if one was used.
        """


class InstanceObserver:
    """The factory for the observers of one application instance. Thread-safe. Close it before the admin client."""

    def watch(self, settings: LeaderSettings, forming: Forming) -> AssignObserver:
        """Return the observer for the leader of a stream thread."""
        return AssignObserver()

    def tasks(self, who: Who) -> TaskObserver:
        """Return the observer for the tasks of a stream thread."""
        return UNOBSERVED

    def restores(self, who: Who, subtopology_of: Mapping[str, int]) -> RestoreObserver:
        """Return the observer for restores of a stream thread. ``subtopology_of``: changelog topic -> number."""
        return RestoreObserver()

    def evicted(self, pid: int | None, members: Collection[str]) -> None:
        """Called when the instance has removed members of a process that has ended. ``pid``: its number, if known."""

    def close(self) -> None:
        """Called when the instance closes."""
