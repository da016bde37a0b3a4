"""A real sans-IO member, and the tasks that it works on: carries out what the member wants, as far as it shows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import assert_never

from streams_protocol.types import TaskId, TopicPartition
from streams_py.member import Member
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
    Event,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    SubscriptionRequested,
)
from streams_py.member.group_model.ownership import Partitions

__all__ = ["ModelMember"]


class ModelMember(ABC):
    """One stream thread as its group sees it. A subclass says what else there is, such as state on a disk.

    The member checks itself after every event; IllegalStateError when something is wrong with it.
    """

    def __init__(self, member: Member) -> None:
        self.member = member
        self.active: dict[TaskId, Partitions] = {}
        self.standby: set[TaskId] = set()

    # -- events ------------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> tuple[Effect, ...]:
        """One event for the member; its effects are carried out."""
        effects = self.member.handle(event)
        self.member.validate_state()
        for effect in effects:
            self._carry_out(effect)
        return effects

    def subscribe(self, sums: Mapping[TaskId, int]) -> bytes:
        """The subscription's user data, with these offset sums."""
        return next(e.user_data for e in self.handle(SubscriptionRequested(sums)) if isinstance(e, SendUserData))

    def on_lost(self, partitions: Partitions) -> None:
        """Membership is gone."""
        self.handle(PartitionsLost(tuple(sorted(partitions))))

    def on_revoked(self, partitions: Partitions) -> None:
        """Partitions go, in order."""
        self.handle(PartitionsRevoked(tuple(sorted(partitions))))

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes) -> None:
        """What the leader sent."""
        self.handle(AssignmentReceived(partitions, user_data))

    def on_assigned(self, added: Partitions) -> None:
        """The rebalance is over."""
        self.handle(PartitionsAssigned(tuple(sorted(added))))

    # -- effects -----------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case ApplyTasks(tasks):
                self.apply_tasks(dict(tasks.active), set(tasks.standby))
            case SuspendTasks(tasks):
                self.close_active(tasks, lost=False)
            case CloseLostTasks(tasks):
                self.close_active(tasks, lost=True)
            case CompleteRebalance():
                self.complete_rebalance()
            case RequestRejoin():
                self.request_rejoin()
            case FailThread(error):
                self.fail_thread(error)
            case StopApplication():
                self.stop_application()
            case SendUserData() | ShowHosts() | Log():
                pass  # the first is sent by whoever asked; nothing of the others shows in a group
            case _:
                assert_never(effect)

    def apply_tasks(self, active: dict[TaskId, Partitions], standby: set[TaskId]) -> None:
        """These are the tasks from now on."""
        self.active, self.standby = active, standby

    def close_active(self, tasks: tuple[TaskId, ...], *, lost: bool) -> None:
        """These do not run here any more. One that is ``lost`` may be suspended already."""
        for task in tasks:
            self.active.pop(task, None)

    @abstractmethod
    def complete_rebalance(self) -> None:
        """Everything that the assignment brought is known."""

    @abstractmethod
    def request_rejoin(self) -> None:
        """Join again, soon."""

    @abstractmethod
    def fail_thread(self, error: Exception) -> None:
        """The thread cannot go on."""

    @abstractmethod
    def stop_application(self) -> None:
        """A member asked all others to stop."""
