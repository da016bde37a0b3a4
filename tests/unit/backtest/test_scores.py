"""Scores of decisions that can be counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from streams_py.backtest.scores import Scores, score
from streams_py.events.model import Racks
from tests.support.backtest.kit import A, B, C, client, placed, replay, situation_of, sub


def scored(situation: Any, **of: Any) -> Scores:
    return score(situation_of(situation), placed(**of))


def test_balance_is_perfect_when_threads_have_equally_many_tasks() -> None:
    found = scored(replay(client(A, threads=2), client(B, threads=2)), A="0:0-1", B="0:2-3")
    assert (found.balance_cv, found.max_over_mean, found.sub_skew) == (0, 1, 0)
    assert found.unassigned == 0


def test_balance_is_counted_by_threads_when_clients_differ_in_size() -> None:
    found = scored(replay(client(A, threads=3), client(B)), A="0:0-2", B="0:3")
    assert (found.balance_cv, found.max_over_mean, found.sub_skew) == (0, 1, 2)
    lopsided = scored(replay(client(A), client(B)), A="0:0-2", B="0:3")
    assert (lopsided.balance_cv, lopsided.max_over_mean) == (0.5, 1.5)


def test_work_decides_when_it_was_measured() -> None:
    piece = sub(ends=(10, 10), weight=[3.0, 1.0])
    assert scored(replay(client(A), client(B), subs=[piece]), A="0:0", B="0:1").weighted_max_over_mean == 1.5
    assert scored(replay(client(A), client(B)), A="0:0", B="0:1").weighted_max_over_mean is None


def test_moves_are_cold_when_the_new_client_is_far_behind_and_else_warm_or_free() -> None:
    situation = replay(
        client(A, "0:0-3"), client(B, sums={"0:1": 950, "0:2": 200, "0:3": 1_000}), subs=[sub(), sub(1, None)]
    )
    found = scored(situation, A="1:0-3", B="0:0-3")
    assert found.moved_active == 4
    assert found.moved_cold == 2  # 0_0 without a copy, 0_2 beyond acceptable.recovery.lag; 0_1 warm, 0_3 up to date
    assert found.unavailable_records == found.restore_records == 1_000 + 50 + 800


def test_task_without_a_former_owner_has_not_moved_when_it_is_restored() -> None:
    found = scored(replay(client(A, sums={"0:0": 400}), client(B)), A="0:0-1", B="0:2-3")
    assert (found.moved_active, found.moved_cold) == (0, 0)
    assert found.unavailable_records == 600 + 3 * 1_000


def test_standbys_are_restored_but_nobody_waits_when_they_are_new() -> None:
    situation = replay(client(A, "0:0-3"), client(B, sums={"0:0": 900, "0:1": 900}))
    found = scored(situation, A="0:0-3", B=("", "0:0,2"))
    assert found.moved_standby == 1
    assert found.restore_records == 1_000
    assert found.unavailable_records == 0


def test_demoted_active_costs_nothing_when_its_client_keeps_a_copy() -> None:
    found = scored(replay(client(A, "0:0-3"), client(B, sums={"0:0": 1_000})), A=("0:1-3", "0:0"), B="0:0")
    assert (found.moved_standby, found.restore_records, found.moved_cold) == (0, 0, 0)


def test_scores_are_unknown_when_an_end_or_lag_is() -> None:
    unknown_end = replay(client(A, "0:0-3"), client(B), subs=[sub(ends=(-3,) * 4)])
    found = scored(unknown_end, A="0:0-1", B="0:2-3")
    assert (found.restore_records, found.unavailable_records) == (None, None)
    assert found.moved_cold == 2
    only_standby = replay(client(A, "0:0-3"), client(B, sums={"0:0": -3}))
    assert scored(only_standby, A="0:0-3", B=("", "0:0")).unavailable_records == 0


def test_spread_is_violated_when_copies_share_a_tag_although_they_need_not() -> None:
    tagged = [client(name, tags={"zone": zone}) for name, zone in ((A, "x"), (B, "x"), (C, "y"))]
    shared = scored(replay(*tagged), A="0:0-3", B=("", "0:0-3"), C="")
    apart = scored(replay(*tagged), A="0:0-3", B="", C=("", "0:0-3"))
    assert (shared.spread_violations, apart.spread_violations) == (4, 0)
    one_zone = [client(name, tags={"zone": "x"}) for name in (A, B)]
    assert scored(replay(*one_zone), A="0:0-3", B=("", "0:0-3")).spread_violations == 0


def test_rack_is_a_tag_when_spread_is_counted() -> None:
    racked = [client(name, rack=rack) for name, rack in ((A, "x"), (B, "x"), (C, "y"))]
    assert scored(replay(*racked), A="0:0-3", B=("", "0:0-3"), C="").spread_violations == 4


def test_partitions_are_foreign_when_no_replica_is_in_the_rack() -> None:
    racks = Racks(["x", "y"], {"in-0": [[0], [0], [1], [0, 1]], "changelog-0": [[0], [1], [1], [1]]})
    situation = replay(client(A, rack="x"), client(B, rack="y"), subs=[sub(racks=racks)])
    found = scored(situation, A="0:0-3", B=("", "0:0-3"))
    assert found.cross_rack_partitions == 1 + 1  # in-0-2 from x, changelog-0-0 from y
    assert scored(replay(client(A, rack="x")), A="0:0-3").cross_rack_partitions is None


@pytest.mark.parametrize("override", ["0", "1000000"])
def test_yardstick_is_the_recorded_setting_when_a_candidate_sets_another(override: str) -> None:
    situation = situation_of(
        replay(client(A, "0:0-3"), client(B, sums={"0:0": 500})), **{"acceptable.recovery.lag": override}
    )
    assert score(situation, placed(A="0:1-3", B="0:0")).moved_cold == 1
