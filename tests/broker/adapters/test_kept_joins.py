"""A completed join whose result was not used yet is not lost, in two cases, driven poll by poll.

The test itself is the polling thread, so it decides what happens between two polls. With kafka-python's own coordinator
the first case starts a new join at every poll, and the second stays without heartbeats forever.
"""

from __future__ import annotations

import time

import pytest
from kafka.consumer.subscription_state import SubscriptionState
from kafka.net.compat import KafkaNetClient
from kafka.structs import MemberState

from streams_py.adapters.kafka_python.callbacks import CallbackInbox
from streams_py.adapters.kafka_python.classic.coordinator import StreamsCoordinator
from streams_py.adapters.kafka_python.classic.options import MemberOptions

pytestmark = pytest.mark.broker


class HandDriven:
    """A member without a polling thread."""

    def __init__(self, group, thread) -> None:
        self.client = KafkaNetClient(bootstrap_servers=group.broker.bootstrap, client_id="hand-driven")
        self.client._net.start()  # as the membership does
        self.client._manager.bootstrap(10_000)  # as the membership does
        self.inbox = CallbackInbox(self.client._net.call_soon_threadsafe)  # as the membership does
        self.coordinator = StreamsCoordinator(
            self.client,
            SubscriptionState("none"),
            thread,
            self.inbox,
            MemberOptions(),
            group_id=group.id,
            session_timeout_ms=3000,
            heartbeat_interval_ms=200,
            max_poll_interval_ms=60_000,
            enable_auto_commit=False,
            api_version=self.client._manager.broker_version,  # as the membership does
            metrics=None,
        )
        self.run(lambda: self.coordinator.set_subscription({group.topic}, None))

    def run(self, step, *arguments):
        done = self.client._net.call_soon_with_future(step, *arguments)  # as the membership does
        self.inbox.serve_until(done)
        if done.exception is not None:
            raise done.exception
        return done.value

    def poll(self, timeout_ms: int) -> bool:
        return self.run(self.coordinator.poll_async, timeout_ms)

    def work_until(self, condition) -> None:
        """Wait for a condition without polling; the background join continues."""
        limit = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < limit
            self.inbox.serve(0.01)

    def join_has_ended(self) -> bool:
        task = self.coordinator._join_task  # to wait for its end
        return task is not None and task.is_done

    def close(self) -> None:
        self.run(self.coordinator.maybe_leave_group_async)
        self.coordinator._close_heartbeat()  # without leaving
        self.client.close()


@pytest.fixture
def other(group):
    """A member that polls regularly and owns no partition that could move, so joining takes exactly one round."""
    group.partitions.clear()
    member, thread = group.join(name="other")
    return member, thread


@pytest.fixture
def hand_driven(group, other, until):
    """A stable follower, in generation 2."""
    _, thread = other
    until(lambda: thread.rounds == 1, "the first member")
    driven = HandDriven(group, type(thread)([]))
    assert driven.poll(10_000) is True
    yield driven
    driven.close()


def test_one_rejoin_is_one_generation_when_it_ends_between_two_short_polls(hand_driven, other):
    coordinator = hand_driven.coordinator
    coordinator.request_rejoin_because("a test wants it")
    assert hand_driven.poll(1) is False, "the broker still waits for the other member"
    hand_driven.work_until(hand_driven.join_has_ended)
    assert hand_driven.poll(20) is True
    assert coordinator.membership().generation == 3
    for _ in range(10):
        hand_driven.inbox.serve(0.05)
        assert hand_driven.poll(20) is True
    assert coordinator.membership().generation == 3
    assert other[0].group_metadata().generation == 3


def test_join_is_completed_with_heartbeats_when_its_reason_is_gone(hand_driven):
    coordinator = hand_driven.coordinator
    coordinator.request_rejoin_because("a test wants it")
    assert hand_driven.poll(0) is False
    hand_driven.work_until(hand_driven.join_has_ended)
    coordinator.rejoin_needed = False
    coordinator._rejoin_reason = None  # as after a join
    assert coordinator.state is MemberState.REBALANCING
    assert hand_driven.poll(20) is True
    assert coordinator.state is MemberState.STABLE
    answered = coordinator.heartbeat.last_receive
    hand_driven.work_until(lambda: coordinator.heartbeat.last_receive > answered)
    assert coordinator.membership().generation == 3
