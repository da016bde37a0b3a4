"""A group membership whose rebalances the test makes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from streams_protocol import NO_FOLLOW_UP, AssignmentInfo, SubscriptionInfo, decode_subscription_info
from streams_protocol import encode_assignment_info as encode
from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports import CommittedOffsets, GroupMetadata, MembershipListener, MemberSubscription, OffsetAndMetadata

if TYPE_CHECKING:
    from tests.support.runtime.world import World

Parts = frozenset[TopicPartition]


class WorldMembership:
    """A membership whose rebalances the test makes."""

    def __init__(self, world: World, listener: MembershipListener) -> None:
        self._world = world
        self.listener = listener
        self.owned: Parts = frozenset()
        self.generation = 0
        self.joins = False
        """True: JoinGroup is answered, so the next generation is known; its assignment is not."""
        self.topics: frozenset[str] = frozenset()
        self.commit_error: Exception | None = None
        self.problem: Exception | None = None
        self.counted = True
        """False: the group may have dropped this member."""
        self.answers = True
        """False: committed offsets arrive when the test releases them."""
        self._unanswered: list[tuple[Parts, Future[CommittedOffsets]]] = []
        world.open_clients.add(self)

    # -- the test's side -----------------------------------------------------------------------------------

    def join(self) -> SubscriptionInfo:
        """Build a subscription; the rebalance is in progress afterwards."""
        return decode_subscription_info(self._user_data())

    def finish(
        self,
        active: Mapping[TaskId, Collection[TopicPartition]],
        standby: Mapping[TaskId, Collection[TopicPartition]] | None = None,
        **info: Any,
    ) -> None:
        """Run the rest of a cooperative rebalance: revoke partitions, then assign."""
        pairs = sorted((partition, task) for task, partitions in active.items() for partition in partitions)
        wanted = frozenset(partition for partition, _ in pairs)
        user_data = encode(
            AssignmentInfo(
                active_tasks=tuple(task for _, task in pairs),
                standby_tasks={task: frozenset(parts) for task, parts in (standby or {}).items()},
                **{"next_rebalance_ms": NO_FOLLOW_UP, **info},
            )
        )
        self._adopt(wanted, user_data)

    def round(
        self,
        active: Mapping[TaskId, Collection[TopicPartition]],
        standby: Mapping[TaskId, Collection[TopicPartition]] | None = None,
        **info: Any,
    ) -> SubscriptionInfo:
        """Run a whole rebalance with this outcome; return what was reported before it."""
        sent = self.join()
        self.finish(active, standby, **info)
        return sent

    def _user_data(self) -> bytes:
        forming = self.forming()
        generation = -1 if forming is None else forming.generation
        return self.listener.subscription_user_data(self.topics, self.member_id, generation)

    def lead(self) -> None:
        """Run a whole rebalance of a group of one, led by this member."""
        user_data = self._user_data()
        subscription = MemberSubscription(
            tuple(sorted(self.topics)), user_data, tuple(sorted(self.owned)), self.generation or -1, None
        )
        assignment = self.listener.assign({"me": subscription})["me"]
        self._adopt(frozenset(assignment.partitions), assignment.user_data)

    def _adopt(self, wanted: Parts, user_data: bytes) -> None:
        self.generation += 1
        self.joins = False
        self._world.group_generation = None
        before = self.owned
        if before - wanted:
            self.revoke(before - wanted)
        self.listener.on_assignment(tuple(sorted(wanted)), user_data, self.generation)
        self.owned = wanted
        self.listener.on_assigned(tuple(sorted(wanted - before)))

    def revoke(self, partitions: Collection[TopicPartition]) -> None:
        offsets = self.listener.on_revoked(tuple(sorted(partitions)))
        error: Exception | None = None
        if offsets:
            try:
                self._commit("revocation commit", offsets)
            except StreamsError as problem:
                error = problem
        self.listener.on_revoked_committed(error)

    def lose(self) -> None:
        """Drop this member from the group."""
        owned, self.owned = self.owned, frozenset()
        self.listener.on_lost(tuple(sorted(owned)))

    def _commit(self, what: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._world.diary.append((what, {p: at.offset for p, at in offsets.items()}))
        if self.commit_error is not None:
            raise self.commit_error
        self._world.committed.update(offsets)

    # -- the port Membership -------------------------------------------------------------------------------

    def start(self) -> None:
        self._world.diary.append(("membership started",))

    def subscribe(self, topics: frozenset[str], pattern: str | None = None) -> None:
        self.topics = topics

    def request_rejoin(self, reason: str) -> None:
        self._world.diary.append(("rejoin", reason))

    def expect_rebalance(self) -> None:
        pass

    def rejoin_as_new_member(self) -> None:
        self._world.diary.append(("join as a new member",))
        self.owned = frozenset()

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        self._commit("commit", offsets)

    def committed(self, partitions: Collection[TopicPartition], *, timeout_ms: int) -> Future[CommittedOffsets]:
        asked = frozenset(partitions)
        answer: Future[CommittedOffsets] = Future()
        self._unanswered.append((asked, answer))
        if self.answers:
            self.answer()
        return answer

    def answer(self) -> None:
        """Answer all pending requests."""
        for asked, answer in self._unanswered:
            try:
                self._world.check_there()
            except BrokerUnavailableError as error:
                answer.set_exception(error)
            else:
                answer.set_result({partition: self._world.committed.get(partition) for partition in asked})
        self._unanswered.clear()

    def is_member(self) -> bool:
        return self.counted

    def group_metadata(self) -> GroupMetadata | None:
        return GroupMetadata("app", self.generation, "me", None) if self.generation else None

    def forming(self) -> GroupMetadata | None:
        known = self.group_metadata()
        return None if known is None else known._replace(generation=self.generation + self.joins)

    @property
    def member_id(self) -> str:
        return "me" if self.generation else ""

    def check(self) -> None:
        if self.problem is not None:
            problem, self.problem = self.problem, None
            raise problem

    def leave_and_close(self, *, leave_group: bool, timeout_ms: int) -> None:
        self._world.diary.append(("leave" if leave_group else "stay until the session expires",))
        self._world.open_clients.discard(self)
