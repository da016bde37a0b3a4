"""A real sans-IO member with a model of its tasks, which carries out the member's effects."""

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


class ModelMember(ABC):
    """One stream thread as its group sees it. Subclasses add the rest, such as state on disk.

    Each event is followed by a check of the member's state; an inconsistent state raises AssertionError.
    """

    def __init__(self, member: Member) -> None:
        self.member = member
        self.active: dict[TaskId, Partitions] = {}
        self.standby: set[TaskId] = set()

    # -- events ------------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> tuple[Effect, ...]:
        """Pass one event to the member, carry out its effects, and return them."""
        effects = self.member.handle(event)
        self.member.validate_state()
        for effect in effects:
            self._carry_out(effect)
        return effects

    def subscribe(self, sums: Mapping[TaskId, int]) -> bytes:
        """Return the subscription's user data, with these offset sums."""
        return next(e.user_data for e in self.handle(SubscriptionRequested(sums)) if isinstance(e, SendUserData))

    def on_lost(self, partitions: Partitions) -> None:
        """Tell the member that its membership and these partitions are lost."""
        self.handle(PartitionsLost(tuple(sorted(partitions))))

    def on_revoked(self, partitions: Partitions) -> None:
        """Tell the member that these partitions are revoked while it stays in the group."""
        self.handle(PartitionsRevoked(tuple(sorted(partitions))))

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes) -> None:
        """Hand the leader's assignment to the member."""
        self.handle(AssignmentReceived(partitions, user_data))

    def on_assigned(self, added: Partitions) -> None:
        """Tell the member that the rebalance has ended."""
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
                pass  # subscribe() returns the user data; the group does not see the other two
            case _:
                assert_never(effect)

    def apply_tasks(self, active: dict[TaskId, Partitions], standby: set[TaskId]) -> None:
        """Replace the thread's tasks."""
        self.active, self.standby = active, standby

    def close_active(self, tasks: tuple[TaskId, ...], *, lost: bool) -> None:
        """Stop these active tasks. A ``lost`` task may already be suspended."""
        for task in tasks:
            self.active.pop(task, None)

    @abstractmethod
    def complete_rebalance(self) -> None:
        """Complete the rebalance: the member has handled the whole assignment."""

    @abstractmethod
    def request_rejoin(self) -> None:
        """Rejoin the group soon."""

    @abstractmethod
    def fail_thread(self, error: Exception) -> None:
        """Stop the thread because of ``error``."""

    @abstractmethod
    def stop_application(self) -> None:
        """Stop the application, because a member requested it."""
