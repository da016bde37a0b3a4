"""A group that waits for an id which this member had before: the member leaves under it (see former_ids.py)."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from kafka import errors as kafka_errors
from kafka.future import Future
from kafka.protocol.consumer import JoinGroupRequest, LeaveGroupRequest, LeaveGroupResponse, OffsetFetchRequest

from streams_py.errors import BrokerUnavailableError
from tests.support.kafka_python.scripted_member import MEMBER_ID_REQUIRED, T0, UNKNOWN_MEMBER_ID

ANSWERED = LeaveGroupResponse.MemberResponse


class Ghosts:
    """A coordinator that answers JoinGroup when all ids have joined or left, including ids without a process."""

    def __init__(self, member, *ids):
        self.waits_for = set(ids)
        self.left = []
        self.nodes = []
        self.failures = 0
        self.gives_ids = False
        """Whether a join without an id gets one immediately."""
        self._send, self._joining = member.client._manager.send, None  # every request passes here
        member.client._manager.send = self.send  # see above
        member.client.cluster.broker_metadata = lambda node_id: object()
        member.coordinator._session._timeout_s = 0.05  # it reads its setting only when it is made

    def send(self, request, node_id=None, request_timeout_ms=None):
        if isinstance(request, JoinGroupRequest) and self.waits_for and not (self.gives_ids and not request.member_id):
            self._joining = (request, Future())
            return self._joining[1]
        if isinstance(request, OffsetFetchRequest):
            self.nodes.append(node_id)
            return Future()
        if not isinstance(request, LeaveGroupRequest):
            return self._send(request, node_id, request_timeout_ms)
        self.nodes.append(node_id)
        if self.failures:
            self.failures -= 1
            return Future().failure(kafka_errors.KafkaConnectionError("cut"))
        answers = []
        for member in request.members:
            assert member.group_instance_id is None
            known = member.member_id in self.waits_for
            self.waits_for.discard(member.member_id)
            self.left.append(member.member_id)
            answers.append(ANSWERED(member_id=member.member_id, error_code=0 if known else UNKNOWN_MEMBER_ID))
        if self._joining and not self.waits_for:
            (request, answer), self._joining = self._joining, None
            self._send(request).add_both(answer.success)
        return Future().success(LeaveGroupResponse(version=5, throttle_time_ms=0, error_code=0, members=answers))


def forgotten(member, old="c-1", new="c-2"):
    """Let the coordinator forget ``old``, so the next join has the id ``new``."""
    member.joins.append((UNKNOWN_MEMBER_ID, -1, old))
    member.will_join(2, T0, member_id=new)
    return member


@pytest.mark.parametrize("failures", [0, 2])
def test_member_whose_join_waits_for_its_former_id_leaves_under_it(make, caplog, failures):
    member = forgotten(make().joined(T0, member_id="c-1"))
    ghosts = Ghosts(member)
    member.coordinator.reset_generation()
    member.joins.popleft()
    ghosts.waits_for, ghosts.failures = {"c-1"}, failures
    with caplog.at_level(logging.WARNING):
        assert member.poll() is True
    assert ghosts.left == ["c-1"]
    assert member.coordinator.member_id == "c-2"
    assert set(ghosts.nodes) == {1}, "the coordinator's connection is taken up by JoinGroup"
    assert [record.getMessage() for record in caplog.records if "former" in record.name] == [
        "group g still waited for c-1, a former id of this member; removed it from the group"
    ]


def test_id_is_a_former_one_when_the_answer_to_a_join_says_that_it_is_unknown(make):
    member = forgotten(make().joined(T0, member_id="c-1"))
    ghosts = Ghosts(member)
    answers = iter([set(), {"c-1"}])
    send = ghosts.send

    def wait_at_the_second_join(request, *arguments, **options):
        if isinstance(request, JoinGroupRequest):
            ghosts.waits_for = next(answers)
        return send(request, *arguments, **options)

    member.client._manager.send = wait_at_the_second_join
    assert member.rejoin() is True
    assert ghosts.left == ["c-1"]
    assert member.coordinator.member_id == "c-2"


def test_ids_given_in_vain_do_not_push_out_the_one_that_the_group_has(make):
    """A coordinator that is still loading forgets each id that it gives, some dozens in a few seconds."""
    member = make().joined(T0, member_id="c-1")
    for number in range(20):
        member.joins.append((MEMBER_ID_REQUIRED, -1, f"c-{number}-in-vain"))
        member.joins.append((UNKNOWN_MEMBER_ID, -1, f"c-{number}-in-vain"))
    member.will_join(2, T0, member_id="c-2")
    member.coordinator.config["retry_backoff_ms"] = 0
    ghosts = Ghosts(member)
    send = ghosts.send

    def wait_at_the_last_join(request, *arguments, **options):
        if isinstance(request, JoinGroupRequest) and len(member.joins) == 1:
            ghosts.waits_for = {"c-1"}
        return send(request, *arguments, **options)

    member.client._manager.send = wait_at_the_last_join
    member.coordinator.reset_generation()
    assert member.rejoin() is True
    assert ghosts.left[-1] == "c-1"
    assert member.coordinator.member_id == "c-2"


def test_member_that_is_forgotten_again_and_again_joins_more_rarely(make):
    member = make().joined(T0, member_id="c-1")
    pauses = []

    async def sleep(seconds):
        pauses.append(round(seconds, 1))

    for _ in range(7):
        member.joins.append((UNKNOWN_MEMBER_ID, -1, "c-1"))
    member.will_join(2, T0, member_id="c-2")
    member.coordinator.config["retry_backoff_ms"] = 100
    member.coordinator._requests._manager = _SleepsOf(member.coordinator._manager, sleep)  # notes the pauses
    assert member.rejoin() is True
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]  # none after the first


def test_nothing_is_said_of_former_ids_that_the_group_does_not_know(make, caplog):
    member = forgotten(make().joined(T0, member_id="c-1"))
    ghosts = Ghosts(member)
    member.coordinator.reset_generation()
    member.joins.popleft()
    ghosts.waits_for = {"somebody else"}
    with caplog.at_level(logging.WARNING):
        assert member.poll(200) is False
    assert ghosts.left
    assert set(ghosts.left) == {"c-1"}
    assert not [record for record in caplog.records if "former" in record.name]


def test_member_does_not_leave_under_the_id_that_it_is_joining_with(make):
    """An answer to a commit may reset the generation while JoinGroup is under way."""
    member = make().joined(T0, member_id="c-1")
    member.will_join(2, T0)
    ghosts = Ghosts(member, "somebody else")
    member.coordinator.request_rejoin_because("because")
    assert member.poll(20) is False
    member.run(lambda: _as_coroutine(member.coordinator.reset_generation))
    assert member.poll(100) is False
    assert ghosts.left == []


def test_nothing_is_asked_behind_the_join_on_its_own_connection(make):
    """It would be answered after the join, and time out before: the library then closes it, join and all."""
    member = forgotten(make().joined(T0, member_id="c-1"))
    ghosts = Ghosts(member)
    member.client.cluster.broker_metadata = lambda node_id: None  # a broker without its controller lists no brokers
    member.coordinator.reset_generation()
    member.joins.popleft()
    ghosts.waits_for = {"c-1"}
    assert member.poll(200) is False
    assert ghosts.nodes == []
    with pytest.raises(BrokerUnavailableError):
        member.run(lambda: member.coordinator.committed_async([T0], 100))
    assert ghosts.nodes == []


def test_static_member_never_leaves_under_a_former_id(make):
    """Its id would be the instance's newer one."""
    member = forgotten(make().joined(T0, member_id="c-1"))
    member.coordinator.config["group_instance_id"] = "i"
    ghosts = Ghosts(member)
    member.coordinator.reset_generation()
    member.joins.popleft()
    ghosts.waits_for = {"c-1"}
    assert member.poll(100) is False
    assert ghosts.left == []


def test_id_that_another_member_may_get_is_none_to_leave_under(make):
    """The mock cluster names members by their addresses in memory, and this may be its address again."""
    member = make().joined(T0, member_id="0x7f29")
    ghosts = Ghosts(member)
    member.coordinator.reset_generation()
    ghosts.waits_for = {"0x7f29"}
    assert member.poll(100) is False
    assert ghosts.left == []


class _SleepsOf:
    """A connection manager whose network sleeps as told."""

    def __init__(self, manager, sleep):
        self._manager = manager
        self._net = SimpleNamespace(sleep=sleep)

    def __getattr__(self, name):
        return getattr(self._manager, name)


async def _as_coroutine(function):
    return function()


def test_listener_learns_that_the_group_waits_for_a_dead_member_as_soon_as_its_join_is_sent(make):
    member = make()
    ghosts = Ghosts(member)
    ghosts.waits_for, ghosts.gives_ids = {"a-dead-one"}, True
    member.joins.append((MEMBER_ID_REQUIRED, -1, "c-1"))
    sent = []

    def on_join_waits(waited_s):
        assert waited_s >= 0
        sent.append(ghosts._joining[0].member_id)
        member.coordinator._requests.former_ids.add("a-dead-one", was_member=True)  # so that the join gets its response

    member.listener.on_join_waits = on_join_waits
    member.will_join(1, T0, member_id="c-1")
    assert member.poll() is True
    assert sent == ["c-1"]
