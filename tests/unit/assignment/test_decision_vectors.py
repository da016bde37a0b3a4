"""Every recorded decision of Apache Kafka Streams 4.3.1, and tests that damaged ones are noticed."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.decisions import NotSupportedCaseError, decision_kind, run_decision_case

FOLDER = Path(__file__).parents[2] / "vectors" / "decisions"
CASES = {
    "convergence": 100,
    "fallback": 200,
    "high_availability": 2000,
    "high_availability_large": 20,
    "high_availability_tags": 1000,
    "legacy_sticky": 400,
    "rack_aware": 500,
    "sticky": 1000,
    "utils": 320,
    "validation": 120,
}
NEED_RACKS = {"rack_aware", "utils"}
Case = dict[str, Any]


def cases(kind: str) -> Iterator[Case]:
    packed = FOLDER / f"{kind}.jsonl.gz"
    with gzip.open(packed, "rt") if packed.exists() else packed.with_suffix("").open() as file:
        for line in file:
            yield json.loads(line)


def result_of(kind: str, case: Case) -> str | None:
    try:
        return run_decision_case(kind, case)
    except NotSupportedCaseError:
        assert kind in NEED_RACKS
        return None
    except (KeyError, ValueError, TypeError) as error:  # possible results of a damaged case
        return repr(error)


@pytest.mark.parametrize("kind", CASES)
def test_every_recorded_decision_is_ours(kind: str) -> None:
    count, different = 0, {}
    for case in cases(kind):
        count += 1
        found = result_of(kind, case)
        if found:
            different[case["id"]] = found
    assert different == {}
    assert count == CASES[kind]


@pytest.mark.parametrize("kind", CASES)
def test_kind_is_found_without_the_file_name(kind: str) -> None:
    found = decision_kind("renamed.jsonl", next(cases(kind)))
    assert found == ("high_availability" if kind == "high_availability_large" else kind)


def test_other_files_are_no_decisions() -> None:
    assert decision_kind("subscription_info.jsonl", {"id": "x", "hex": "00"}) is None
    assert decision_kind("decisions.jsonl", {"assignor": "unheard_of", "configs": {}}) is None


# -- damage --------------------------------------------------------------------------------------------------


def first_with_tasks(case: Case) -> dict[str, list[str]]:
    return next(roles for roles in case["result"]["assignment"].values() if roles["active"])


def drop_active(case: Case) -> None:
    first_with_tasks(case)["active"].pop()


def rename_active(case: Case) -> None:
    first_with_tasks(case)["active"][0] = "0_999"


def flip_probing(case: Case) -> None:
    case["result"]["probing"] = not case["result"]["probing"]


def claim_error(case: Case) -> None:
    case["result"]["error"] = "IllegalStateException"


def lag_of_nowhere(case: Case) -> None:
    case["clients"][0]["lags"]["0_999"] = 5


def impossible_lag(case: Case) -> None:
    lags = next(client["lags"] for client in case["clients"] if client["lags"])
    lags[next(iter(lags))] = -7


def swap_clients(case: Case) -> None:
    case["clients"].reverse()


DAMAGE = [drop_active, rename_active, claim_error, lag_of_nowhere, impossible_lag, swap_clients]


@pytest.mark.parametrize("damage", [*DAMAGE, flip_probing], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("kind", ["high_availability", "high_availability_tags", "legacy_sticky", "fallback"])
def test_damaged_decision_is_noticed(kind: str, damage: Callable[[Case], None]) -> None:
    case = next(
        case
        for case in cases(kind)
        if len(case["clients"]) > 1 and any(client["lags"] for client in case["clients"]) and len(case["tasks"]) > 1
    )
    assert result_of(kind, case) is None
    damaged = copy.deepcopy(case)
    damage(damaged)
    assert result_of(kind, damaged) is not None


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("high_availability_tags", ("result", "spread_total")),
        ("sticky", ("result", "properties", "actives_moved")),
        ("sticky", ("result", "properties", "balance")),
        ("sticky", ("result", "properties", "standbys")),
        ("convergence", ("total_rounds",)),
        ("convergence", ("total_active_moves",)),
        ("convergence", ("phases", 0, "rounds", 0, "active_moves")),
        ("rack_aware", ("result", "stages", 0, "cost")),
        ("rack_aware", ("result", "stages", 0, "cost_before")),
        ("rack_aware", ("result", "stages", 0, "traffic_after")),
        ("rack_aware", ("result", "active_traffic")),
        ("rack_aware", ("result", "standby_traffic")),
    ],
)
def test_changed_number_is_noticed(kind: str, path: tuple[str | int, ...]) -> None:
    case = next(case for case in cases(kind) if kind != "rack_aware" or case["result"]["stages"])
    place: Any = case
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] += 1
    assert result_of(kind, case) is not None


def test_wrong_error_name_is_noticed() -> None:
    for case in cases("validation"):
        case["expected"] = "MISSING_PROCESS_ID" if case["expected"] == "NONE" else "NONE"
        assert result_of("validation", case) is not None
