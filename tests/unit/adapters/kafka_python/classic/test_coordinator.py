"""The member's side of the group protocol (KIP-429) against scripted answers: order of callbacks, and what is lost."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from kafka import errors as kafka_errors
from kafka.future import Future
from kafka.protocol.consumer import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from kafka.structs import MemberState

from streams_protocol.consumer import decode_subscription
from streams_protocol.types import TopicPartition
from streams_py.adapters.kafka_python.classic.coordinator import PROTOCOL_NAME
from streams_py.adapters.kafka_python.classic.heartbeats import SOON_MS
from streams_py.errors import BrokerUnavailableError, TaskAssignmentError, TaskMigratedError, TopologyError
from streams_py.ports import OffsetAndMetadata
from tests.support.kafka_python.scripted_member import (
    FENCED_INSTANCE_ID,
    GROUP_AUTHORIZATION_FAILED,
    ILLEGAL_GENERATION,
    INVALID_REQUEST,
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    T0,
    T1,
    T2,
    UNKNOWN_MEMBER_ID,
)


def test_first_join_assigns_without_revocation(make):
    member = make()
    member.will_join(1, T1, T0)
    assert member.poll() is True
    assert member.calls == [("JoinGroup", ()), ("on_assignment", (T0, T1)), ("on_assigned", (T0, T1))]
    assert member.coordinator.membership() == ("g", 1, "m", None)


def test_revoked_is_committed_in_the_new_generation_before_everything_else(make):
    member = make().joined(T0, T1)
    member.will_join(2, T0, T2)
    member.will_join(3, T0, T2)
    assert member.rejoin() is True
    assert member.calls == [
        ("JoinGroup", (T0, T1)),
        ("on_revoked", (T1,)), ("OffsetCommit", (2,)), ("committed well", ()),
        ("on_assignment", (T0, T2)), ("on_assigned", (T2,)),
        ("JoinGroup", (T0, T2)),
        ("on_assignment", (T0, T2)), ("on_assigned", ()),
    ]  # fmt: skip


def test_member_whose_thread_is_stuck_says_so_before_the_group_hears_that_it_leaves(make):
    member = make().joined(T0)
    member.coordinator.heartbeat.poll_timeout_expired = lambda: True
    member.run(member.coordinator.maybe_leave_group_async)
    assert member.calls == [("on_stuck", ()), ("LeaveGroup", ())]


def test_member_that_leaves_of_its_own_will_is_not_stuck(make):
    member = make().joined(T0)
    member.run(member.coordinator.maybe_leave_group_async, "bye", 100)
    assert member.calls == [("LeaveGroup", ())]


def test_assigned_is_called_also_when_nothing_changed(make):
    member = make().joined(T0)
    member.will_join(2, T0)
    member.rejoin()
    assert member.calls == [("JoinGroup", (T0,)), ("on_assignment", (T0,)), ("on_assigned", ())]


def test_eager_member_revokes_all_before_joining_also_nothing(make):
    member = make(cooperative=False)
    member.will_join(1, T0)
    member.poll()
    assert member.calls[:3] == [("JoinGroup", ()), ("on_assignment", (T0,)), ("on_assigned", (T0,))]
    member.calls.clear()
    member.will_join(2)
    member.rejoin()
    assert member.calls == [
        ("on_revoked", (T0,)), ("OffsetCommit", (1,)), ("committed well", ()),
        ("JoinGroup", ()), ("on_assignment", ()), ("on_assigned", ()),
    ]  # fmt: skip
    member.calls.clear()
    member.will_join(3)
    member.rejoin()
    assert member.calls[0] == ("on_revoked", ())


def test_only_unsubscribed_topics_are_revoked_before_joining(make):
    member = make().joined(T0)
    member.coordinator.set_subscription({"other"}, None)
    member.will_join(2)
    member.poll()
    assert member.calls[0] == ("on_revoked", (T0,))
    assert ("JoinGroup", ()) in member.calls


@pytest.mark.parametrize(("error", "kept_id"), [(UNKNOWN_MEMBER_ID, ""), (ILLEGAL_GENERATION, "m")])
def test_generation_lost_in_sync_means_lost_and_nothing_owned(make, error, kept_id):
    member = make().joined(T0, T1)
    member.joins.append((0, 2, "m"))
    member.syncs.append((error, b""))
    member.will_join(5, T0)
    member.rejoin()
    assert member.calls == [
        ("JoinGroup", (T0, T1)),
        ("on_lost", (T0, T1)),
        ("JoinGroup", ()), ("on_assignment", (T0,)), ("on_assigned", (T0,)),
    ]  # fmt: skip
    last = [request for request in member.requests if isinstance(request, JoinGroupRequest)][-1]
    assert last.member_id == kept_id
    assert decode_subscription(dict(last.protocols)[PROTOCOL_NAME]).generation_id is None


def test_generation_lost_in_join_means_lost_too(make):
    member = make().joined(T0)
    member.joins.append((UNKNOWN_MEMBER_ID, -1, ""))
    member.will_join(2, T0)
    member.rejoin()
    assert [name for name, _ in member.calls] == ["JoinGroup", "on_lost", "JoinGroup", "on_assignment", "on_assigned"]


def test_generation_lost_while_a_subscription_is_built_means_lost_too(make):
    """A static member would be admitted immediately, with partitions that other members may own by now."""
    member = make().joined(T0)
    build = member.listener.subscription_user_data

    def lost(*of):
        member.listener.subscription_user_data = build
        member.coordinator.reset_generation()  # a commit that was under way is refused
        return build(*of)

    member.listener.subscription_user_data = lost
    member.will_join(2, T0)
    member.rejoin()
    assert member.calls == [
        ("on_lost", (T0,)),
        ("JoinGroup", ()), ("on_assignment", (T0,)), ("on_assigned", (T0,)),
    ]  # fmt: skip


def test_member_id_required_joins_again_at_once_with_new_user_data(make):
    member = make()
    member.joins.append((MEMBER_ID_REQUIRED, -1, "given"))
    member.will_join(1, T0, member_id="given")
    member.poll()
    joins = [request for request in member.requests if isinstance(request, JoinGroupRequest)]
    assert [join.member_id for join in joins] == ["", "given"]
    sent = [decode_subscription(dict(join.protocols)[PROTOCOL_NAME]).user_data for join in joins]
    assert sent == [b"\x01", b"\x02"]
    assert [name for name, _ in member.calls].count("on_lost") == 0


def test_rebalance_in_sync_joins_again_with_unchanged_ownership(make):
    member = make().joined(T0)
    member.joins.append((0, 2, "m"))
    member.syncs.append((REBALANCE_IN_PROGRESS, b""))
    member.will_join(3, T0)
    member.rejoin()
    assert member.calls == [
        ("JoinGroup", (T0,)), ("JoinGroup", (T0,)), ("on_assignment", (T0,)), ("on_assigned", ()),
    ]  # fmt: skip


def test_assignment_of_an_unsubscribed_topic_ends_the_membership_and_says_that_there_are_two_topologies(make):
    member = make().joined(T0)
    member.will_join(2, T0, TopicPartition("strange", 0))
    with pytest.raises(TaskAssignmentError, match=r"two topologies run under application.id .*reads t, but .*strange"):
        member.rejoin()
    assert member.calls == [("JoinGroup", (T0,))]


def test_first_problem_of_the_callbacks_is_raised_when_the_round_is_complete(make):
    member = make().joined(T0)
    member.listener.problems = {"on_revoked": TopologyError("first"), "on_assigned": TopologyError("second")}
    member.will_join(2)
    with pytest.raises(TopologyError, match="first"):
        member.rejoin()
    assert [name for name, _ in member.calls] == ["JoinGroup", "on_revoked", "on_assignment", "on_assigned"]


@pytest.mark.parametrize(
    ("error", "notified"), [(UNKNOWN_MEMBER_ID, "TaskMigratedError"), (REBALANCE_IN_PROGRESS, "BrokerUnavailableError")]
)
def test_listener_is_told_when_the_revoked_offsets_could_not_be_committed(make, error, notified):
    member = make().joined(T0)
    member.commit_error = error
    member.will_join(2)
    member.will_join(3)
    member.rejoin()
    assert (f"committed {notified}", ()) in member.calls


def test_request_to_rejoin_is_remembered_when_it_comes_during_a_join(make):
    member = make().joined(T0)
    inner = member.listener.on_assignment

    def ask_again(partitions, user_data, generation):
        inner(partitions, user_data, generation)
        if generation == 2:
            member.coordinator.request_rejoin_because("once more")

    member.listener.on_assignment = ask_again
    member.will_join(2, T0)
    member.will_join(3, T0)
    member.rejoin()
    joins = [request for request in member.requests if isinstance(request, JoinGroupRequest)]
    assert [join.reason for join in joins] == [None, "because", "once more"]


def test_reason_is_cut_to_what_kafka_allows(make):
    member = make().joined(T0)
    member.coordinator.request_rejoin_because("x" * 300)
    member.will_join(2, T0)
    member.poll()
    assert len(member.requests[-2].reason) == 255


def test_fatal_error_is_kept_when_nobody_waits_for_the_join(make):
    member = make().joined(T0)
    member.joins.append((GROUP_AUTHORIZATION_FAILED, -1, ""))
    with pytest.raises(kafka_errors.GroupAuthorizationFailedError):
        member.run(member.coordinator._do_join_and_sync_async)  # a join that no call waits for
    with pytest.raises(kafka_errors.GroupAuthorizationFailedError):
        member.poll()


def test_late_follower_joins_again_under_the_mock_cluster_only(make):
    member = make(mock=True)
    member.joins.append((0, 1, "m"))
    member.syncs.append((INVALID_REQUEST, b""))
    member.will_join(2, T0)
    assert member.poll() is True
    strict = make()
    strict.joins.append((0, 1, "m"))
    strict.syncs.append((INVALID_REQUEST, b""))
    with pytest.raises(kafka_errors.InvalidRequestError):
        strict.poll()


def test_follow_up_rebalance_is_noticed_soon(make):
    heartbeat = make().joined(T0).coordinator.heartbeat
    heartbeat.config["heartbeat_interval_ms"] = 3_000
    assert heartbeat.time_to_next_heartbeat() <= SOON_MS / 1_000


def test_end_of_another_process_makes_heartbeats_frequent(make):
    coordinator = make().joined(T0).coordinator
    coordinator.heartbeat.config["heartbeat_interval_ms"] = 3_000
    coordinator.heartbeat._soon_until = 0.0  # as if it had joined long ago
    coordinator.heartbeat.sent_heartbeat()
    assert coordinator.heartbeat.time_to_next_heartbeat() > SOON_MS / 1_000
    coordinator.expect_rebalance()
    assert coordinator.heartbeat.time_to_next_heartbeat() <= SOON_MS / 1_000


def test_fenced_heartbeat_ends_the_membership(make):
    member = make().joined(T0)
    fenced = HeartbeatResponse(version=4, throttle_time_ms=0, error_code=FENCED_INSTANCE_ID)
    with pytest.raises(kafka_errors.FencedInstanceIdError):
        member.coordinator._handle_heartbeat_response(fenced, 0.0)  # what the heartbeat loop calls
    with pytest.raises(kafka_errors.FencedInstanceIdError):
        member.poll()


def test_offsets_are_fetched_over_another_connection_than_the_one_that_joins(make):
    member = make().joined(T0)
    nodes = []
    partitions = [
        SimpleNamespace(
            partition_index=number, committed_offset=at, committed_leader_epoch=-1, metadata="m", error_code=0
        )
        for number, at in enumerate((5, -1))
    ]
    answer = SimpleNamespace(API_VERSION=7, error_code=0, topics=[SimpleNamespace(name="t", partitions=partitions)])
    # every request passes here
    member.client._manager.send = lambda request, node_id=None, **_: nodes.append(node_id) or Future().success(answer)
    asked = lambda: member.coordinator.committed_async([T0, T1], 1000)  # noqa: E731
    member.client.cluster.broker_metadata = lambda node_id: object()
    expected = {T0: OffsetAndMetadata(5, "m"), T1: None}
    assert member.run(asked) == expected
    member.client.cluster.broker_metadata = lambda node_id: None  # not listed yet
    assert member.run(asked) == expected
    assert nodes == [1, "coordinator-1"]


def test_late_answer_about_offsets_is_nobodys(make):
    """A process that is frozen while it asks may find the answer when others have gone on from there."""
    member = make().joined(T0)
    answers = []

    def answer(offset):
        at = SimpleNamespace(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, metadata="", error_code=0
        )
        return SimpleNamespace(API_VERSION=7, error_code=0, topics=[SimpleNamespace(name="t", partitions=[at])])

    def send(request, node_id=None, **_):
        answers.append(Future())
        return answers[-1] if len(answers) == 1 else answers[-1].success(answer(9))

    member.client._manager.send = send  # every request passes here
    with pytest.raises(BrokerUnavailableError):
        member.run(lambda: member.coordinator.committed_async([T0], 50))
    answers[0].success(answer(5))
    assert member.run(lambda: member.coordinator.committed_async([T0], 1000)) == {T0: OffsetAndMetadata(9, "")}
    assert len(answers) == 2


def test_commit_is_for_owned_partitions_only(make):
    member = make().joined(T0)
    member.run(member.coordinator.commit_async, {T0: OffsetAndMetadata(1)}, 1000)
    with pytest.raises(TaskMigratedError, match="t-1 no longer owned"):
        member.run(member.coordinator.commit_async, {T0: OffsetAndMetadata(1), T1: OffsetAndMetadata(1)}, 1000)
    assert len([request for request in member.requests if isinstance(request, OffsetCommitRequest)]) == 1


@pytest.mark.parametrize("cooperative", [True, False])
def test_commit_is_refused_during_a_rebalance(make, cooperative):
    member = make(cooperative=cooperative).joined(T0)
    member.coordinator.rejoining = True
    if cooperative:  # an eager one has given up everything by then
        member.coordinator.state = MemberState.REBALANCING
    with pytest.raises(BrokerUnavailableError, match="rebalancing"):
        member.run(member.coordinator.commit_async, {T0: OffsetAndMetadata(1)}, 1000)


def while_it_builds_its_subscription(member, step):
    """Have ``step`` awaited then, on the network thread."""
    call = member.coordinator._inbox.call  # it asks the polling thread for the subscription

    async def slow(function, *arguments):
        if function == member.listener.subscription_user_data:
            await step()
        return await call(function, *arguments)

    member.coordinator._inbox.call = slow  # see above


def test_commit_is_taken_until_join_group_is_sent(make):
    """A join waits for the last commit of a thread that ends: refused, it would be lost."""
    member = make().joined(T0)
    while_it_builds_its_subscription(member, lambda: member.coordinator.commit_async({T0: OffsetAndMetadata(1)}, 1000))
    member.will_join(2, T0)
    assert member.rejoin() is True
    assert [name for name, _ in member.calls[:2]] == ["OffsetCommit", "JoinGroup"]


@pytest.mark.parametrize("error", [0, ILLEGAL_GENERATION])
@pytest.mark.parametrize("is_member", [True, False])
def test_member_heartbeats_while_its_join_waits_for_a_commit(make, is_member, error):
    """It may take longer than a session, and the group would drop the member. If the answer to a join was lost, the
    group may be in the next generation; but the member is still in it."""
    member = make()
    if is_member:
        member.joined(T0)
    member.requests.clear()
    member.heartbeat_error = error
    member.client.cluster.broker_metadata = lambda node_id: object()
    member.coordinator.config["heartbeat_interval_ms"] = 5
    while_it_builds_its_subscription(member, lambda: member.coordinator._net.sleep(0.05))  # a pause on its event loop
    member.will_join(2, T0)
    assert member.rejoin() is True
    before = [type(request) for request in member.requests[: member.requests.index(last_join(member))]]
    assert set(before) == ({HeartbeatRequest} if is_member else set())
    assert [name for name, _ in member.calls if name == "on_lost"] == []


def test_leader_heartbeats_while_it_waits_for_the_metadata(make):
    member = make().joined(T0)
    coordinator, send = member.coordinator, member.client._manager.send  # every request passes here
    coordinator.config["heartbeat_interval_ms"] = 5
    coordinator._refresh_metadata = lambda timeout_ms: coordinator._net.sleep(0.05)  # slow brokers

    def lead(request, *arguments, **options):
        answer = send(request, *arguments, **options)
        if isinstance(request, JoinGroupRequest):
            answer.value.leader, answer.value.skip_assignment = answer.value.member_id, True
        return answer

    member.client._manager.send = lead  # see above
    member.will_join(2, T0)
    assert member.rejoin() is True
    after = member.requests[member.requests.index(last_join(member)) :]
    assert HeartbeatRequest in map(type, after)


def last_join(member):
    return next(request for request in reversed(member.requests) if isinstance(request, JoinGroupRequest))


def test_commit_raises_migrated_and_the_next_join_reports_the_loss(make):
    member = make().joined(T0)
    member.commit_error = UNKNOWN_MEMBER_ID
    with pytest.raises(TaskMigratedError):
        member.run(member.coordinator.commit_async, {T0: OffsetAndMetadata(1)}, 1000)
    member.will_join(2, T0)
    member.poll()
    assert ("on_lost", (T0,)) in member.calls


def test_new_member_is_not_wanted_when_the_group_has_dropped_this_one_already(make):
    member = make().joined(T0)
    member.coordinator.reset_generation()
    member.run(member.coordinator.rejoin_as_new_member_async, "m")
    assert member.calls == []


@pytest.mark.parametrize(("instance_id", "joins_as"), [(None, ""), ("static", "m")])
def test_member_whose_tasks_have_migrated_joins_anew_and_a_static_one_under_its_id(make, instance_id, joins_as):
    """Without an id it would take its place back from a namesake."""
    member = make(instance_id=instance_id).joined(T0)
    member.run(member.coordinator.rejoin_as_new_member_async, "m")
    assert member.coordinator.membership() is None
    member.will_join(2, T1)
    assert member.poll() is True
    assert last_join(member).member_id == joins_as
    left = [("LeaveGroup", ())] if instance_id is None else []
    assert member.calls[: len(left) + 2] == [("on_lost", (T0,)), *left, ("JoinGroup", ())]


def test_static_member_whose_tasks_a_namesake_has_is_told_so(make):
    member = make(instance_id="static").joined(T0)
    member.run(member.coordinator.rejoin_as_new_member_async, "m")
    member.joins.append((FENCED_INSTANCE_ID, -1, ""))
    with pytest.raises(kafka_errors.FencedInstanceIdError):
        member.poll()


def test_sync_group_may_take_as_long_as_join_group(make):
    """The leader assigns in between: who gives up before it has done so makes everybody join again."""
    member = make().joined(T0)
    config = member.coordinator.config
    assert member.timeouts_ms[SyncGroupRequest] == member.timeouts_ms[JoinGroupRequest]
    assert member.timeouts_ms[SyncGroupRequest] > max(config["max_poll_interval_ms"], config["request_timeout_ms"])


@pytest.mark.parametrize("closing", [True, False])
def test_request_that_our_own_closing_cuts_off_is_no_news(make, caplog, closing):
    member = make().joined(T0)

    def cut_off(request, node_id=None, request_timeout_ms=None):
        return Future().failure(kafka_errors.Cancelled("closed"))

    member.client._manager.send = cut_off  # every request passes here
    member.coordinator.is_closing = closing
    caplog.set_level(logging.DEBUG, "kafka")  # where the lines about connections go once they are limited
    with pytest.raises(kafka_errors.Cancelled):
        member.run(member.coordinator._send_heartbeat_request)  # what the heartbeat loop calls
    assert ("Marking the coordinator dead" in caplog.text) is not closing
    assert ("Error sending" in caplog.text) is not closing
