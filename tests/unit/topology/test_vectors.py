"""The recorded topologies, and whether the comparison would detect a change in them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.case import NotSupportedCaseError
from tests.conformance.programs import program_of
from tests.conformance.topology import run_describe_case

VECTORS = Path(__file__).parents[2] / "vectors" / "topology" / "describe.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in VECTORS.read_text("utf-8").splitlines()]


def is_supported(id: str) -> bool:
    try:
        return program_of(id) is not None
    except NotSupportedCaseError:
        return False


SUPPORTED = {case["id"]: case for case in CASES if is_supported(case["id"])}


@pytest.mark.parametrize("id", SUPPORTED)
def test_topology_equals_the_recorded_one(id: str) -> None:
    assert run_describe_case(SUPPORTED[id]) is None


def test_program_is_there_or_says_what_it_lacks() -> None:
    assert len(CASES) == 72
    for case in CASES:
        if case["id"] not in SUPPORTED:
            with pytest.raises(NotSupportedCaseError):
                run_describe_case(case)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return paths of all values that are neither a list nor an object, and of all field names."""
    if isinstance(value, dict):
        for name in value:
            yield (*path, name)
            yield from leaves(value[name], (*path, name))
    elif isinstance(value, list):
        for number, element in enumerate(value):
            yield from leaves(element, (*path, number))
    else:
        yield path


def changed(case: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    """Return the case with another value at ``path``; without it if it is an object or a list."""
    case = copy.deepcopy(case)
    at: Any = case
    for step in path[:-1]:
        at = at[step]
    match at[path[-1]]:
        case str() as text:
            at[path[-1]] = text + "x"
        case int() as number:
            at[path[-1]] = number + 1
        case None:
            at[path[-1]] = 1
        case _:
            del at[path[-1]]
    return case


@pytest.mark.parametrize("id", ["P04", "P10", "P22", "P65", "P72"])
def test_comparison_notices_every_changed_value(id: str) -> None:
    case = SUPPORTED[id]
    paths = [path for path in leaves(case) if path != ("id",)]
    assert len(paths) > 20
    assert [path for path in paths if run_describe_case(changed(case, path)) is None] == []


@pytest.mark.parametrize("id", ["P04", "P06", "P62", "P72"])
def test_comparison_notices_every_changed_word_of_a_description(id: str) -> None:
    case = SUPPORTED[id]
    words = [word for word in case["describe"].split(" ") if word.strip()]
    missed = []
    for word in set(words):
        text = case["describe"].replace(word, f"{word}9", 1)
        if run_describe_case({**case, "describe": text}) is None:
            missed.append(word)
    assert missed == []


def test_comparison_accepts_any_order_after_an_arrow() -> None:
    case = SUPPORTED["P04"]
    text = case["describe"].replace("--> sp-2, sp-a, sp-rest", "--> sp-rest, sp-a, sp-2")
    assert text != case["describe"]
    assert run_describe_case({**case, "describe": text}) is None


def test_comparison_accepts_topics_of_a_source_in_any_order() -> None:
    case = SUPPORTED["P07"]
    text = case["describe"].replace("(topics: [a, b])", "(topics: [b, a])")
    assert text != case["describe"]
    assert run_describe_case({**case, "describe": text}) is None
    assert run_describe_case({**case, "describe": text.replace("[b, a]", "[b, c]")}) is not None


def test_comparison_reports_an_unknown_program() -> None:
    assert run_describe_case({**SUPPORTED["P01"], "id": "P99"}) is not None
    assert run_describe_case({**SUPPORTED["P01"], "id": "P02"}) is not None
