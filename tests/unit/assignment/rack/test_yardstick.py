"""Kafka's optimiser in the test kit repeats every recorded run; ours has equal costs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams_protocol.types import TaskId
from tests.conformance.decision_cases import client_racks, partitions_of
from tests.conformance.kafka_racks import kafka_optimiser_for
from tests.support.assignment.racks import (
    STRATEGIES,
    Placement,
    cost,
    moves,
    optimise,
    optimise_standbys,
    rack_tags,
    sizes,
    traffic,
)
from tests.support.assignment.yardstick import COSTS, groups

VECTORS = Path(__file__).parents[3] / "vectors" / "decisions" / "rack_aware.jsonl.gz"
EDGES_MAX = 150  # the run time grows with the fourth power of the size


def stages() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    with gzip.open(VECTORS, "rt") as file:
        for line in file:
            case = json.loads(line)
            for stage in case["result"]["stages"]:
                if stage["stage"] == "active" and 0 < len(stage["tasks"]) * len(case["clients"]) <= EDGES_MAX:
                    yield case, stage


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_kafkas_optimiser_decides_as_recorded(strategy: str) -> None:
    count = 0
    for case, stage in stages():
        if case["configs"]["rack_aware_strategy"] != strategy:
            continue
        names = {client: f"P{number}" for number, client in enumerate(stage["before"], 1)}
        racks_of = {names[client]: rack for client, rack in client_racks(case).items() if rack}
        after = optimise(
            {names[client]: own for client, own in stage["before"].items()},
            (stage["traffic_cost"], stage["non_overlap_cost"]),
            strategy,
            partitions={task: [racks for _, racks in tps] for task, tps in partitions_of(case, "inputs").items()},
            racks_of=racks_of,
            factory=kafka_optimiser_for,
        )
        assert after == {names[client]: own for client, own in stage["after"].items()}, case["id"]
        count += 1
    assert count > 200


@given(groups(), COSTS, st.sampled_from(STRATEGIES))
@settings(max_examples=150)
def test_cost_is_kafkas_and_no_more_tasks_move(
    group: tuple[Placement, dict[TaskId, list[frozenset[str]]], dict[str, str]], costs: tuple[int, int], strategy: str
) -> None:
    start, partitions, racks_of = group
    ours = optimise(start, costs, strategy, partitions=partitions, racks_of=racks_of)
    kafkas = optimise(start, costs, strategy, partitions=partitions, racks_of=racks_of, factory=kafka_optimiser_for)
    assert sizes(ours) == sizes(start)
    assert cost(start, ours, costs, partitions, racks_of) == cost(start, kafkas, costs, partitions, racks_of)
    assert moves(start, ours) <= moves(start, kafkas)


@given(groups(), st.integers(1, 3), st.booleans(), st.data())
@settings(max_examples=100)
def test_standbys_cost_no_more_than_kafkas_and_stay_apart(
    group: tuple[Placement, dict[TaskId, list[frozenset[str]]], dict[str, str]],
    replicas: int,
    with_tags: bool,
    data: st.DataObject,
) -> None:
    active, partitions, racks_of = group
    standby: Placement = {client: [] for client in active}
    for task in sorted(partitions):
        others = [client for client in active if str(task) not in active[client]]
        for client in data.draw(st.permutations(others))[:replicas]:
            standby[client].append(str(task))
    tags = rack_tags(active, racks_of) if with_tags else None
    where = {"tags": tags, "partitions": partitions, "racks_of": racks_of}
    ours = optimise_standbys(active, standby, (10, 1), **where)  # type: ignore[arg-type]  # three keywords
    kafkas = optimise_standbys(active, standby, (10, 1), factory=kafka_optimiser_for, **where)  # type: ignore[arg-type]  # as above
    assert sizes(ours) == sizes(standby)
    before, after = traffic(standby, partitions, racks_of), traffic(ours, partitions, racks_of)
    assert after <= min(before, traffic(kafkas, partitions, racks_of))
    for name in map(str, partitions):
        held = [client for placed in (active, ours) for client, own in placed.items() if name in own]
        assert len(held) == len(set(held))
        assert len(held) == sum(name in own for placed in (active, standby) for own in placed.values())
        if with_tags:
            start = {racks_of[c] for placed in (active, standby) for c, own in placed.items() if name in own}
            assert len({racks_of[client] for client in held}) >= len(start)
