"""Sessions that a member starts in the name of stale members, on a real coordinator."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer import HeartbeatRequest

pytestmark = pytest.mark.broker


def test_session_of_another_member_is_started_and_nobody_notices(group, until):
    first, first_thread = group.join(name="a", session_timeout_ms=30_000)
    _, second_thread = group.join(name="b", instance_id="static-b", session_timeout_ms=30_000)
    group.wait_settled(first_thread, second_thread)
    generation = first.group_metadata().generation
    rounds = first_thread.rounds, second_thread.rounds
    coordinator = first._coordinator  # the session of a dead member is started by others
    send, answers = coordinator._manager.send, []  # to see the answers

    def recorded(request, **options):
        future = send(request, **options)
        if isinstance(request, HeartbeatRequest) and request.member_id != coordinator.member_id:
            future.add_callback(lambda answer: answers.append((request.group_instance_id, answer.error_code)))
        return future

    coordinator._manager.send = recorded  # see above
    # What a member does while it waits for a join.
    start = coordinator._requests.stale_members.start_sessions
    done = coordinator._manager.call_soon(start, coordinator, coordinator.member_id)  # on the network thread
    until(lambda: done.is_done, "the sessions are started")
    assert answers == [("static-b", 0)]
    assert first.group_metadata().generation == generation
    assert (first_thread.rounds, second_thread.rounds) == rounds
