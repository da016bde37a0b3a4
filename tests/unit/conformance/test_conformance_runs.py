"""Recorded runs of topologies: ours are equal, and a changed recording is noticed."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.case import NotSupportedCaseError
from tests.conformance.runs import run_topology_run

VECTORS = Path(__file__).parents[2] / "vectors" / "topology" / "runs.jsonl.gz"
SUPPORTED = 345
Case = dict[str, Any]


@cache
def cases() -> list[Case]:
    with gzip.open(VECTORS, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def case(id: str, run: int) -> Case:
    return copy.deepcopy(next(c for c in cases() if c["id"] == id and c["run"] == run))


def test_every_supported_run_is_equal() -> None:
    equal, different = 0, []
    for recorded in cases():
        try:
            difference = run_topology_run(recorded)
        except NotSupportedCaseError:
            continue
        equal += difference is None
        if difference is not None:
            different.append(f"{recorded['id']}/{recorded['run']}: {difference}")
    assert different == []
    assert equal >= SUPPORTED


def flipped(text: str) -> str:
    return f"{int(text[:2], 16) ^ 1:02x}{text[2:]}"


def change_output_value(c: Case) -> None:
    row = next(row for row in c["outputs"] if row["value"])
    row["value"] = flipped(row["value"])


def change_output_key(c: Case) -> None:
    row = next(row for row in c["outputs"] if row["key"])
    row["key"] = flipped(row["key"])


def change_output_timestamp(c: Case) -> None:
    c["outputs"][-1]["timestamp"] += 1


def change_output_step(c: Case) -> None:
    c["outputs"][-1]["step"] -= 1


def change_output_topic(c: Case) -> None:
    c["outputs"][0]["topic"] += "x"


def change_output_headers(c: Case) -> None:
    c["outputs"][0]["headers"].append(["x", None])


def swap_outputs(c: Case) -> None:
    c["outputs"][0], c["outputs"][1] = c["outputs"][1], c["outputs"][0]


def drop_output(c: Case) -> None:
    c["outputs"].pop()


def change_changelog(c: Case) -> None:
    rows = next(iter(c["changelogs"].values()))
    rows[0]["timestamp"] += 1


def drop_changelog(c: Case) -> None:
    c["changelogs"].popitem()


def change_store(c: Case) -> None:
    rows = next(iter(c["stores"].values()))
    rows[0][-1] += 1


def drop_store_row(c: Case) -> None:
    next(iter(c["stores"].values())).pop()


def rename_store(c: Case) -> None:
    name, rows = c["stores"].popitem()
    c["stores"][name + "x"] = rows


def change_input(c: Case) -> None:
    row = next(row for row in c["inputs"] if row.get("key") and row.get("value"))
    row["value"] = flipped(row["value"])


def change_ties(c: Case) -> None:
    c["ties"] += 1


def change_throttle(c: Case) -> None:
    c["config"]["emit_interval_ms"] += 1


def change_clock(c: Case) -> None:
    c["config"]["wall_clock_ms"] += 1


def change_cache(c: Case) -> None:
    c["config"]["statestore.cache.max.bytes"] += 1


def change_optimization(c: Case) -> None:
    c["config"]["topology.optimization"] = "all"


def change_run(c: Case) -> None:
    c["run"] += 5


def change_partition(c: Case) -> None:
    c["inputs"][0]["partition"] = 1


def change_disk_differs(c: Case) -> None:
    c["disk_differs"] = ["the weather"]


def add_field(c: Case) -> None:
    c["extra"] = 1


def add_empty_changelog(c: Case) -> None:
    c["changelogs"]["app-none-changelog"] = []


def change_kind_of_number(c: Case) -> None:
    c["outputs"][0]["step"] = float(c["outputs"][0]["step"])


def change_kind_of_setting(c: Case) -> None:
    c["config"]["commit_every"] = c["config"]["commit_every"] == 1 or 5.0


def change_run_of_equal_settings(c: Case) -> None:
    c["run"] = {2: 0, 4: 3}[c["run"]]


@pytest.mark.parametrize(
    "change",
    [
        change_output_value,
        change_output_key,
        change_output_timestamp,
        change_output_step,
        change_output_topic,
        change_output_headers,
        swap_outputs,
        drop_output,
        change_changelog,
        drop_changelog,
        change_store,
        drop_store_row,
        rename_store,
        change_input,
        change_ties,
        change_throttle,
        change_clock,
        change_cache,
        change_optimization,
        change_run,
        change_partition,
        change_disk_differs,
        add_field,
        add_empty_changelog,
        change_kind_of_number,
        change_kind_of_setting,
        change_run_of_equal_settings,
    ],
)
@pytest.mark.parametrize("run", [2, 4])
def test_changed_recording_is_noticed(change: Callable[[Case], None], run: int) -> None:
    changed = case("P15", run)
    assert run_topology_run(changed) is None
    change(changed)
    assert run_topology_run(changed) is not None


@pytest.mark.parametrize("differs", [["the weather"], ["stores", "stores"]])
def test_unknown_effect_of_the_medium_is_noticed_also_where_windows_expire(differs: list[str]) -> None:
    changed = case("P45", 0)
    assert run_topology_run({**changed, "disk_differs": ["outputs"]}) is None
    assert run_topology_run({**changed, "disk_differs": differs}) is not None


def test_order_is_free_only_among_the_keys_that_a_suppressed_table_writes_at_one_commit() -> None:
    changed = case("P40", 4)
    buffers = [topic for topic in changed["changelogs"] if "lim" in topic]
    rows = changed["changelogs"][buffers[0]]
    pairs = [(i, i + 1) for i in range(len(rows) - 1)]
    same, other = (
        next((i, j) for i, j in pairs if (rows[i]["step"] == rows[j]["step"]) is is_same) for is_same in (True, False)
    )
    for (i, j), is_free in ((same, True), (other, False)):
        swapped = copy.deepcopy(changed)
        of = swapped["changelogs"][buffers[0]]
        of[i], of[j] = of[j], of[i]
        assert (run_topology_run(swapped) is None) is is_free
