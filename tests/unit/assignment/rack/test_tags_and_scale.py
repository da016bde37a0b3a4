"""Rack and tag settings, standbys over tags in complete assignors, large groups: with scenario ids."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product

import pytest

from streams_protocol.types import TaskId
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, ClientInput, Decision
from streams_py.assignment.rack import optimiser_for
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError
from tests.support.assignment.racks import STRATEGIES, process_id

BASE = {"application.id": "app", "bootstrap.servers": "broker:9092"}
TRAFFIC, NON_OVERLAP = "rack.aware.assignment.traffic_cost", "rack.aware.assignment.non_overlap_cost"
Tags = Mapping[str, str]


def test_strategies_and_costs_are_read_and_others_refused() -> None:  # H7
    for strategy in ("none", *STRATEGIES):
        read = AssignmentConfigs.of({"rack.aware.assignment.strategy": strategy, TRAFFIC: "10"})
        assert (read.rack_aware_assignment_strategy, read.rack_aware_traffic_cost) == (strategy, 10)
        assert read.rack_aware_non_overlap_cost is None
    with pytest.raises(
        ConfigError, match="'invalid' is not a valid strategy; use one of none, min_traffic, balance_subtopology"
    ):
        AssignmentConfigs.of({"rack.aware.assignment.strategy": "invalid"})


@pytest.mark.parametrize(
    "given",
    [
        {"rack.aware.assignment.tags": "a,b,c,d,e,f", **{f"client.tag.{key}": "x" for key in "abcde"}},
        {"rack.aware.assignment.tags": "zone"},
        {f"client.tag.{'k' * 21}": "x"},
        {"client.tag.zone": "x" * 31},
    ],
    ids=["H8-six", "H8-not-set", "H8-key", "H8-value"],
)
def test_tags_beyond_the_limits_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="tag"):
        StreamsConfig.of({**BASE, **given})


def decide(tags: Mapping[str, Tags], keys: Sequence[str], replicas: int, tasks: Sequence[TaskId]) -> Decision:
    clients = [ClientInput(process_id(name), tags=own, lags=dict.fromkeys(tasks, 0)) for name, own in tags.items()]
    configs = AssignmentConfigs(num_standby_replicas=replicas, rack_aware_assignment_tags=tuple(keys))
    return HighAvailabilityAssignor().decide(AssignmentProblem(clients, tasks, dict.fromkeys(tasks, 0), configs))


def hosts(decision: Decision, task: TaskId) -> list[str]:
    """Return the hosts of a task, the active one first."""
    placed = {f"P{process.low}": place for process, place in decision.placements.items()}
    return [
        *(name for name, place in placed.items() if task in place.active),
        *(name for name, place in placed.items() if task in place.standby),
    ]


TASKS = [TaskId(subtopology, partition) for subtopology in range(2) for partition in range(3)]


def test_standby_has_other_values_of_all_five_tags() -> None:  # H9
    keys = [f"key{number}" for number in range(5)]
    tags = {name: {key: f"{side}-{key}" for key in keys} for name, side in (("P1", 1), ("P2", 1), ("P3", 2))}
    for group in (tags, {name: tags[name] for name in ("P2", "P3")}):
        decision = decide(group, keys, 1, TASKS)
        for task in TASKS:
            active, standby = hosts(decision, task)
            assert all(group[active][key] != group[standby][key] for key in keys)


def test_copies_differ_in_the_key_that_separates_them() -> None:  # H10
    tags = {f"P{n}": {"key0": f"half-{(n - 1) // 3}", "key1": f"half-{(n - 1) // 3}"} for n in range(1, 7)}
    decision = decide(tags, ["key1"], 1, TASKS)
    for task in TASKS:
        active, standby = hosts(decision, task)
        assert tags[active]["key1"] != tags[standby]["key1"]


def test_three_copies_differ_in_both_keys_of_a_grid() -> None:  # H11
    tags = {f"P{3 * a + b + 1}": {"key0": str(a), "key1": str(b)} for a, b in product(range(3), range(3))}
    decision = decide(tags, ["key0", "key1"], 2, [TaskId(0, n) for n in range(9)])
    for number in range(9):
        copies = hosts(decision, TaskId(0, number))
        assert [len({tags[host][key] for host in copies}) for key in ("key0", "key1")] == [3, 3]


def test_three_copies_differ_in_the_longer_key_and_not_all_agree_in_the_shorter_one() -> None:  # H12
    tags = {f"P{3 * a + b + 1}": {"key0": str(a), "key1": str(b)} for a, b in product(range(2), range(3))}
    decision = decide(tags, ["key0", "key1"], 2, TASKS)
    for task in TASKS:
        copies = hosts(decision, task)
        assert [len({tags[host][key] for host in copies}) for key in ("key0", "key1")] == [2, 3]


def large(
    tasks: int, clients: int, racks: int, standbys: int
) -> tuple[list[TaskId], dict[str, str], dict[TaskId, list[frozenset[str]]], list[int], list[list[int]]]:
    """Return tasks, client racks, racks of each task's partitions, owners, and hosts of standbys.

    The standbys are on the clients that follow the owner.
    """
    source = random.Random(tasks * clients)
    names = [f"rack{number}" for number in range(racks)]
    ids = [TaskId(number % 5, number // 5) for number in range(tasks)]
    partitions = {task: [frozenset(source.sample(names, min(2, racks))) for _ in range(2)] for task in ids}
    racks_of = {f"P{number + 1}": names[number % racks] for number in range(clients)}
    owners = [number % clients for number in range(tasks)]
    copies = [[(owner + step + 1) % clients for step in range(standbys)] for owner in owners]
    return sorted(ids), racks_of, partitions, owners, copies


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("tasks", "clients", "racks", "standbys"),
    [
        pytest.param(300, 20, 31, 2, id="H13-300x20"),
        pytest.param(1_000, 1_000, 31, 1, id="H13-1000x1000"),
        pytest.param(6_000, 2, 2, 0, id="H13-6000x2"),
        pytest.param(1_000, 10, 3, 0, id="H13-1000x10"),
        pytest.param(50_000, 1_000, 3, 0, id="H13-50000x1000"),
        pytest.param(50_000, 1_000, 3, 2, id="H13-50000x1000-standbys", marks=pytest.mark.weekly),
        pytest.param(1_000, 100, 31, 50, id="H13-1000x100-standbys", marks=pytest.mark.weekly),
    ],
)
def test_large_groups_are_optimised_and_keep_their_counts(
    strategy: str, tasks: int, clients: int, racks: int, standbys: int
) -> None:
    ids, racks_of, partitions, owners, copies = large(tasks, clients, racks, standbys)
    processes = [process_id(name) for name in racks_of]
    optimiser = optimiser_for(
        active_racks=partitions,
        standby_racks=partitions,
        client_racks=dict(zip(processes, racks_of.values(), strict=True)),
        strategy=strategy,
    )
    actives = optimiser.optimise_active(ids, processes, owners, traffic_cost=10, non_overlap_cost=1)
    assert counts(clients, [[owner] for owner in actives]) == counts(clients, [[owner] for owner in owners])
    if standbys:
        moved = optimiser.optimise_standby(
            ids, processes, owners, copies, traffic_cost=10, non_overlap_cost=1, tags=None
        )
        assert counts(clients, moved) == counts(clients, copies)
        assert all(len(set(found)) == standbys and owner not in found for found, owner in zip(moved, owners))


def counts(clients: int, hosts_of_tasks: Iterable[Collection[int]]) -> list[int]:
    found = [0] * clients
    for some in hosts_of_tasks:
        for client in some:
            found[client] += 1
    return found
