"""What every Membership does: Kafka's order of callbacks, commits by owners only, leaving."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping

import pytest

from streams_protocol import AssignmentInfo, SubscriptionInfo, encode_assignment_info, encode_subscription_info
from streams_protocol.types import ProcessId, TopicPartition
from streams_py.errors import BrokerUnavailableError, IllegalStateError, TaskMigratedError
from streams_py.ports import MemberAssignment, Membership, MemberSubscription, OffsetAndMetadata
from tests.support.contract.port_kit import REAL, Cluster, part, until
from tests.support.waiting import commit

pytestmark = pytest.mark.parametrize("cluster", REAL, indirect=True)


class Listener:
    """Leads by giving partitions in turn, withholding what another member still owns; notes every call."""

    def __init__(self, partitions: list[TopicPartition]) -> None:
        self.calls: list[str] = []
        self.owned: tuple[TopicPartition, ...] = ()
        self.generation = 0
        self.commits: list[Exception | None] = []
        self._partitions = partitions
        self._process_id = ProcessId(uuid.uuid4())
        self._joins = 0

    def subscription_user_data(self, topics: frozenset[str], member_id: str, generation: int) -> bytes:
        self._joins += 1
        return encode_subscription_info(SubscriptionInfo(self._process_id, unique_field=self._joins % 100))

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        owner = {partition: member for member, sent in members.items() for partition in sent.owned}
        held: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for member, partition in zip(itertools.cycle(sorted(members)), self._partitions):
            if owner.get(partition, member) == member:
                held[member].append(partition)
        user_data = encode_assignment_info(AssignmentInfo())
        return {member: MemberAssignment(tuple(mine), user_data) for member, mine in held.items()}

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes, generation: int) -> None:
        self.calls.append("assignment")
        self.owned, self.generation = partitions, generation

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self.calls.append("revoked")
        return {partition: OffsetAndMetadata(7, "AgAA") for partition in partitions}

    def on_revoked_committed(self, error: Exception | None) -> None:
        self.calls.append("revoked committed")
        self.commits.append(error)

    def on_doubt(self, in_doubt: bool) -> None: ...

    def on_join_waits(self, waited_s: float) -> None: ...

    def on_stuck(self) -> None:
        self.calls.append("stuck")

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.calls.append("lost")
        self.owned = ()

    def on_assigned(self, added: tuple[TopicPartition, ...]) -> None:
        self.calls.append("assigned")


class Group:
    """Members of one group that reads one topic of four partitions."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self.partitions = [part(topic, number) for number in range(4)]
        self._cluster = cluster
        self._members: list[Membership] = []

    def join(self, name: str) -> tuple[Membership, Listener]:
        listener = Listener(self.partitions)
        member = self._cluster.clients.membership(name, 1, listener)
        self._members.append(member)
        member.start()
        member.subscribe(frozenset({self.topic}))
        return member, listener

    def settled(self, *listeners: Listener) -> Callable[[], bool]:
        """All partitions are owned, evenly; every member knows the same generation and has heard its round end."""

        def check() -> bool:
            counts = [len(listener.owned) for listener in listeners]
            one_generation = len({listener.generation for listener in listeners}) == 1
            ended = all(listener.calls[-1:] in ([], ["assigned"]) for listener in listeners)
            return ended and one_generation and sum(counts) == 4 and max(counts) - min(counts) <= 1

        return check

    def close(self) -> None:
        for member in self._members:
            member.leave_and_close(leave_group=True, timeout_ms=5000)


@pytest.fixture
def group(cluster: Cluster) -> Iterator[Group]:
    made = Group(cluster, cluster.topic())
    yield made
    made.close()


def test_first_member_gets_everything_with_the_callbacks_in_order(group: Group) -> None:
    member, listener = group.join("a")
    assert member.group_metadata() is None
    until(lambda: listener.calls[-1:] == ["assigned"], "the first round")
    assert listener.calls == ["assignment", "assigned"]
    assert sorted(listener.owned) == group.partitions
    metadata = member.group_metadata()
    assert metadata is not None
    assert metadata.generation == listener.generation
    assert metadata.member_id != ""
    member.check()


def test_partitions_move_cooperatively_and_are_committed_before_they_do(group: Group) -> None:
    _, one = group.join("a")
    until(group.settled(one), "the first member to own everything")
    one.calls.clear()
    second, two = group.join("b")
    until(group.settled(one, two), "both to own half")
    assert sorted((*one.owned, *two.owned)) == group.partitions
    assert one.calls[:4] == ["revoked", "revoked committed", "assignment", "assigned"]
    assert "revoked" not in two.calls
    assert one.commits == [None]
    moved = [partition for partition in group.partitions if partition in two.owned]
    found = second.committed(moved, timeout_ms=10_000).result(30)
    assert found == dict.fromkeys(moved, OffsetAndMetadata(7, "AgAA"))


def test_owner_commits_and_everybody_reads_that(group: Group) -> None:
    member, listener = group.join("a")
    until(group.settled(listener), "the member to own everything")
    one, other = group.partitions[:2]
    commit(member, {one: OffsetAndMetadata(41, "AgAB")})
    assert member.committed([one, other], timeout_ms=10_000).result(30) == {
        one: OffsetAndMetadata(41, "AgAB"),
        other: None,
    }
    assert member.committed([], timeout_ms=1).result(30) == {}
    member.commit({}, timeout_ms=1)


def test_commit_for_a_partition_of_others_is_refused(group: Group) -> None:
    first, one = group.join("a")
    until(group.settled(one), "the first member to own everything")
    _, two = group.join("b")
    until(group.settled(one, two), "both to own half")
    with pytest.raises(TaskMigratedError, match="no longer owned"):
        commit(first, {two.owned[0]: OffsetAndMetadata(1)})


def test_commit_before_the_first_join_is_not_a_loss_but_has_to_wait(group: Group) -> None:
    member, _ = group.join("a")
    with pytest.raises((BrokerUnavailableError, TaskMigratedError)):
        member.commit({group.partitions[0]: OffsetAndMetadata(1)}, timeout_ms=1)


def test_rejoin_on_request_makes_a_new_generation_and_keeps_everything(group: Group) -> None:
    member, listener = group.join("a")
    until(group.settled(listener), "the member to own everything")
    before = listener.generation
    listener.calls.clear()
    member.request_rejoin("because of a test")
    until(lambda: listener.generation > before and listener.calls[-1:] == ["assigned"], "another generation")
    assert listener.calls == ["assignment", "assigned"]
    assert sorted(listener.owned) == group.partitions


def test_member_that_leaves_hands_over_at_once(group: Group) -> None:
    first, one = group.join("a")
    _, two = group.join("b")
    until(group.settled(one, two), "both to own half")
    first.leave_and_close(leave_group=True, timeout_ms=5000)
    until(group.settled(two), "the other one to own everything")
    with pytest.raises((IllegalStateError, BrokerUnavailableError)):
        first.commit({group.partitions[0]: OffsetAndMetadata(1)}, timeout_ms=100)


def test_member_that_stays_keeps_its_place_until_its_session_is_over(group: Group) -> None:
    first, one = group.join("a")
    _, two = group.join("b")
    until(group.settled(one, two), "both to own half")
    first.leave_and_close(leave_group=False, timeout_ms=5000)
    assert len(two.owned) == 2
    until(group.settled(two), "the other one to own everything after the session")


def test_joining_as_a_new_member_loses_what_was_owned_first(group: Group) -> None:
    member, listener = group.join("a")
    until(group.settled(listener), "the member to own everything")
    before = member.group_metadata()
    listener.calls.clear()
    member.rejoin_as_new_member()
    until(lambda: listener.calls[-1:] == ["assigned"], "a place in the group again")
    assert listener.calls == ["lost", "assignment", "assigned"]
    after = member.group_metadata()
    assert before is not None
    assert after is not None
    # Compare more than the member id: the mock cluster uses an address in memory as id, and may reuse it immediately.
    assert after != before
    member.check()


def test_member_is_started_once(group: Group) -> None:
    member, _ = group.join("a")
    with pytest.raises(IllegalStateError):
        member.start()
