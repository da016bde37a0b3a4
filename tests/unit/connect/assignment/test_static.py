"""Static placement: jobs run where workers list them, and wildcard workers share the rest (KIP-987)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streams_py.connect.assignment.cooperative import Round
from streams_py.connect.assignment.jobs import Jobs
from tests.support.connect.trace import D, Group, connectors, expected, shown

AB = connectors("a b", 2)


def group(configured: Mapping[str, int] = AB, *, delay: int = D, static: bool = True) -> Group:
    return Group(dict(configured), delay=delay, static=static)


def happened(done: Round) -> tuple[dict[str, str], dict[str, str], int]:
    """(new, revoked, delay) of a round."""
    return shown(done.new), shown(done.revoked), done.delay_ms


def changed(new: dict[str, str], revoked: dict[str, str], delay: int = 0) -> tuple[dict[str, str], dict[str, str], int]:
    return expected(**new), expected(**revoked), delay


IDLE = changed({}, {})


def two_wildcards() -> Group:
    started = group()
    started.join("w1", "w2")
    started.round()
    assert shown(started.held) == expected(w1="a a-0 b-0", w2="b a-1 b-1")
    return started


def one_wildcard_and_a_lister() -> Group:
    started = group()
    started.join("w1")
    started.join("w2", lists="a a-0")
    started.round()
    assert shown(started.held)["w2"] == expected(x="a a-0")["x"]
    return started


def test_a_listed_connector_moves_to_its_lister_in_two_rounds_and_nothing_else_moves() -> None:
    at = two_wildcards()
    at.join("w3", lists="a")
    assert happened(at.round()) == changed({}, {"w1": "a"})
    assert happened(at.round()) == changed({"w3": "a"}, {})
    assert happened(at.round()) == IDLE


def test_listed_tasks_move_without_their_connector() -> None:
    at = two_wildcards()
    at.join("w3", lists="a-0 a-1")
    assert happened(at.round()) == changed({}, {"w1": "a-0", "w2": "a-1"})
    assert happened(at.round()) == changed({"w3": "a-0 a-1"}, {})
    assert happened(at.round()) == IDLE


def test_another_lister_takes_over_without_delay() -> None:
    at = one_wildcard_and_a_lister()
    at.join("w3", lists="a a-0")
    assert happened(at.round()) == IDLE
    at.leave("w2")
    assert happened(at.round()) == changed({"w3": "a a-0"}, {})


def test_jobs_of_a_sole_lister_return_to_wildcards_after_the_delay_and_go_back_when_it_returns() -> None:
    at = one_wildcard_and_a_lister()
    at.leave("w2")
    assert happened(at.round()) == changed({}, {}, D)
    assert happened(at.round(wait=D // 2)) == changed({}, {}, D // 2)
    assert happened(at.round(wait=D // 2 + 1)) == changed({"w1": "a a-0"}, {})
    at.join("w9", lists="a a-0")
    assert happened(at.round()) == changed({}, {"w1": "a a-0"})
    assert happened(at.round()) == changed({"w9": "a a-0"}, {})


def test_a_lister_that_restarts_in_time_has_its_jobs_at_once() -> None:
    at = one_wildcard_and_a_lister()
    at.leave("w2")
    assert happened(at.round()) == changed({}, {}, D)
    at.join("w2x", lists="a a-0")
    assert happened(at.round(wait=1000)) == changed({"w2x": "a a-0"}, {})


def test_listed_jobs_that_do_not_exist_are_ignored_until_they_do() -> None:
    at = group()
    at.join("w1")
    at.join("w2", lists="z z-0")
    at.round()
    assert shown(at.held) == expected(w1="a b a-0 a-1 b-0 b-1")
    at.configured["z"] = 2
    assert happened(at.round()) == changed({"w2": "z z-0", "w1": "z-1"}, {})


def test_a_worker_with_an_empty_list_stays_idle() -> None:
    at = group()
    at.join("w1")
    at.join("w2", lists="")
    at.round()
    assert shown(at.held) == expected(w1="a b a-0 a-1 b-0 b-1")


def test_jobs_that_nobody_lists_wait_for_a_wildcard_worker_when_all_have_lists() -> None:
    at = group()
    at.join("w1", lists="a a-0 a-1")
    at.join("w2", lists="b-0")
    done = at.round()
    assert happened(done) == changed({"w1": "a a-0 a-1", "w2": "b-0"}, {})
    assert str(done.unassignable) == "b, b-1"
    at.join("w3")
    done = at.round()
    assert happened(done) == changed({"w3": "b b-1"}, {})
    assert not done.unassignable


def test_a_worker_is_drained_by_listing_everything_elsewhere() -> None:
    at = group()
    at.join("w1")
    at.round()
    at.join("w2", lists="a b")
    assert happened(at.round()) == changed({}, {"w1": "a b"})
    assert happened(at.round()) == changed({"w2": "a b"}, {})
    at.join("w3", lists="a-0 a-1 b-0 b-1")
    assert happened(at.round()) == changed({}, {"w1": "a-0 a-1 b-0 b-1"})
    assert happened(at.round()) == changed({"w3": "a-0 a-1 b-0 b-1"}, {})
    assert not at.held["w1"]
    at.leave("w1")
    assert happened(at.round()) == IDLE


def test_lists_count_only_while_the_group_speaks_the_static_protocol() -> None:
    at = group(static=False)
    at.join("w1", "w2")
    at.join("w3", lists="b")
    at.round()
    assert shown(at.held) == expected(w1="a a-0 b-1", w2="b a-1", w3="b-0")
    at.static = True
    assert happened(at.round()) == changed({}, {"w2": "b", "w3": "b-0"})
    assert happened(at.round()) == changed({"w3": "b", "w2": "b-0"}, {})
    at.static = False
    assert happened(at.round()) == changed({}, {"w2": "a-1"})
    assert happened(at.round()) == changed({"w3": "a-1"}, {})


def test_static_jobs_move_while_lost_jobs_wait() -> None:
    at = group()
    at.join("w1", "w2", "w3")
    at.round()
    at.leave("w3")
    assert happened(at.round()) == changed({}, {}, D)
    at.join("w4", lists="a a-0")
    assert happened(at.round(wait=100)) == changed({}, {"w1": "a a-0"}, D - 100)
    assert happened(at.round()) == changed({"w4": "a a-0"}, {}, D - 100)
    assert happened(at.round(wait=D - 100)) == changed({"w1": "b-0"}, {})


def test_deleted_jobs_are_revoked_from_their_listers() -> None:
    at = group()
    at.join("w1")
    at.join("w2", lists="a a-0 a-1")
    at.round()
    del at.configured["a"]
    assert happened(at.round())[1] == expected(w2="a a-0 a-1")


def test_jobs_that_few_list_are_placed_first() -> None:
    at = group(connectors("a b", 0))
    at.join("w1", lists="a b")
    at.join("w2", lists="a")
    at.round()
    assert shown(at.held) == expected(w1="b", w2="a")


def test_listed_tasks_follow_the_number_of_tasks() -> None:
    at = group({"a": 1})
    at.join("w1")
    at.join("w2", lists="a-0 a-1 a-2 a-3")
    assert happened(at.round()) == changed({"w1": "a", "w2": "a-0"}, {})
    at.configured["a"] = 3
    assert happened(at.round()) == changed({"w2": "a-1 a-2"}, {})
    at.configured["a"] = 1
    assert happened(at.round()) == changed({}, {"w2": "a-1 a-2"})


def test_a_wildcard_worker_is_the_backup_of_one_that_lists_everything() -> None:
    at = group(delay=0)
    at.join("w1")
    at.join("w2", lists="a b a-0 a-1 b-0 b-1")
    at.round()
    assert not at.held["w1"]
    at.leave("w2")
    assert happened(at.round()) == changed({"w1": "a b a-0 a-1 b-0 b-1"}, {})


def test_a_static_revocation_that_nobody_got_is_made_again() -> None:
    at = group()
    at.join("w1")
    at.round()
    at.join("w2", lists="a")
    at.round(delivered=False)
    assert happened(at.round()) == changed({}, {"w1": "a"})
    assert happened(at.round()) == changed({"w2": "a"}, {})


def test_a_static_placement_that_nobody_got_is_made_again() -> None:
    at = group()
    at.join("w1")
    at.join("w2", lists="a")
    first = happened(at.round(delivered=False))
    assert happened(at.round()) == first


def test_jobs_of_a_wildcard_leader_that_left_are_placed_at_once_and_static_ones_stay() -> None:
    at = group()
    at.join("w1", "w2")
    at.join("w3", lists="a a-0")
    at.round()
    assert shown(at.held) == expected(w1="b a-1 b-1", w2="b-0", w3="a a-0")
    at.leave("w1")
    at.new_leader()
    assert happened(at.round()) == changed({"w2": "b a-1 b-1"}, {})


def test_a_static_job_that_two_report_is_revoked_from_both() -> None:
    at = group()
    at.join("w1")
    at.join("w2", "w3", lists="a")
    at.round()
    assert at.held["w2"].connectors == {"a"}
    at.held["w3"] = Jobs.of(["a"])
    assert happened(at.round()) == changed({}, {"w2": "a", "w3": "a"})
    assert happened(at.round()) == changed({"w2": "a"}, {})


def test_wildcard_workers_are_balanced_in_the_round_that_takes_static_jobs_away() -> None:
    at = group(connectors("a b", 4))
    at.join("w1", "w2")
    at.round()
    assert shown(at.held)["w1"] == expected(x="a a-0 a-2 b-0 b-2")["x"]
    at.join("w3", lists="a-0 a-2 b-0 b-1")
    assert happened(at.round()) == changed({}, {"w1": "a-0 a-2 b-0", "w2": "b-1 a-1"})
    assert happened(at.round()) == changed({"w3": "a-0 a-2 b-0 b-1", "w1": "a-1"}, {})
    assert happened(at.round()) == IDLE


def test_jobs_that_lost_their_only_lister_wait_for_the_first_wildcard_worker() -> None:
    at = group({"a": 0, "b": 0})
    at.join("w1", lists="a")
    at.join("w2", lists="b")
    at.round()
    at.leave("w1")
    assert at.round().delay_ms == D
    assert happened(at.round(wait=D)) == IDLE
    at.join("w5")
    assert happened(at.round()) == changed({"w5": "a"}, {})


def test_a_wildcard_worker_that_comes_back_static_gets_what_it_lists_and_the_rest_waits() -> None:
    at = two_wildcards()
    at.leave("w2")
    assert happened(at.round()) == changed({}, {}, D)
    at.join("w2x", lists="a b-1")
    assert happened(at.round(wait=500)) == changed({"w2x": "b-1"}, {"w1": "a"}, D - 500)
    assert happened(at.round()) == changed({"w2x": "a"}, {}, D - 500)
    assert happened(at.round(wait=D - 500)) == changed({"w1": "b a-1"}, {})


def test_a_static_worker_that_comes_back_wildcard_gets_its_jobs_when_the_delay_ends() -> None:
    at = one_wildcard_and_a_lister()
    at.leave("w2")
    assert happened(at.round()) == changed({}, {}, D)
    at.join("w2x")
    assert happened(at.round(wait=500)) == changed({}, {}, D - 500)
    assert happened(at.round(wait=D - 500)) == changed({"w2x": "a a-0"}, {"w1": "a-1"})
    assert happened(at.round()) == changed({"w2x": "a-1"}, {})


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_order_of_creation_does_not_matter(when: str) -> None:
    at = group({} if when == "after" else AB)
    at.join("w1")
    at.join("w2", lists="a a-0")
    at.join("w3", lists="b-1")
    at.settle()
    at.configured = dict(AB)
    at.settle()
    assert shown(at.held) == expected(w1="b a-1 b-0", w2="a a-0", w3="b-1")
