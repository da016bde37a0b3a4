"""Rounds of the cooperative assignor: joins, leaves, delays, lost answers. Scenarios of Kafka's own suite and ours."""

from __future__ import annotations

import pytest

from streams_py.connect.assignment.cooperative import KindLoad
from streams_py.connect.assignment.delay import LostJobs, backoff_ms
from streams_py.connect.assignment.jobs import NOTHING, Jobs
from tests.support.connect.trace import D, Group, connectors, expected, jobs, many, shown

TWO = connectors("c1 c2", 4)
THREE = connectors("c1 c2 c3", 4)


def two_workers(**options: int) -> Group:
    group = Group(TWO, **options)
    group.join("w1", "w2")
    assert group.round().delay_ms == 0
    assert group.counts == "1,1/4,4"
    return group


def idle(group: Group, wait: int = 0) -> int:
    """Run a round that changes nothing, and return its delay."""
    done = group.round(wait=wait)
    assert shown(done.new) == shown(done.revoked) == {}
    return done.delay_ms


def no_revocations(group: Group, wait: int = 0) -> int:
    done = group.round(wait=wait)
    assert shown(done.revoked) == {}
    return done.delay_ms


def test_a_worker_that_joins_gets_its_share_in_two_rounds() -> None:
    group = Group(TWO)
    group.join("w1")
    assert group.round().delay_ms == 0
    assert (group.counts, group.is_complete) == ("2/8", True)
    group.join("w2")
    done = group.round()
    assert (group.counts, done.delay_ms) == ("0,1/0,4", 0)
    assert shown(done.revoked) == expected(w1="c1 c1-0 c1-1 c1-2 c1-3")
    assert no_revocations(group) == 0
    assert shown(group.last.new if group.last else {}) == expected(w2="c1 c1-0 c1-1 c1-2 c1-3")
    assert (group.counts, group.is_complete) == ("1,1/4,4", True)
    assert idle(group) == 0


def test_balancing_waits_longer_each_time_when_workers_keep_joining() -> None:
    group = Group(THREE)
    group.join("w1")
    assert (group.round().delay_ms, group.counts) == (0, "3/12")
    seen = []
    wait = 0
    for name, waits in (("w2", False), ("w3", False), ("w4", True), ("w5", False), ("w6", True)):
        group.join(name)
        wait = group.round(wait=wait if waits else 0).delay_ms
        seen.append((wait, group.counts))
    assert seen == [
        (0, "0,2/0,6"),
        (40, "0,1,2/3,3,6"),
        (0, "0,0,1,1/0,3,3,3"),
        (1600, "0,0,1,1,1/1,2,3,3,3"),
        (0, "0,0,0,1,1,1/0,1,2,2,2,2"),
    ]
    group.round()
    assert (group.counts, group.is_complete) == ("0,0,0,1,1,1/2,2,2,2,2,2", True)


@pytest.mark.parametrize(
    ("delay", "after_third", "counts"), [(0, 0, "0,1,1/3,3,4"), (1, 1, "0,1,2/3,3,6")], ids=["no delay", "1 ms"]
)
def test_balancing_back_off_never_exceeds_the_largest_delay(delay: int, after_third: int, counts: str) -> None:
    group = Group(THREE, delay=delay)
    group.join("w1")
    group.round()
    group.join("w2")
    assert (group.round().delay_ms, group.counts) == (0, "0,2/0,6")
    group.join("w3")
    assert (group.round().delay_ms, group.counts) == (after_third, counts)
    if delay == 0:
        assert no_revocations(group) == 0
        assert (group.counts, group.is_complete) == ("1,1,1/4,4,4", True)


def test_a_worker_that_joins_while_balancing_waits_changes_nothing_of_the_wait() -> None:
    group = Group(THREE)
    group.join("w1")
    group.round()
    group.join("w2")
    group.round()
    group.join("w3")
    first = no_revocations(group)
    assert (first > 0, group.counts) == (True, "0,1,2/3,3,6")
    group.join("w4")
    second = no_revocations(group, wait=first // 2)
    assert (second > 0, group.counts) == (True, "0,0,1,2/0,3,3,6")
    group.join("w5")
    assert group.round(wait=second).delay_ms == 0
    assert group.counts == "0,0,0,1,1/0,0,2,3,3"
    assert no_revocations(group) == 0
    assert (group.counts, group.is_complete) == ("0,0,1,1,1/2,2,2,3,3", True)


def test_jobs_of_a_worker_that_left_wait_for_the_delay() -> None:
    group = two_workers()
    group.leave("w2")
    assert idle(group) == D
    assert idle(group, D // 2) == D // 2
    assert group.round(wait=D // 2 + 1).delay_ms == 0
    assert (group.counts, group.is_complete) == ("2/8", True)


def test_a_worker_that_comes_back_in_time_gets_its_jobs_back() -> None:
    group = two_workers()
    group.leave("w2")
    assert idle(group) == D
    assert idle(group, D // 2) == D // 2
    group.join("w2")
    assert idle(group, D // 4) == D // 4
    assert no_revocations(group, D // 4) == 0
    assert (group.counts, group.is_complete) == ("1,1/4,4", True)


def test_jobs_of_a_leader_that_left_are_assigned_at_once_because_its_memory_is_gone() -> None:
    group = Group(TWO)
    group.join("w1", "w2", "w3")
    group.round()
    assert group.counts == "0,1,1/2,3,3"
    group.leave("w1")
    group.new_leader()
    assert group.round().delay_ms == 0
    assert (group.counts, group.is_complete) == ("1,1/4,4", True)
    group.join("w1")
    assert group.round().delay_ms == 0
    assert group.counts == "0,1,1/0,3,3"
    assert no_revocations(group) == 0
    assert (group.counts, group.is_complete) == ("0,1,1/2,3,3", True)


def test_a_first_answer_that_nobody_got_is_given_again() -> None:
    group = Group(TWO)
    group.join("w1", "w2")
    assert group.round(delivered=False).delay_ms == 0
    assert group.counts == "0,0/0,0"
    assert group.round().delay_ms == 0
    assert (group.counts, group.is_complete) == ("1,1/4,4", True)


@pytest.mark.parametrize("generations_behind", [0, 1])
def test_a_later_answer_that_nobody_got_is_decided_again(generations_behind: int) -> None:
    group = two_workers()
    group.join("w3")
    group.round(delivered=False)
    group.completed -= generations_behind
    waits = group.round().delay_ms
    assert (group.counts, waits > 0) == ("0,1,1/0,4,4", True)
    assert group.round(wait=waits).delay_ms == 0
    assert group.counts == "0,1,1/0,3,3"
    group.round()
    assert (group.counts, group.is_complete) == ("0,1,1/2,3,3", True)


def test_jobs_of_a_deleted_connector_are_revoked_and_forgotten() -> None:
    group = Group(THREE)
    group.join("w1", "w2")
    group.round()
    assert group.counts == "1,2/6,6"
    del group.configured["c3"]
    assert group.round().delay_ms == 0
    assert (group.counts, group.is_complete) == ("1,1/4,4", True)


def test_jobs_are_placed_at_once_when_no_delay_is_wanted() -> None:
    group = two_workers(delay=0)
    group.leave("w2")
    assert group.round().delay_ms == 0
    assert (group.counts, group.is_complete) == ("2/8", True)


def test_jobs_that_two_workers_report_are_revoked_from_both() -> None:
    group = Group(TWO)
    group.join("w1")
    group.round()
    group.join("w2", reporting="c1 c1-0 c1-1 c1-2 c1-3")
    assert (group.round().delay_ms, group.counts) == (0, "0,1/0,4")
    assert no_revocations(group) == 0
    assert (group.counts, group.is_complete) == ("1,1/4,4", True)
    assert idle(group) == 0


def test_deleted_jobs_that_two_workers_report_are_revoked_from_both() -> None:
    group = Group(TWO)
    group.join("w1")
    group.round()
    del group.configured["c1"]
    group.join("w2", reporting="c1 c1-0 c1-1 c1-2 c1-3")
    assert (group.round().delay_ms, group.counts) == (0, "0,1/0,2")
    assert no_revocations(group) == 0
    assert (group.counts, group.is_complete) == ("0,1/2,2", True)
    assert idle(group) == 0


# -- exact placements ------------------------------------------------------------------------------------------------


def test_jobs_are_dealt_in_order_to_workers_in_order() -> None:
    group = Group(TWO)
    group.join("w1", "w2", "w3")
    group.round()
    assert shown(group.held) == expected(w1="c1 c1-0 c1-3 c2-2", w2="c2 c1-1 c2-0 c2-3", w3="c1-2 c2-1")
    group.leave("w3")
    group.round()
    done = group.round(wait=D)
    assert shown(done.new) == expected(w1="c1-2", w2="c2-1")


def test_lost_jobs_are_dealt_over_workers_that_came_in_empty() -> None:
    group = two_workers()
    assert shown(group.held)["w1"] == expected(x="c1 c1-0 c1-2 c2-0 c2-2")["x"]
    group.leave("w2")
    delays = [group.round().delay_ms]
    group.join("w4")
    delays.append(group.round(wait=1000).delay_ms)
    group.join("w3")
    delays.append(group.round().delay_ms)
    assert delays == [D, D - 1000, D - 1000]
    done = group.round(wait=D - 1000)
    assert shown(done.new) == expected(w4="c2 c1-1 c2-1", w3="c1-3 c2-3")
    assert shown(done.revoked) == expected(w1="c1-0")
    assert shown(group.round().new) == expected(w3="c1-0")


def test_a_delay_runs_for_nothing_when_a_worker_goes_before_it_got_what_was_revoked_for_it() -> None:
    group = Group({"c1": 2})
    group.join("w1")
    group.round()
    group.join("w2")
    assert shown(group.round().revoked) == expected(w1="c1-0")
    group.leave("w2")
    done = group.round()
    assert shown(done.new) == expected(w1="c1-0")
    assert done.delay_ms == D


@pytest.mark.parametrize(
    ("largest", "delays"),
    [
        (300_000, [40, 1600, 64_000, 300_000, 300_000]),
        (60_000, [40, 1600, 60_000, 60_000, 60_000]),
        (1, [1] * 5),
        (0, [0] * 5),
    ],
)
def test_back_off_grows_up_to_the_largest_delay(largest: int, delays: list[int]) -> None:
    assert [backoff_ms(n, largest) for n in range(1, 6)] == delays


# -- lost jobs, in isolation -----------------------------------------------------------------------------------------


class Lost:
    """Three workers with two connectors and four tasks each; worker1 is gone."""

    def __init__(self, largest: int = D) -> None:
        self.now = 5_000
        self.jobs = LostJobs(largest, lambda: self.now)
        self.load = {f"worker{n}": _share(n) for n in range(3)}
        self.previous = list(self.load)
        assert self.handle(NOTHING) == (NOTHING, {}, False)
        self.lost = self.load.pop("worker1")

    def handle(self, lost: Jobs) -> tuple[Jobs, dict[str, Jobs], bool]:
        answer = self.jobs.handle(
            lost, self.load, members=self.load, previous_members=self.previous, revoked_before=False
        )
        self.previous = list(self.load)
        return answer

    @property
    def state(self) -> tuple[list[str], int, int]:
        """Return (candidates, ms until the end of the delay, delay)."""
        ends = self.jobs.scheduled_ms
        return list(self.jobs.candidates), ends and ends - self.now, self.jobs.delay_ms


def _share(n: int) -> Jobs:
    names = " ".join(many("connector", range(2 * n, 2 * n + 2)) + many("task-", range(4 * n, 4 * n + 4)))
    return jobs(names)


def test_lost_jobs_return_to_the_worker_that_bounced() -> None:
    lost = Lost()
    assert lost.handle(lost.lost) == (NOTHING, {}, False)
    assert lost.state == ([], D, D)
    lost.now += D // 2
    lost.load["worker1"] = NOTHING
    assert lost.handle(lost.lost) == (NOTHING, {}, False)
    assert lost.state == (["worker1"], D // 2, D // 2)
    lost.now += D // 2
    assert lost.handle(lost.lost) == (NOTHING, {"worker1": lost.lost}, True)
    assert lost.state == ([], 0, 0)


@pytest.mark.parametrize("bounces", [False, True])
def test_lost_jobs_are_released_when_their_worker_is_gone_at_the_end(bounces: bool) -> None:
    lost = Lost()
    lost.handle(lost.lost)
    lost.now += D // 2
    if bounces:
        lost.load["worker1"] = NOTHING
    lost.handle(lost.lost)
    assert lost.state == (["worker1"] if bounces else [], D // 2, D // 2)
    lost.load.pop("worker1", None)
    lost.now += D // 2
    assert lost.handle(lost.lost) == (lost.lost, {}, True)
    assert lost.state == ([], 0, 0)


def test_lost_jobs_are_dealt_over_two_candidates_in_the_order_in_which_they_came() -> None:
    lost = Lost()
    lost.load["worker3"] = NOTHING
    lost.handle(lost.lost)
    assert lost.state == (["worker3"], D, D)
    lost.now += D // 2
    lost.load["worker1"] = NOTHING
    lost.handle(lost.lost)
    assert lost.state == (["worker3", "worker1"], D // 2, D // 2)
    lost.now += D // 2
    lost.load |= {"worker3": jobs("other"), "worker1": jobs("another-1")}
    assert lost.handle(lost.lost) == (
        NOTHING,
        {"worker3": jobs("connector2 task-4 task-6"), "worker1": jobs("connector3 task-5 task-7")},
        True,
    )
    assert lost.state == ([], 0, 0)


def test_lost_jobs_are_released_at_once_without_a_delay() -> None:
    lost = Lost(largest=0)
    assert lost.handle(lost.lost) == (lost.lost, {}, False)
    assert lost.state == ([], 0, 0)


# -- spreading -------------------------------------------------------------------------------------------------------


def test_jobs_are_spread_in_turn_over_equal_workers() -> None:
    load = KindLoad({f"worker{n}": {-2 * n - 1, -2 * n - 2} for n in range(3)})
    load.spread(range(6, 11))
    added = {member: sorted(item for item in held if item > 0) for member, held in load.held.items()}
    assert added == {"worker0": [6, 9], "worker1": [7, 10], "worker2": [8]}


def test_jobs_fill_valleys_first() -> None:
    load = KindLoad({"worker0": {-1, -2}, "worker1": {-3, -4, -5}, "worker2": {-6, -7, -8, -9}, "worker3": set()})
    load.spread(range(9, 24))
    added = {member: sorted(item for item in held if item > 0) for member, held in load.held.items()}
    assert added == {
        "worker0": [12, 14, 17, 21],
        "worker1": [15, 18, 22],
        "worker2": [19, 23],
        "worker3": [9, 10, 11, 13, 16, 20],
    }
