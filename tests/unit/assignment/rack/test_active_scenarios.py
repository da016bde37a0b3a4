"""Rack optimisation of active tasks: scenarios with their ids."""

from __future__ import annotations

import random

import pytest

from streams_protocol.types import TaskId
from streams_py.assignment.rack import min_traffic
from streams_py.assignment.rack.balance_subtopology import cap
from tests.support.assignment.racks import ACTIVE, RACKS, STRATEGIES, cost, moves, optimise, placement, sizes, traffic

BOTH, MIN, BALANCE = STRATEGIES, ("min_traffic",), ("balance_subtopology",)
A1 = "P1: 0_1 1_1; P2: 1_0; P3: 0_0"
A1_BEST = "P1: 0_0 1_0; P2: 1_1; P3: 0_1"
A4 = "P2: 0_0 1_1; P5: 0_1"
A11 = "P1: 0_0 0_1; P2: 1_0 1_1"

# id, before, strategies, costs, cost before, cost after, result (None: several are equally good)
ROWS = [
    ("A1", A1, BOTH, (10, 1), 40, 4, A1_BEST),
    ("A1-stateless", A1, BOTH, (1, 0), 4, 0, A1_BEST),
    ("A2", "P1:; P2: 1_0; P3: 0_0", BOTH, (10, 1), 20, 2, "P1:; P2: 0_0; P3: 1_0"),
    ("A2-stateless", "P1:; P2: 1_0; P3: 0_0", BOTH, (1, 0), 2, 0, "P1:; P2: 0_0; P3: 1_0"),
    ("A3", "P1:; P2: 0_1 1_0; P3: 0_0", BOTH, (10, 1), 20, 2, "P1:; P2: 0_0 0_1; P3: 1_0"),
    ("A3-stateless", "P1:; P2: 0_1 1_0; P3: 0_0", BOTH, (1, 0), 2, 0, "P1:; P2: 0_0 0_1; P3: 1_0"),
    ("A4a", A4, BOTH, (10, 1), 10, 10, A4),
    ("A4a-stateless", A4, MIN, (1, 0), 1, 1, A4),
    ("A4b", A4, BALANCE, (1, 0), 1, 1, A4),
    ("A6", A1, MIN, (0, 1), 0, 0, A1),
    ("A7", A1, BOTH, (1, 10), 4, 4, A1),
    ("A8", A1, BOTH, (10, 10), 40, 40, A1),
    ("A9", A1, BOTH, (10, 9), 40, 36, A1_BEST),
    ("A11", A11, BOTH, (10, 1), 20, 2, "P1: 0_0 1_0; P2: 0_1 1_1"),
    ("A12", A11, MIN, (0, 1), 0, 0, A11),
    ("A12-balance", A11, BALANCE, (0, 1), 0, 2, None),
    ("A13", "P1: 0_1; P2: 1_0 1_1; P3: 0_0", BOTH, (10, 1), 30, 3, None),
    ("A14", "P1: 0_2 1_3; P2: 0_3; P3: 1_2", BOTH, (1, 0), 4, 0, None),
]
CASES = [pytest.param(*row[1:2], strategy, *row[3:], id=f"{row[0]}-{strategy}") for row in ROWS for strategy in row[2]]


@pytest.mark.parametrize(("before", "strategy", "costs", "cost_before", "cost_after", "result"), CASES)
def test_cost_and_placement_are_the_best(
    before: str, strategy: str, costs: tuple[int, int], cost_before: int, cost_after: int, result: str | None
) -> None:  # A17
    start = placement(before)
    assert costs[0] * traffic(start) == cost_before
    after = optimise(start, costs, strategy)
    assert cost(start, after, costs) == cost_after
    assert sizes(after) == sizes(start)
    if result is not None:
        assert after == placement(result)
    assert optimise(after, costs, strategy) == after


@pytest.mark.parametrize(("before", "number"), [(A1, 4), ("P1: 0_1; P2: 1_0 1_1; P3: 0_0", 3)])
def test_no_more_tasks_move_than_needed(before: str, number: int) -> None:  # A1, A13
    start = placement(before)
    for strategy in STRATEGIES:
        assert moves(start, optimise(start, (10, 1), strategy)) == number


def test_stateless_tasks_move_no_more_than_needed() -> None:  # A14
    start = placement("P1: 0_2 1_3; P2: 0_3; P3: 1_2")
    after = optimise(start, (1, 0))
    assert moves(start, after) == 4
    assert after["P1"] == ["0_3", "1_2"]


def test_nothing_is_touched_when_no_task_is_to_be_optimised() -> None:  # A5
    start = placement(A1)
    assert optimise(start, (10, 1), only=()) == start


def test_only_the_chosen_tasks_move_and_count() -> None:  # A10
    for strategy in STRATEGIES:
        after = optimise(placement(A1), (10, 1), strategy, only=("0_0", "0_1"))
        assert after == placement("P1: 0_0 1_1; P2: 1_0; P3: 0_1")


@pytest.mark.parametrize("costs", [(10, 1), (1, 0), (0, 1)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_large_random_group_gets_cheaper_and_stays_balanced(
    strategy: str, costs: tuple[int, int]
) -> None:  # A15 and, with costs 0/1, A16
    chance = random.Random(15)
    count = 20 if costs[0] == 0 else 30
    names = [f"rack{number}" for number in range(count)]
    chance.shuffle(names)
    spots = {(topic, index): chance.randrange(count) for topic in range(40) for index in range(3)}
    pair = {spot: frozenset({names[at], names[(at + 1) % count]}) for spot, at in spots.items()}
    partitions = {TaskId(g, p): [pair[g, p], pair[(g + 1) % 40, p]] for g in range(40) for p in range(3)}
    racks_of = {f"P{number}": f"rack{number % count}" for number in range(1, 31)}
    tasks = [str(task) for task in partitions]
    chance.shuffle(tasks)
    start = {name: tasks[number::30] for number, name in enumerate(racks_of)}
    after = optimise(start, costs, strategy, partitions=partitions, racks_of=racks_of)
    assert sizes(after) == sizes(start)
    if strategy == "min_traffic" or costs[0]:
        assert cost(start, after, costs, partitions, racks_of) <= cost(start, start, costs, partitions, racks_of)
    if costs == (0, 1) and strategy == "min_traffic":
        assert {name: sorted(own) for name, own in after.items()} == {name: sorted(own) for name, own in start.items()}
    if strategy == "balance_subtopology":
        for group in range(40):
            held = [sum(TaskId.parse(task).subtopology == group for task in own) for own in after.values()]
            assert max(held) - min(held) <= 1


def test_two_tasks_trade_places_at_any_price_worth_it() -> None:  # A18
    partitions = {TaskId(0, 0): [frozenset({"rack-2"})], TaskId(0, 1): [frozenset({"rack-1"})]}
    racks_of = {"P1": "rack-1", "P2": "rack-2"}
    start = placement("P1: 0_0; P2: 0_1")
    after = optimise(start, (100, 1), partitions=partitions, racks_of=racks_of)
    assert traffic(start, partitions, racks_of) == 2
    assert after == placement("P1: 0_1; P2: 0_0")
    assert cost(start, after, (100, 1), partitions, racks_of) == 2
    assert optimise(after, (100, 1), partitions=partitions, racks_of=racks_of) == after


def test_placement_without_foreign_reads_stays() -> None:  # A19
    partitions = {TaskId(0, p): [frozenset({f"rack-{p + 1}", f"rack-{p + 2}"})] for p in range(3)}
    racks_of = {f"P{n}": f"rack-{n}" for n in (1, 2, 3)}
    start = placement("P1: 0_0; P2: 0_1; P3: 0_2")
    assert optimise(start, (100, 1), partitions=partitions, racks_of=racks_of) == start


def test_partitions_are_counted_and_not_tasks() -> None:  # A20
    partitions = {TaskId(0, 0): [frozenset({f"rack{n}", f"rack{n + 1}"}) for n in (1, 2, 3)]}
    start = placement("P1: 0_0")
    assert cost(start, start, (10, 1), partitions, {"P1": "rack2"}) == 10
    assert optimise(start, (10, 1), partitions=partitions, racks_of={"P1": "rack2"}) == start


def test_cap_is_exact_when_floating_point_would_round_it_up() -> None:  # A22
    assert cap(14, 25, 50) == 7
    assert -(-14 * 1.0 / 50 * 25 // 1) == 8  # Kafka's result


def test_nothing_is_solved_when_nobody_could_gain(monkeypatch: pytest.MonkeyPatch) -> None:  # A23
    def refuse(*_: object) -> None:
        raise AssertionError("a network was built")

    monkeypatch.setattr(min_traffic, "counts_after", refuse)
    partitions = {TaskId(0, p): [frozenset({f"rack{p % 3}"})] for p in range(1000)}
    racks_of = {f"P{n}": "rack0" for n in range(1, 11)}
    tasks = [str(task) for task in partitions]
    start = {name: tasks[number::10] for number, name in enumerate(racks_of)}
    assert optimise(start, (1, 0), partitions=partitions, racks_of=racks_of) == start
    assert optimise(placement(A1), (1, 10)) == placement(A1)  # A7


def test_fixture_is_what_the_scenarios_assume() -> None:
    assert ACTIVE[TaskId(0, 4)] == [frozenset({"rack1", "rack3"})]
    assert RACKS["P7"] == "rack1"
