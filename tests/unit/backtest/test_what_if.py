"""What-ifs: each operator with the situation that it should give."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams_protocol.types import TaskId
from streams_py.backtest.inputs import ReplayInput
from streams_py.backtest.kernel import Row
from streams_py.backtest.what_if import OPERATORS, apply_what_if, check_what_if
from streams_py.errors import ConfigError
from streams_py.events.model import Racks
from tests.support.backtest.kit import A, B, C, client, replay, rows, sub

THREE = replay(
    client(A, "0:0-1", {"0:2": 900}, tags={"zone": "a"}),
    client(B, "0:2", {"0:3": 500}, tags={"zone": "b"}),
    client(C, "0:3", {"0:0-1": 700}, tags={"zone": "a"}),
)


def what_if(text: str, seed: int = 0, of: ReplayInput = THREE) -> ReplayInput:
    return apply_what_if(of, text, seed=seed)


def names(of: ReplayInput) -> list[str]:
    return [found.client for found in of.clients]


def test_zone_is_lost_and_standbys_added_when_one_follows_the_other() -> None:
    by_hand = replace(replay(THREE.clients[0], THREE.clients[2], num_standby_replicas=1))
    assert what_if("lose_zone(zone=b) add_standby(1)") == by_hand
    assert what_if("lose_zone(zone=b) | add_standby(1)") == what_if("lose_zone(zone=b);add_standby(1)") == by_hand


def test_order_is_kept_when_operators_do_not_commute() -> None:
    first_tagged = what_if("tags(zone=x,y,z) lose_zone(zone=y)")
    assert names(first_tagged) == [A, C]
    with pytest.raises(ConfigError, match="no client has zone=y"):
        what_if("lose_zone(zone=y) tags(zone=x,y,z)")
    assert [dict(c.tags) for c in what_if("lose_zone(zone=b) tags(zone=x,y)").clients] == [{"zone": "x"}, {"zone": "y"}]


def test_situation_is_the_same_when_there_is_no_operator() -> None:
    assert what_if("") is THREE
    assert what_if("add_standby(1)").hash() != THREE.hash()
    assert what_if("add_standby(1)").decision is None


def test_clients_are_added_like_a_model_when_one_is_named() -> None:
    found = what_if(f"add_clients(2,like={B})")
    added = [c for c in found.clients if c.client not in (A, B, C)]
    assert len(added) == 2
    assert all(c.tags == {"zone": "b"} and not c.sums.tasks and not c.prev_active for c in added)
    assert len({consumer.member for c in found.clients for consumer in c.consumers}) == 5
    in_turn = what_if("add_clients(3)")
    assert sorted(c.tags["zone"] for c in in_turn.clients if c.client not in (A, B, C)) == ["a", "a", "b"]
    assert len(what_if("add_clients(1) add_clients(1)").clients) == 5


def test_clients_are_removed_by_chance_when_the_seed_says_so() -> None:
    gone = {frozenset(names(what_if("remove_clients(1)", seed))) for seed in range(20)}
    assert len(gone) == 3
    assert what_if("remove_clients(1)", 3) == what_if("remove_clients(1)", 3)


def test_state_is_kept_or_lost_when_all_restart() -> None:
    kept = what_if("restart_all(keep_state=true)").clients[0]
    assert (list(kept.prev_active), list(kept.consumers[0].owned)) == ([], [])
    assert dict(zip(kept.sums.tasks, kept.sums.v, strict=True)) == {
        TaskId(0, 0): 1_000,
        TaskId(0, 1): 1_000,
        TaskId(0, 2): 900,
    }
    assert kept.prev_standby == kept.sums.tasks
    lost = what_if("restart_all(keep_state=false)").clients[0]
    assert (list(lost.sums.tasks), list(lost.prev_standby)) == ([], [])


def test_only_the_first_clients_restart_when_it_is_rolling() -> None:
    found = what_if("rolling(1)")
    assert list(found.clients[0].prev_active) == []
    assert found.clients[1:] == list(THREE.clients[1:])


def test_partitions_are_added_empty_when_a_sub_topology_is_scaled() -> None:
    racks = Racks(["x", "y"], {"in-0": [[0], [1]], "changelog-0": [[1], [0]]})
    before = replay(client(A, "0:0-1"), subs=[sub(ends=(5, 6), racks=racks, weight=[1.0, 2.0]), sub(1)])
    piece = what_if("scale_partitions(0,x2)", of=before).subs[0]
    assert (piece.count, piece.end, piece.weight) == (4, (5, 6, 0, 0), None)
    assert piece.racks is not None
    assert piece.racks.p["in-0"] == [[0], [1], [0], [1]]
    found = rows(before, "builtin:high_availability", scenarios=("scale_partitions(0,x2)",))
    assert (found[0]["valid"], found[0]["tasks"]) == ("ok", 8)


def test_copies_are_dropped_or_fall_behind_when_they_are_not_running() -> None:
    none_left = what_if("drop_state(share=1)")
    assert all(value == -2 for c in none_left.clients for value in c.sums.v)
    assert what_if("drop_state(share=0)").canonical() == THREE.canonical()
    behind = what_if("lag_storm(p99=1e9)")
    assert all(value in (-2, 0) for c in behind.clients for value in c.sums.v)
    assert all(list(b.prev_active) == list(c.prev_active) for b, c in zip(behind.clients, THREE.clients, strict=True))


def test_rack_is_set_when_it_is_tagged() -> None:
    assert [c.rack for c in what_if("tags(rack=r1,r2)").clients] == ["r1", "r2", "r1"]
    assert names(what_if("tags(rack=r1,r2) lose_zone(rack=r1)")) == [B]


@pytest.mark.parametrize(
    "text",
    [
        "remove_clients(3)",
        "remove_clients(0)",
        "remove_clients(many)",
        "remove_clients()",
        "lose_zone(zone=c)",
        "lose_zone(zone=a,cluster=b)",
        "add_clients(1,like=zz)",
        "add_clients(1,to=b)",
        "scale_partitions(7,x2)",
        "scale_partitions(0,2)",
        "scale_partitions(0,x0)",
        "scale_partitions(0,x0.5)",
        "scale_partitions(0,x1000)",
        "restart_all(keep_state=perhaps)",
        "rolling(4)",
        "drop_state(share=2)",
        "drop_state()",
        "lag_storm(p99=0)",
        "lag_storm(p99=x)",
        "tags()",
        "explode(1)",
        "add_standby 1",
        "add_standby(1) and more",
        "lose_zone(zone=a) lose_zone(zone=b)",
    ],
)
def test_what_if_is_refused_with_a_remedy_when_it_does_not_fit(text: str) -> None:
    with pytest.raises(ConfigError, match="what-if"):
        what_if(text)


def test_what_if_is_checked_without_a_situation_when_the_command_starts() -> None:
    check_what_if("lose_zone(zone=nowhere)")  # whether it fits is seen later
    with pytest.raises(ConfigError, match="lose_zone"):
        check_what_if("loose_zone(zone=b)")
    assert len(OPERATORS) == 10


def test_row_says_so_when_a_what_if_does_not_fit_one_situation() -> None:
    found: list[Row] = rows(THREE, "sticky", "builtin:high_availability", scenarios=("lose_zone(zone=c)", ""))
    assert [row["valid"] for row in found] == ["no_scenario", "no_scenario", "ok", "ok"]
