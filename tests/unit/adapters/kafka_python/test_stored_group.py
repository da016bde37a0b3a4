"""A broker that cannot store the group answers UNKNOWN_SERVER_ERROR to all members; only the cause may stop."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka import errors as kafka_errors
from kafka.coordinator.base import BaseCoordinator
from kafka.protocol.consumer import JoinGroupRequest

# kafka-python's coordinator, which a worker reaches only on the thread of its membership.
from streams_py.adapters.kafka_python.connect_coordinator import ConnectCoordinator, _Base
from streams_py.adapters.kafka_python.stored_group import GroupNotStoredError, StoredGroup
from tests.support.kafka_python.scripted_member import T0

UNKNOWN_SERVER_ERROR = -1


def _members(**sizes: int) -> list[SimpleNamespace]:
    return [SimpleNamespace(member_id=name, metadata=b"x" * size) for name, size in sizes.items()]


@pytest.mark.parametrize("where", ["join", "sync"])
def test_follower_joins_again_until_the_broker_can_store_the_group(make, where, caplog):
    member = make().joined(T0)
    for generation in (2, 3):
        if where == "sync":
            member.joins.append((0, generation, "m"))
            member.syncs.append((UNKNOWN_SERVER_ERROR, b""))
        else:
            member.joins.append((UNKNOWN_SERVER_ERROR, -1, ""))
    member.will_join(4, T0)
    assert member.rejoin() is True
    assert member.coordinator.failure is None
    assert member.coordinator.membership() == ("g", 4, "m", None)
    assert [name for name, _ in member.calls if name == "on_lost"] == []
    said = [record.getMessage() for record in caplog.records if "UNKNOWN_SERVER_ERROR" in record.getMessage()]
    assert len(said) == 2
    assert where == "join" or "the log of the leader, member somebody, names the largest" in said[0]


def test_member_whose_own_subscription_is_too_large_stops_and_says_so(make):
    member = make()
    member.listener.subscription_user_data = lambda *_: b"x" * 1_000_001
    member.joins.append((0, 1, "m"))
    member.syncs.append((UNKNOWN_SERVER_ERROR, b""))
    with pytest.raises(kafka_errors.UnknownError, match=r"group g: this member's own subscription has 10000\d\d bytes"):
        member.poll()
    assert member.coordinator.failure is not None
    assert len([request for request in member.requests if isinstance(request, JoinGroupRequest)]) == 1


def test_leader_names_the_largest_member():
    stored = StoredGroup("g", 100)
    stored.joining(50)
    stored.lead(_members(own=50, large=1_600_000, other=60))
    error = stored.judge(kafka_errors.UnknownError())
    assert isinstance(error, GroupNotStoredError)
    assert "member large has the largest subscription, 1600000 of 1600110 bytes of 3 members" in str(error)


def test_what_an_only_member_sends_is_nobody_elses_fault():
    stored = StoredGroup("g", 100)
    stored.joining(50)
    stored.lead(_members(own=50))
    assert type(stored.judge(kafka_errors.UnknownError())) is kafka_errors.UnknownError


def test_other_errors_are_none_of_its_business():
    error = kafka_errors.FencedInstanceIdError()
    assert StoredGroup("g", 100).judge(error) is error


def test_pause_grows_to_a_limit_and_is_short_again_after_a_join():
    stored = StoredGroup("g", 100)
    pauses = []
    for _ in range(30):
        stored.judge(kafka_errors.UnknownError())
        pauses.append(stored.pause_s())
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert pauses[-1] == 5
    stored.joined()
    stored.judge(kafka_errors.UnknownError())
    assert stored.pause_s() == 0.1


class _Worker:
    def protocols(self):
        return [("compatible", b"url")]

    def perform(self, leader, protocol, members, generation):
        return {}

    def joined(self, generation, member_id, protocol, assignment): ...


@pytest.fixture
def connect(monkeypatch):
    coordinator = ConnectCoordinator(
        _Worker(), bootstrap_servers="127.0.0.1:1", group_id="g", client_id="w", rebalance_timeout_ms=60_000,
        config={"retry.backoff.ms": 1},
    )  # fmt: skip
    client = coordinator._client  # without a broker that says its version
    monkeypatch.setattr(type(client._manager), "broker_version", (4, 0))  # see above
    coordinator._base = _Base(client, _Worker(), coordinator._settings)  # as its thread does, once it has the version
    yield coordinator
    coordinator.close()


def test_connect_worker_reads_the_metadata_of_a_large_member(connect):
    manager = connect._client._manager  # kafka-python does not show its settings
    assert manager.config["receive_message_max_bytes"] == 100_000_000


def test_connect_worker_names_the_largest_member(connect, monkeypatch):
    async def fails(self):
        self.group_protocols()
        self._perform_assignment("w", "compatible", _members(w=3, large=1_600_000))
        raise kafka_errors.UnknownError

    monkeypatch.setattr(BaseCoordinator, "_do_join_and_sync_async", fails)  # which stands for a broker's answer
    with pytest.raises(GroupNotStoredError, match="member large has the largest subscription"):
        connect._client._net.run(connect._base._do_join_and_sync_async)  # in place of its thread
