"""The model of the group coordinator behaves like the broker's."""

from __future__ import annotations

from dataclasses import dataclass, field

from streams_protocol.types import TopicPartition
from streams_py.testing.simulator.models.coordinator import GroupCoordinator, GroupState, JoinReply, Reply, SyncReply
from streams_py.testing.simulator.models.timeline import Timeline

SESSION_MS = 10_000
REBALANCE_MS = 20_000


@dataclass
class FakeClient:
    """Stores answers as they arrive; joins and syncs on request."""

    coordinator: GroupCoordinator
    instance_id: str | None = None
    member_id: str = ""
    responsive: bool = True
    notified: int = 0
    joins: list[JoinReply] = field(default_factory=list)
    syncs: list[SyncReply] = field(default_factory=list)

    def told_to_rejoin(self) -> None:
        self.notified += 1

    def join(self, metadata: bytes = b"m") -> None:
        self.coordinator.join(
            self,
            "client",
            self.member_id,
            self.instance_id,
            metadata,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            reply=self.joins.append,
        )
        if self.joins and self.joins[-1].error is Reply.MEMBER_ID_REQUIRED:
            self.member_id = self.joins.pop().member_id
            self.join(metadata)

    def sync(self, assignments: dict[str, bytes] | None = None) -> None:
        self.member_id = self.joins[-1].member_id
        self.coordinator.sync(self.member_id, self.joins[-1].generation, assignments or {}, self.syncs.append)


def settled(*instance_ids: str | None) -> tuple[Timeline, GroupCoordinator, list[FakeClient]]:
    """Create a stable group with this number of members; the first one leads."""
    timeline = Timeline()
    coordinator = GroupCoordinator(timeline)
    clients = [FakeClient(coordinator, instance_id) for instance_id in instance_ids]
    for client in clients:
        client.join()
    while coordinator.state is not GroupState.COMPLETING:
        assert timeline.step()
    assignments = {id: id.encode() for id, _ in clients[0].joins[-1].members}
    for client in reversed(clients):  # the leader last, so that the others wait for its assignment
        client.sync(assignments if client is clients[0] else None)
    assert coordinator.state is GroupState.STABLE
    return timeline, coordinator, clients


def test_members_get_an_id_wait_for_each_other_and_one_of_them_leads() -> None:
    _, coordinator, clients = settled(None, None, None)
    assert coordinator.generation == coordinator.rebalances == 1
    assert [len(client.joins[-1].members) for client in clients] == [3, 0, 0]
    assert len({client.member_id for client in clients}) == 3
    assert [client.syncs[-1].assignment for client in clients] == [client.member_id.encode() for client in clients]


def test_follower_that_rejoins_with_the_same_bytes_starts_no_rebalance_and_the_leader_does() -> None:
    _, coordinator, (leader, follower) = settled(None, None)
    follower.join(b"m")
    assert (coordinator.state, follower.joins[-1].generation) == (GroupState.STABLE, 1)
    follower.join(b"changed")
    assert coordinator.state is GroupState.PREPARING
    assert leader.notified == 1
    leader.join()
    assert (leader.joins[-1].generation, coordinator.generation) == (2, 2)
    _, coordinator, (leader, _) = settled(None, None)
    leader.join(b"m")
    assert coordinator.state is GroupState.PREPARING


def test_commits_are_accepted_in_the_current_generation_only() -> None:
    _, coordinator, (leader, follower) = settled(None, None)
    partition = frozenset({TopicPartition("in", 0)})
    assert coordinator.commit(follower.member_id, 1, partition) is Reply.NONE
    assert coordinator.commit(follower.member_id, 0, partition) is Reply.ILLEGAL_GENERATION
    assert coordinator.commit("stranger", 1, partition) is Reply.UNKNOWN_MEMBER_ID
    leader.join(b"changed")
    assert coordinator.commit(follower.member_id, 1, partition) is Reply.NONE  # it has time to revoke its partitions
    follower.join()
    assert coordinator.commit(follower.member_id, 2, partition) is Reply.REBALANCE_IN_PROGRESS


def test_silent_member_is_removed_when_its_session_ends_and_the_others_rebalance() -> None:
    timeline, coordinator, (leader, follower) = settled(None, None)
    began_ms = timeline.now_ms
    follower.responsive = False
    coordinator.silent(follower, since_ms=1_000)
    while follower.member_id in coordinator.members:
        assert timeline.step()
    assert timeline.now_ms - began_ms == SESSION_MS - 1_000
    assert (coordinator.state, leader.notified) == (GroupState.PREPARING, 1)
    assert coordinator.heartbeat(follower.member_id, 1) is Reply.UNKNOWN_MEMBER_ID
    assert coordinator.heartbeat(leader.member_id, 1) is Reply.REBALANCE_IN_PROGRESS


def test_static_member_that_dies_before_its_first_answer_expires_like_any_other() -> None:
    timeline, coordinator, (leader, follower) = settled("a", "b")
    newcomer = FakeClient(coordinator, "c")
    newcomer.join()
    leader.join()
    follower.join()
    assert (newcomer.joins[-1].error, newcomer.member_id) == (Reply.NONE, "")  # the answer is on its way
    newcomer.responsive = False  # and never learns its member id
    began_ms = timeline.now_ms
    coordinator.silent(newcomer, since_ms=0)
    while len(coordinator.members) == 3:
        assert timeline.step()
    assert timeline.now_ms - began_ms == SESSION_MS < REBALANCE_MS, "not only because it does not sync"
    assert {member.instance_id for member in coordinator.members.values()} == {"a", "b"}


def test_static_member_that_comes_back_dead_expires() -> None:
    timeline, coordinator, _ = settled("a", "b")
    again = FakeClient(coordinator, "b", responsive=False)  # its request was in transit when it was killed
    again.join()
    while len(coordinator.members) == 2:
        assert timeline.step()


def test_static_member_comes_back_without_a_rebalance_and_fences_its_predecessor() -> None:
    _, coordinator, (_, follower) = settled("a", "b")
    again = FakeClient(coordinator, "b")
    again.join(b"other bytes")
    assert (coordinator.state, coordinator.generation, again.joins[-1].generation) == (GroupState.STABLE, 1, 1)
    again.sync()
    assert again.syncs[-1].assignment == follower.member_id.encode()
    assert coordinator.heartbeat(follower.member_id, 1) is Reply.FENCED_INSTANCE_ID


def test_member_that_does_not_sync_in_time_is_removed() -> None:
    timeline, coordinator, (leader, follower) = settled(None, None)
    leader.join(b"changed")
    follower.join()
    leader.sync({})
    assert coordinator.state is GroupState.STABLE
    while follower.member_id in coordinator.members:
        assert timeline.step()
    assert coordinator.state is GroupState.PREPARING


def test_coordinator_that_moves_falls_back_to_the_generation_that_was_written() -> None:
    _, coordinator, (leader, follower) = settled(None, None)
    leader.join(b"changed")
    follower.join()
    assert coordinator.generation == 2
    coordinator.move()
    assert (coordinator.generation, coordinator.state) == (1, GroupState.STABLE)
    assert coordinator.heartbeat(follower.member_id, 2) is Reply.ILLEGAL_GENERATION
    assert coordinator.heartbeat(follower.member_id, 1) is Reply.NONE


def test_member_that_another_client_removes_learns_of_it_with_its_next_heartbeat() -> None:
    _, coordinator, (leader, follower) = settled(None, None)
    assert coordinator.evict([follower.member_id, "", "no-such-member", follower.member_id]) == 1
    assert coordinator.state is GroupState.PREPARING
    assert (leader.notified, follower.notified) == (1, 1)
    assert coordinator.heartbeat(follower.member_id, 1) is Reply.UNKNOWN_MEMBER_ID
    follower.join()
    assert follower.joins[-1].error is Reply.UNKNOWN_MEMBER_ID


def test_static_member_that_another_client_removes_joins_as_a_new_member() -> None:
    _, coordinator, (_, static) = settled(None, "i-1")
    assert coordinator.evict([static.member_id]) == 1
    assert coordinator.heartbeat(static.member_id, 1) is Reply.UNKNOWN_MEMBER_ID
    before, static.member_id = static.member_id, ""
    static.join()
    assert coordinator.known_ids - {before} == coordinator.known_ids


def test_rebalance_does_not_wait_for_a_client_that_was_removed_before_it_joined() -> None:
    _, coordinator, (leader, follower) = settled(None, None)
    coordinator.join(
        leader, "late", "", None, b"m", session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS,
        reply=leader.joins.append,
    )  # fmt: skip
    pending = leader.joins.pop().member_id
    leader.join(b"changed")
    follower.join(b"changed")
    assert coordinator.state is GroupState.PREPARING
    assert coordinator.evict([pending]) == 0
    assert coordinator.state is GroupState.COMPLETING
