"""Members with fake stream threads, on a real broker.

A :class:`FakeThread` records the calls of its membership in order, and acts as leader. It assigns partitions to the
members in turn, and withholds a partition that another member still owns (the cooperative rule).
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping

from streams_protocol.types import TopicPartition
from streams_py.adapters.kafka_python.classic.membership import KafkaPythonMembership
from streams_py.adapters.kafka_python.settings import membership_settings
from streams_py.ports import MemberAssignment, MemberSubscription, OffsetAndMetadata
from tests.support.waiting import until as wait_until


class FakeThread:
    """Listener of one member. ``calls`` has all calls as (name, partitions or None)."""

    def __init__(self, partitions: list[TopicPartition]) -> None:
        self.partitions = partitions
        self.calls: list[tuple[str, object]] = []
        self.owned: tuple[TopicPartition, ...] = ()
        self.rounds = 0
        self.joins = 0
        self.seen_members: list[Mapping[str, MemberSubscription]] = []
        self.commit_problems: list[Exception | None] = []
        self.doubts: list[bool] = []
        self.waits = 0
        self.user_data: Callable[[], bytes] = lambda: bytes([self.joins % 256])
        self.before_assign: Callable[[], None] = lambda: None
        self.before_revoked: Callable[[], None] = lambda: None
        self.offset = 7

    def subscription_user_data(self, topics: frozenset[str], member_id: str, generation: int) -> bytes:
        self.joins += 1
        return self.user_data()

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        self.before_assign()
        self.seen_members.append(members)
        self.calls.append(("assign", tuple(sorted(members))))
        owner = {partition: member for member, sent in members.items() for partition in sent.owned}
        mine: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for member, partition in zip(itertools.cycle(sorted(members)), self.partitions):
            if owner.get(partition, member) == member:
                mine[member].append(partition)
        return {member: MemberAssignment(tuple(held), b"tasks") for member, held in mine.items()}

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes, generation: int) -> None:
        self.calls.append(("on_assignment", partitions))
        self.owned = partitions

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self.calls.append(("on_revoked", partitions))
        self.before_revoked()
        return {partition: OffsetAndMetadata(self.offset, "meta") for partition in partitions}

    def on_revoked_committed(self, error: Exception | None) -> None:
        self.calls.append(("on_revoked_committed", None))
        self.commit_problems.append(error)

    def on_stuck(self) -> None:
        self.calls.append(("on_stuck", None))

    def on_doubt(self, in_doubt: bool) -> None:
        self.doubts.append(in_doubt)

    def on_join_waits(self, waited_s: float) -> None:
        self.waits += 1

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.calls.append(("on_lost", partitions))
        self.owned = ()

    def on_assigned(self, added: tuple[TopicPartition, ...]) -> None:
        self.calls.append(("on_assigned", added))
        self.rounds += 1

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


class Group:
    """A topic and a group of members that read it."""

    def __init__(self, broker, partitions: int) -> None:
        self.broker = broker
        self.id = f"group-{uuid.uuid4().hex[:8]}"
        self.topic = f"topic-{uuid.uuid4().hex[:8]}"
        self.partitions = [TopicPartition(self.topic, i) for i in range(partitions)]
        broker.create_topic(self.topic, partitions)
        self.members: list[KafkaPythonMembership] = []

    def settings(
        self,
        name: str = "m",
        instance_id: str | None = None,
        group_id: str | None = None,
        bootstrap: str | None = None,
        **config: object,
    ):
        config = {"session.timeout.ms": 3000, "heartbeat.interval.ms": 200} | {
            key.replace("_", "."): value for key, value in config.items()
        }
        return membership_settings(
            config,
            bootstrap_servers=bootstrap or self.broker.bootstrap,
            group_id=group_id or self.id,
            client_id=f"{name}-consumer",
            group_instance_id=instance_id,
        )

    def join(self, thread: FakeThread | None = None, *, start: bool = True, cooperative: bool = True, **settings):
        """Start a member; return it with its fake thread."""
        thread = thread or FakeThread(self.partitions)
        member = KafkaPythonMembership(
            self.settings(**settings), thread, cooperative=cooperative, check_subscription=bytes, check_assignment=bytes
        )
        self.members.append(member)
        if start:
            member.start()
            member.subscribe(frozenset({self.topic}))
        return member, thread

    def settled(self, *threads: FakeThread) -> bool:
        """Whether each partition is owned by one of these threads, evenly, and no rebalance is in progress."""
        counts = [len(thread.owned) for thread in threads]
        ended = all(thread.names()[-1:] in ([], ["on_assigned"]) for thread in threads)
        return ended and sum(counts) == len(self.partitions) and max(counts) - min(counts) <= 1

    def wait_settled(self, *threads: FakeThread) -> None:
        wait_until(lambda: self.settled(*threads), "every partition has one owner, evenly")
        members = self.members[-len(threads) :]
        wait_until(lambda: len({member.group_metadata().generation for member in members}) == 1, "one generation")

    def close(self) -> None:
        for member in self.members:
            member.leave_and_close(leave_group=True, timeout_ms=5000)
