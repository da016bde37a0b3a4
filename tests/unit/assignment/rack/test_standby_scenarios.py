"""Rack optimisation of standbys: scenarios with their ids."""

from __future__ import annotations

import random

import pytest

from streams_protocol.types import TaskId
from streams_py.assignment.rack.copies import Copies
from streams_py.assignment.rack.cost import Costs, Signatures
from streams_py.assignment.rack.layers import exchange_layers
from streams_py.assignment.rack.swaps import swap_standbys
from tests.support.assignment.racks import (
    RACKS,
    STANDBY,
    STRATEGIES,
    Placement,
    optimise_standbys,
    placement,
    rack_tags,
    sizes,
    traffic,
)

ACTIVE = placement("P1: 0_0; P2: 0_1; P3: 1_0; P4: 1_1; P6: 0_2; P7: 1_2")
START = placement("P1: 0_1 1_1; P2: 0_0 1_0; P3: 0_0 0_2; P4: 0_1 1_2; P6: 1_0 1_2; P7: 0_2 1_1")


def hosts(active: Placement, standby: Placement) -> dict[str, list[str]]:
    """Return the clients with a copy of each task."""
    found: dict[str, list[str]] = {}
    for placed in (active, standby):
        for client, tasks in placed.items():
            for task in tasks:
                found.setdefault(task, []).append(client)
    return found


@pytest.mark.parametrize("strategy", STRATEGIES)  # S9: the strategy does not matter
def test_nothing_moves_when_there_are_no_standbys(strategy: str) -> None:  # S0
    assert optimise_standbys(ACTIVE, {}, (10, 1), strategy) == {name: [] for name in ACTIVE}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_standbys_get_as_cheap_as_can_be(strategy: str) -> None:  # S1, S9
    after = optimise_standbys(ACTIVE, START, (10, 1), strategy)
    assert (10 * traffic(START, STANDBY), 10 * traffic(after, STANDBY)) == (60, 20)
    assert sizes(after) == sizes(START)
    assert all(len(set(found)) == 3 for found in hosts(ACTIVE, after).values())


def test_copies_stay_in_different_racks_when_the_rack_is_the_tag() -> None:  # S2
    after = optimise_standbys(ACTIVE, START, (10, 1), tags=rack_tags(ACTIVE))
    assert (10 * traffic(START, STANDBY), 10 * traffic(after, STANDBY)) == (60, 50)
    assert sizes(after) == sizes(START)
    assert all(len({RACKS[client] for client in found}) == 3 for found in hosts(ACTIVE, after).values())


def copies_of_s1(*, with_tags: bool) -> tuple[Copies, list[TaskId], list[str]]:
    names, tasks = sorted(ACTIVE), sorted({TaskId.parse(t) for own in ACTIVE.values() for t in own})
    numbers = {rack: n for n, rack in enumerate(sorted({RACKS[name] for name in names}))}
    tags = [rack_tags(names)[name] for name in names] if with_tags else None
    actives = [next(n for n, name in enumerate(names) if str(t) in ACTIVE[name]) for t in tasks]
    standbys = [{n for n, name in enumerate(names) if str(t) in START[name]} for t in tasks]
    homes = [numbers[RACKS[name]] for name in names]
    return Copies(Signatures(tasks, STANDBY, numbers), actives, standbys, homes, len(numbers), tags), tasks, names


@pytest.mark.parametrize(
    ("with_tags", "expected"),
    [
        (False, "P1: 1_0 1_2; P2: 0_0 1_1; P3: 0_1 0_2; P4: 0_0 0_1; P6: 1_0 1_2; P7: 0_2 1_1"),
        (True, "P1: 0_1 1_1; P2: 0_0 1_0; P3: 0_1 0_2; P4: 0_0 1_2; P6: 1_0 1_2; P7: 0_2 1_1"),
    ],
)
def test_pairs_alone_end_where_kafka_does(with_tags: bool, expected: str) -> None:  # S1, S2
    copies, tasks, names = copies_of_s1(with_tags=with_tags)
    assert swap_standbys(copies, Costs(10, 1), pairs_max=1000)
    assert {n: sorted(str(tasks[t]) for t in copies.on[c]) for c, n in enumerate(names)} == placement(expected)


@pytest.mark.parametrize("with_tags", [False, True])
def test_layers_alone_keep_copies_apart_in_any_case(with_tags: bool) -> None:  # S1, S2
    copies, _, _ = copies_of_s1(with_tags=with_tags)
    assert exchange_layers(copies, Costs(10, 1))
    assert 10 * copies.foreign_total() == 50
    assert not exchange_layers(copies, Costs(10, 1))


def test_search_stops_when_the_budget_of_pairs_is_used_up() -> None:
    copies, _, _ = copies_of_s1(with_tags=False)
    assert not swap_standbys(copies, Costs(10, 1), pairs_max=1)
    assert copies.foreign_total() <= 6


def test_standbys_swap_across_racks() -> None:  # S3
    partitions = {TaskId(0, 0): [frozenset({"rack-2"})], TaskId(0, 1): [frozenset({"rack-3"})]}
    racks_of = {"P1": "rack-1", "P2": "rack-2", "P3": "rack-3"}
    active, before = placement("P1: 0_0 0_1; P2:; P3:"), placement("P1:; P2: 0_1; P3: 0_0")
    after = optimise_standbys(active, before, (100, 1), partitions=partitions, racks_of=racks_of)
    assert traffic(before, partitions, racks_of) == 2
    assert after == placement("P1:; P2: 0_0; P3: 0_1")


def test_nothing_moves_within_one_rack() -> None:  # S4
    racks_of = dict.fromkeys(("P1", "P2", "P3", "P4"), "r1")
    partitions = {TaskId(0, p): [frozenset({"r9"})] for p in range(2)}
    tags = {name: frozenset({("az", az)}) for name, az in zip(racks_of, "1232")}
    active, before = placement("P1: 0_0 0_1; P2:; P3:; P4:"), placement("P1:; P2: 0_0; P3:; P4: 0_1")
    after = optimise_standbys(active, before, (10, 1), tags=tags, partitions=partitions, racks_of=racks_of)
    assert after == before


@pytest.mark.parametrize(
    ("with_tags", "total", "expected"),
    [
        pytest.param(True, 2, "P1:; P2: 0_0; P3: 0_1; P4:", id="S5"),
        pytest.param(False, 0, "P1:; P2: 0_1; P3: 0_0; P4:", id="S6"),
    ],
)
def test_swap_is_refused_when_it_puts_both_copies_in_one_zone(with_tags: bool, total: int, expected: str) -> None:
    partitions = {TaskId(0, 0): [frozenset({"r3"})], TaskId(0, 1): [frozenset({"r2"})]}
    racks_of = {"P1": "r1", "P2": "r2", "P3": "r3", "P4": "r1"}
    tags = {name: frozenset({("az", az)}) for name, az in zip(racks_of, "1212")}
    active, before = placement("P1: 0_0; P2:; P3:; P4: 0_1"), placement("P1:; P2: 0_0; P3: 0_1; P4:")
    after = optimise_standbys(
        active, before, (100, 1), tags=tags if with_tags else None, partitions=partitions, racks_of=racks_of
    )
    assert after == placement(expected)
    assert traffic(after, partitions, racks_of) == total


def test_swap_is_not_made_when_it_gains_nothing() -> None:  # S7
    partitions = {TaskId(0, 0): [frozenset({"r2"})], TaskId(0, 1): [frozenset({"r1", "r2"})]}
    racks_of = {"P1": "r1", "P2": "r2", "P3": "r3"}
    active, before = placement("P1:; P2:; P3: 0_0 0_1"), placement("P1: 0_0; P2: 0_1; P3:")
    unmoved = optimise_standbys(active, before, (2, 1), partitions=partitions, racks_of=racks_of)
    assert unmoved == before  # saves 2 and costs 2
    assert optimise_standbys(active, before, (3, 1), partitions=partitions, racks_of=racks_of) != before


def test_large_group_keeps_every_copy_in_a_rack_of_its_own() -> None:  # S8
    chance = random.Random(8)
    racks_of = {f"P{n}": f"rack{n}" for n in range(1, 51)}
    names = list(racks_of)
    partitions = {
        TaskId(g, p): [frozenset(chance.sample(sorted(racks_of.values()), 2))] for g in range(60) for p in range(3)
    }
    active: Placement = {name: [] for name in names}
    standby: Placement = {name: [] for name in names}
    for number, task in enumerate(map(str, partitions)):
        active[names[number % 50]].append(task)
        for distance in (7, 19, 31):
            standby[names[(number + distance) % 50]].append(task)
    after = optimise_standbys(
        active, standby, (10, 1), tags=rack_tags(names, racks_of), partitions=partitions, racks_of=racks_of
    )
    assert traffic(after, partitions, racks_of) < traffic(standby, partitions, racks_of)
    assert sizes(after) == sizes(standby)
    assert all(len(set(found)) == 4 for found in hosts(active, after).values())
