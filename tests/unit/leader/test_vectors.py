"""The leader against what Kafka Streams' leader did, recorded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.leader import run_leader_case, run_threads_case

VECTORS = Path(__file__).parents[2] / "vectors" / "leader"


def cases(name: str) -> list[dict[str, Any]]:
    with gzip.open(VECTORS / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


LEADER = {case["id"]: case for case in cases("leader.jsonl.gz")}


def test_all_recorded_cases_are_there() -> None:
    assert len(LEADER) == 193


@pytest.mark.parametrize("name", LEADER)
def test_assign_step_is_equal_when_recorded_by_kafka(name: str) -> None:
    assert run_leader_case(LEADER[name]) is None


def test_threads_are_equal_when_recorded_by_kafka() -> None:
    recorded = cases("threads.jsonl.gz")
    assert len(recorded) == 300
    assert {case["id"]: run_threads_case(case) for case in recorded if run_threads_case(case)} == {}


def changed(value: Any) -> Any:
    """Another value of the same kind."""
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
    for path in paths[:: max(1, len(paths) // 120)]:  # a spread of them: each run costs a millisecond or two
        case = json.loads(json.dumps(LEADER[name]))
        place = case
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = changed(place[path[-1]])
        try:
            if run_leader_case(case) is None:
                unnoticed.append(path)
        except (ValueError, KeyError, TypeError):
            continue  # not in the format any more
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
