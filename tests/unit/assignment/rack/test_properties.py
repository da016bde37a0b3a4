"""Properties of every group: compared with brute force, and under changes that must not matter."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from typing import Final

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streams_protocol.types import TaskId
from streams_py.assignment.rack.balance_subtopology import cap
from tests.support.assignment.racks import STRATEGIES, Placement, cheapest, cost, moves, optimise, traffic
from tests.support.assignment.yardstick import COSTS, groups

Group = tuple[Placement, dict[TaskId, list[frozenset[str]]], dict[str, str]]
TRIES_MAX: Final = 1500


def caps(start: Placement) -> dict[tuple[str, int], int]:
    tasks = [TaskId.parse(task) for own in start.values() for task in own]
    return {
        (name, group): cap(len(own), sum(task.subtopology == group for task in tasks), len(tasks))
        for name, own in start.items()
        for group in {task.subtopology for task in tasks}
    }


@given(groups(), COSTS, st.sampled_from(STRATEGIES))
@settings(max_examples=60)
def test_placement_is_the_cheapest_with_the_fewest_moves(group: Group, costs: tuple[int, int], strategy: str) -> None:
    start, partitions, racks_of = group
    assume(len(start) ** len(partitions) <= TRIES_MAX)
    after = optimise(start, costs, strategy, partitions=partitions, racks_of=racks_of)
    limits = caps(start) if strategy == "balance_subtopology" else None
    best = cheapest(start, costs, partitions, racks_of, limits)
    assert (cost(start, after, costs, partitions, racks_of), moves(start, after)) == best


@given(groups(), COSTS, st.sampled_from(STRATEGIES))
def test_result_is_a_fixed_point(group: Group, costs: tuple[int, int], strategy: str) -> None:
    start, partitions, racks_of = group
    after = optimise(start, costs, strategy, partitions=partitions, racks_of=racks_of)
    assert optimise(after, costs, strategy, partitions=partitions, racks_of=racks_of) == after


@given(groups(), COSTS)
def test_cost_never_increases_under_min_traffic(group: Group, costs: tuple[int, int]) -> None:
    start, partitions, racks_of = group
    after = optimise(start, costs, partitions=partitions, racks_of=racks_of)
    assert cost(start, after, costs, partitions, racks_of) <= cost(start, start, costs, partitions, racks_of)
    if costs[0] == 0:
        assert moves(start, after) == 0


@given(groups(), COSTS)
def test_no_client_has_too_much_of_a_subtopology(group: Group, costs: tuple[int, int]) -> None:
    start, partitions, racks_of = group
    after = optimise(start, costs, "balance_subtopology", partitions=partitions, racks_of=racks_of)
    for (name, subtopology), most in caps(start).items():
        assert sum(TaskId.parse(task).subtopology == subtopology for task in after[name]) <= most


@given(groups(), st.sampled_from([(10, 1), (7, 5)]), st.sampled_from(STRATEGIES), st.integers(2, 50))
def test_only_the_ratio_of_the_costs_matters(group: Group, costs: tuple[int, int], strategy: str, factor: int) -> None:
    start, partitions, racks_of = group
    larger = (costs[0] * factor, costs[1] * factor)
    assert optimise(start, costs, strategy, partitions=partitions, racks_of=racks_of) == optimise(
        start, larger, strategy, partitions=partitions, racks_of=racks_of
    )


@given(groups(), st.sampled_from(STRATEGIES), st.randoms(use_true_random=False))
def test_order_of_the_input_does_not_matter(group: Group, strategy: str, chance: random.Random) -> None:
    start, partitions, racks_of = group
    tasks = list(partitions)
    chance.shuffle(tasks)
    mixed = {task: chance.sample(partitions[task], len(partitions[task])) for task in tasks}
    one = optimise(start, (10, 1), strategy, partitions=partitions, racks_of=racks_of)
    other = optimise(start, (10, 1), strategy, partitions=mixed, racks_of=dict(sorted(racks_of.items(), reverse=True)))
    assert one == other


_HASHED = """
from streams_protocol.types import TaskId
from tests.support.assignment.racks import optimise, optimise_standbys, rack_tags
import random
chance = random.Random(7)
names = [f"P{n}" for n in range(1, 10)]
racks_of = {name: f"rack-{n % 4}" for n, name in enumerate(names)}
partitions = {TaskId(n % 3, n // 3): [frozenset(chance.sample(sorted(set(racks_of.values())), 2)) for _ in range(2)]
              for n in range(60)}
tasks = list(map(str, partitions))
active = {name: tasks[n::9] for n, name in enumerate(names)}
standby = {name: tasks[(n + 2) % 9::9] for n, name in enumerate(names)}
for strategy in ("min_traffic", "balance_subtopology"):
    print(optimise(active, (10, 1), strategy, partitions=partitions, racks_of=racks_of))
for tags in (None, rack_tags(names, racks_of)):
    print(optimise_standbys(active, standby, (10, 1), tags=tags, partitions=partitions, racks_of=racks_of))
"""


def test_result_is_the_same_under_any_hash_seed() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _HASHED],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1
    assert "P9" in outputs.pop()


def test_least_traffic_is_reached_when_moving_is_free() -> None:
    chance = random.Random(1)
    racks = ["a", "b", "c"]
    partitions = {TaskId(0, p): [frozenset({chance.choice(racks)})] for p in range(6)}
    for owners in itertools.islice(itertools.permutations(range(6)), 0, 720, 90):
        start = {f"P{n + 1}": [f"0_{p}" for p in owners[2 * n : 2 * n + 2]] for n in range(3)}
        racks_of = {"P1": "a", "P2": "b", "P3": "c"}
        after = optimise(start, (1, 0), partitions=partitions, racks_of=racks_of)
        held = [sum(racks == {rack} for [racks] in partitions.values()) for rack in "abc"]
        assert traffic(after, partitions, racks_of) == 6 - sum(min(2, count) for count in held)
