"""The leader compared with recordings of Kafka Streams' leader."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streams_py.cli.groups.leader_cases import Case, RecordedCluster, case_request, case_settings
from streams_py.leader.drive import run_assign
from streams_py.leader.effects import PublishAssignments
from streams_py.leader.leader import GroupLeader
from streams_py.leader.settings import LeaderSettings
from tests.conformance.kafka_racks import kafka_optimiser_for
from tests.conformance.leader import run_leader_case, run_threads_case
from tests.conformance.leader_equivalence import DifferentError, Plan, compare_costs

VECTORS = Path(__file__).parents[2] / "vectors" / "leader"
COMPATIBILITY = Path(__file__).parents[3] / "docs" / "compatibility.md"


def cases(name: str) -> list[dict[str, Any]]:
    with gzip.open(VECTORS / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


LEADER = {case["id"]: case for case in cases("leader.jsonl.gz")}


def test_all_recorded_cases_are_there() -> None:
    assert len(LEADER) == 193


@pytest.mark.parametrize("name", LEADER)
def test_assign_step_is_equal_when_recorded_by_kafka(name: str) -> None:
    assert run_leader_case(LEADER[name]) is None


ON_PURPOSE = {
    "a member that sends garbage": {140, 141, 179, 180},
    "racks as tags": {114, 189, 191},
    "partitions that no task reads": {137, 176},
    "threads keep what they own": {103},
    "joined topics of unequal partition counts": {7, 32, 33, 34, 88, 132, 171},
}


def test_leader_as_shipped_differs_from_kafka_only_on_purpose_and_the_documentation_says_where() -> None:
    different = {name for name, case in LEADER.items() if run_leader_case(case, as_shipped=True) is not None}
    assert different == {f"l1-{n}" for numbers in ON_PURPOSE.values() for n in numbers}
    reasons = ", ".join(f"{reason}: {len(numbers)}" for reason, numbers in ON_PURPOSE.items())
    count = f"{len(LEADER) - len(different)} of the {len(LEADER)} steps"
    page = " ".join(COMPATIBILITY.read_text(encoding="utf-8").split())
    assert f"Equal as shipped: {count}. {len(different)} differ on purpose ({reasons})" in page


def test_threads_are_equal_when_recorded_by_kafka() -> None:
    recorded = cases("threads.jsonl.gz")
    assert len(recorded) == 300
    assert {case["id"]: run_threads_case(case) for case in recorded if run_threads_case(case)} == {}


def changed(value: Any) -> Any:
    """Return another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return ("1" if value[0] == "0" else "0") + value[1:]
        case _:
            return 1


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    if isinstance(value, list):
        return [leaf for i, item in enumerate(value) for leaf in leaves(item, (*path, i))]
    return [path]


@pytest.mark.parametrize("name", ["l1-0", "l1-9", "l1-30", "l1-69", "l1-119", "l1-128"])
def test_leader_case_is_different_when_any_leaf_of_its_result_is_changed(name: str) -> None:
    assert run_leader_case(LEADER[name]) is None
    paths = leaves(LEADER[name]["result"], ("result",))
    unnoticed = []
    for path in paths[:: max(1, len(paths) // 120)]:  # a sample of the paths: each run takes a millisecond or two
        case = json.loads(json.dumps(LEADER[name]))
        place = case
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = changed(place[path[-1]])
        try:
            if run_leader_case(case) is None:
                unnoticed.append(path)
        except (ValueError, KeyError, TypeError):
            continue  # no longer in the format
    assert unnoticed == []


@pytest.mark.parametrize("at", range(0, 200, 7))
def test_leader_case_is_different_when_one_byte_of_the_recorded_assignment_is_changed(at: int) -> None:
    case = json.loads(json.dumps(LEADER["l1-9"]))
    entry = case["result"]["assignments"][0]
    data = bytearray.fromhex(entry["user_data"])
    data[at % len(data)] ^= 1
    entry["user_data"] = data.hex()
    assert run_leader_case(case) is not None


def test_threads_case_is_different_when_two_tasks_trade_places() -> None:
    case = cases("threads.jsonl.gz")[0]
    lists = next(entry["active"] for entry in case["result"].values() if len(entry["active"]) > 1)
    lists[0], lists[1] = lists[1], lists[0]
    assert run_threads_case(case) is not None


def delivered(case: Case, settings: LeaderSettings) -> tuple[Plan, RecordedCluster, dict[str, int]]:
    """Return a leader's plan, the cluster after it, and each member's number of partitions.

    The numbers count only partitions that members receive in this generation.
    """
    plan = Plan(case)
    outcome = run_assign(GroupLeader(settings), case_request(case), plan.carry_out)
    assert isinstance(outcome, PublishAssignments)
    return plan, plan.cluster, {member: len(sent.partitions) for member, sent in outcome.assignments.items()}


def by_rack() -> list[dict[str, Any]]:
    key = "rack.aware.assignment.strategy"
    return [c for c in LEADER.values() if c["config"].get(key, "none") != "none" and "assignments" in c["result"]]


def test_equal_costs_are_equal_although_a_tie_withholds_other_tasks() -> None:
    differently_delivered = 0
    for case in by_rack():
        sources = {topic for sub in case["topology"]["subtopologies"] for topic in sub["source_topics"]}
        inputs = [
            [name, p] for name in sorted(sources & case["topics"].keys()) for p in range(len(case["topics"][name]))
        ]
        for seed in range(12):  # members own random partitions, so tasks that move are withheld
            rng = random.Random(seed)
            moved = json.loads(json.dumps(case))
            for sent in moved["members"]:
                sent["owned"] = []
            for partition in inputs:
                if rng.random() < 0.5:
                    rng.choice(moved["members"])["owned"].append(partition)
            settings = case_settings(moved, kafka_optimiser_for)
            kafkas, _, sent_by_kafka = delivered(moved, settings)
            ours, cluster, sent_by_us = delivered(moved, replace(settings, rack_optimiser=None))
            compare_costs(moved, cluster, ours, kafkas)
            differently_delivered += sent_by_us != sent_by_kafka
    assert differently_delivered > 0


def test_plan_that_reads_more_from_other_racks_is_different() -> None:
    different = 0
    for case in by_rack():
        kafkas, cluster, _ = delivered(case, case_settings(case, kafka_optimiser_for))
        worse = Plan(case)
        worse.facts = kafkas.facts
        clients = sorted(kafkas.placements)
        worse.placements = {  # every client gets the placement of the next one
            client: kafkas.placements[other] for client, other in zip(clients, clients[1:] + clients[:1], strict=True)
        }
        try:
            compare_costs(case, cluster, worse, kafkas)
        except DifferentError:
            different += 1
    assert different > 5
