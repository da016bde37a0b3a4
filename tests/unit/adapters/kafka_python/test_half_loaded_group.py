"""The group continues although a coordinator with half of its log loaded counts members without a process."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tests.support.kafka_python.half_loaded import HalfLoaded
from tests.support.kafka_python.scripted_member import T0

SESSION_S = 0.2
LONG_S = 60.0
"""A time longer than any test, for max.poll.interval.ms: a group that continues has not waited for it."""


def of_generation_305(make, *, name="c-0", told=()):
    """Create a member that has led a group with the members ``told``, among others."""
    member = make()
    for generation in range(303, 306):
        member.will_join(generation, T0, member_id=name)
        member.coordinator.request_rejoin_because("because")
        assert member.poll() is True
    # As after a join with so many members.
    member.coordinator._requests.stale_members.note_members(
        SimpleNamespace(member_id=name, group_instance_id=None) for name in told
    )
    return member


def half_loaded(*members, rebalance_s=LONG_S):
    group = HalfLoaded(
        loaded=["dead-1", "dead-2"],
        generation=276,
        log=(305, ["c-0", "dead-9"]),
        session_s=SESSION_S,
        rebalance_s=rebalance_s,
    )
    for member in members:
        group.take(member)
        member.coordinator.request_rejoin_because("because")
    return group


def test_group_whose_old_members_nobody_knows_goes_on_when_the_rebalance_has_taken_its_time(make):
    member = of_generation_305(make)
    group = half_loaded(member, rebalance_s=1)
    assert member.poll(20_000) is True
    assert group.loads == 1, "the end of that rebalance was written, and the log read again"
    assert member.coordinator.membership().generation == group.generation == 306
    assert set(group.members) == {member.coordinator.member_id}


@pytest.mark.parametrize("others", [0, 150])
def test_group_whose_old_members_are_known_to_one_who_has_led_does_not_wait_for_so_long(make, others):
    """However many it was told of that the coordinator does not know."""
    member = of_generation_305(make, told=["dead-1", "dead-2", *(f"gone-{number}" for number in range(others))])
    group = half_loaded(member)
    looks = []
    start = member.coordinator._requests.stale_members.start_sessions  # to look after its first round

    async def look(*arguments):
        await start(*arguments)
        looks.append({name for name, generation in group.heartbeats if generation == 276})

    member.coordinator._requests.stale_members.start_sessions = look  # see above
    assert member.poll(20_000) is True
    assert {"dead-1", "dead-2"} <= looks[0], "with the first look at all of them"
    assert group.loads == 1
    assert member.coordinator.membership().generation == 306


def test_members_that_began_to_wait_at_different_instants_keep_nobody_alive(make):
    """Each member starts the sessions of the others. Repeating that, together they would never let a session expire."""
    waiting = [of_generation_305(make, name=f"c-{number}", told=["dead-1", "dead-2"]) for number in range(4)]
    half_loaded(*waiting)
    settled = [threading.Event() for _ in waiting]
    over = threading.Event()

    def live(number):
        over.wait(number * SESSION_S * 1.5 / len(waiting))
        while not over.is_set():
            if waiting[number].poll(200):
                settled[number].set()
                waiting[number].run(waiting[number].net.sleep, SESSION_S / 10)

    threads = [threading.Thread(target=live, args=(number,)) for number in range(len(waiting))]
    for thread in threads:
        thread.start()
    try:
        assert [each.wait(20) for each in settled] == [True] * len(waiting)
    finally:
        over.set()
        for thread in threads:
            thread.join()
