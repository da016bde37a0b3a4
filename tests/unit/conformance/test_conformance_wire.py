"""The wire checks pass every recorded vector, and notice a change of any byte, task or number in one.

Changed vectors are made from recorded ones, at every place of every case of a sample. A change that leaves a vector
true cannot be noticed; :func:`is_dropped` says which ones do.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.wire import WIRE_KINDS, run_wire_case, wire_kind

Json = Any
VECTORS = Path(__file__).parents[3] / "protocol" / "vectors"
GOOD = ["subscription_info", "assignment_info", "consumer_protocol", "connect"]
BAD = ["subscription_info_bad", "assignment_info_bad", "consumer_protocol_bad", "connect_bad"]
STATEMENTS = {"id", "note", "writer"}  # not checked: they state nothing about bytes


def load(kind: str) -> list[Json]:
    return [json.loads(line) for line in (VECTORS / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()]


def small_sample(cases: list[Json], most: int, size_max: int = 1500) -> list[Json]:
    """Cases from all over the file, none too large to change everywhere."""
    fitting = [case for case in cases if len(json.dumps(case)) <= size_max]
    return fitting[:: max(1, len(fitting) // most)]


def places(value: Json, path: tuple[Json, ...] = ()) -> Iterator[tuple[Json, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            if path or key not in STATEMENTS:
                yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from places(value[index], (*path, index))


def at(case: Json, path: tuple[Json, ...]) -> Json:
    for key in path:
        case = case[key]
    return case


def replaced(case: Json, path: tuple[Json, ...], value: Json) -> Json:
    changed = copy.deepcopy(case)
    at(changed, path[:-1])[path[-1]] = value
    return changed


def flipped(hex_text: str) -> Iterator[str]:
    """One bit changed in each byte."""
    data = bytes.fromhex(hex_text)
    for index in range(len(data)):
        changed = bytearray(data)
        changed[index] ^= 1 << index % 8
        yield changed.hex()


def changes(value: Json, *, is_hex: bool) -> Iterator[Json]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, float(value), str(value))
    elif value is None:
        yield "x"
    elif isinstance(value, str):
        yield value + "00"
        if is_hex:
            yield from flipped(value)
            yield value[:-2] if value else "00"
        elif value:
            yield chr(ord(value[0]) + 1) + value[1:]
    elif isinstance(value, list) and value:
        yield value[1:]
        yield [*value, value[0]]
    elif isinstance(value, dict):
        yield from ({key: value[key] for key in value if key != gone} for gone in value)


def is_dropped(kind: str, case: Json, path: tuple[Json, ...]) -> bool:
    """Whether the version of this case has no place for the changed value, or only for its sign."""
    version = case["version"]
    if kind == "subscription_info":
        if path == ("latest_supported",):
            return version < 3
        since = {"user_end_point": 2, "unique_field": 8, "error_code": 9, "client_tags": 11}
    elif kind == "assignment_info":
        since = {
            "commonly_supported": 3,
            "partitions_by_host": 2,
            "standby_partitions_by_host": 6,
            "error_code": 4,
            "next_rebalance_ms": 7,
        }
    else:
        since = {"owned_partitions": 1, "generation_id": 2, "rack_id": 3} if kind == "consumer_protocol" else {}
    if path[0] != "input" or len(path) < 2:
        return False
    if kind == "subscription_info" and path[1] == "task_offset_sums" and len(path) == 4 and path[3] == 3:
        return version < 7  # only "running" or "not running" travels
    if kind == "consumer_protocol" and path[1] == "generation_id" and case["input"]["generation_id"] < 0:
        return True  # any negative number is "none"
    return version < since.get(path[1], 0)


@pytest.mark.parametrize("kind", WIRE_KINDS)
def test_every_recorded_case_is_equal(kind: str) -> None:
    differences = {case["id"]: reason for case in load(kind) if (reason := run_wire_case(kind, case)) is not None}
    assert differences == {}


@pytest.mark.parametrize("kind", GOOD)
def test_any_change_of_a_good_vector_is_noticed(kind: str) -> None:
    unnoticed, tried = [], 0
    for case in small_sample(load(kind), most=24):
        for path in places(case):
            is_hex = path[-1] in ("hex", "canonical_hex", "user_data")
            for value in changes(at(case, path), is_hex=is_hex):
                tried += 1
                if run_wire_case(kind, replaced(case, path, value)) is None and not is_dropped_change(
                    kind, case, path, value
                ):
                    unnoticed.append((case["id"], path, value))
    assert tried > 2000
    assert unnoticed == []


def is_dropped_change(kind: str, case: Json, path: tuple[Json, ...], value: Json) -> bool:
    """As :func:`is_dropped`; but a value of another type must be noticed even where it does not travel."""
    before = at(case, path)
    return is_dropped(kind, case, path) and (before is None or type(value) is type(before))


@pytest.mark.parametrize("kind", BAD)
def test_any_change_of_what_is_said_about_damaged_bytes_is_noticed(kind: str) -> None:
    unnoticed, tried = [], 0
    cases = load(kind)
    accepted = [case for case in cases if "fields" in case]
    refused = [case for case in cases if case["java"] != "ok"]
    for case in small_sample(accepted, most=20):
        for path in places(case["fields"], ("fields",)):
            for value in changes(at(case, path), is_hex=False):
                tried += 1
                if run_wire_case(kind, replaced(case, path, value)) is None:
                    unnoticed.append((case["id"], path, value))
    opposite = {"ok": "reject", "reject": "ok"}
    for case in cases:
        if "expect" in case:
            tried += 1
            if run_wire_case(kind, {**case, "expect": opposite[case["expect"]]}) is None:
                unnoticed.append((case["id"], ("expect",), opposite[case["expect"]]))
    for case in refused:
        alike = [other for other in accepted if all(other.get(key) == case.get(key) for key in ("kind", "reader"))]
        wrong = [{**case, "java": "ok"}]
        for other in alike[:1]:
            wrong += [{**case, "hex": other["hex"]}, {**other, "hex": case["hex"]}]
        tried += len(wrong)
        unnoticed += [(case["id"], one) for one in wrong if run_wire_case(kind, one) is None]
    assert tried > 150
    assert unnoticed == []


def test_another_class_of_exception_is_noticed_where_the_kind_matters() -> None:
    kinds = {
        "java.nio.BufferUnderflowException",
        "java.lang.RuntimeException",
        "java.lang.IllegalArgumentException",
        "java.lang.IllegalStateException",
    }
    for case in load("subscription_info_bad"):
        below_version_1 = len(case["hex"]) >= 8 and int.from_bytes(bytes.fromhex(case["hex"][:8]), signed=True) < 1
        if case["java"] in kinds and not below_version_1:
            for other in kinds - {case["java"]}:
                assert run_wire_case("subscription_info_bad", {**case, "java": other}) is not None, case["id"]


@pytest.mark.parametrize("case", load("encode_errors"), ids=lambda case: case["id"])
def test_opposite_verdict_about_a_value_is_noticed(case: Json) -> None:
    opposite = "java.lang.IllegalArgumentException" if case["java"] == "ok" else "ok"
    assert run_wire_case("encode_errors", {**case, "java": opposite}) is not None
    assert run_wire_case("encode_errors", {**case, "kind": "connect"}) is not None


@pytest.mark.parametrize(
    ("id", "key", "value"),
    [
        ("e-2", "version", 11),
        ("e-19", "version", 9),
        ("e-4", "latest_supported", 11),
        ("e-26", "host_length", 65536),
        ("e-28", "topology_name_length", 32768),
        ("e-27", "host_length", 65535),
    ],
)
def test_number_that_turns_the_verdict_is_noticed(id: str, key: str, value: int) -> None:
    case = next(case for case in load("encode_errors") if case["id"] == id)
    assert run_wire_case("encode_errors", {**case, "value": {**case["value"], key: value}}) is not None


@pytest.mark.parametrize("kind", WIRE_KINDS)
def test_case_without_a_needed_key_is_a_difference(kind: str) -> None:
    case = load(kind)[0]
    for key in case.keys() - STATEMENTS - {"input", "reader", "expect"}:
        less = {name: case[name] for name in case if name != key}
        assert run_wire_case(kind, less) is not None, key
    assert run_wire_case(kind, {}) is not None


@pytest.mark.parametrize("kind", WIRE_KINDS)
def test_format_is_known_by_file_name_or_by_any_case(kind: str) -> None:
    assert wire_kind(f"some/folder/{kind}.jsonl", {}) == kind
    assert {wire_kind("renamed.jsonl", case) for case in load(kind)} == {kind}


@pytest.mark.parametrize(
    "case",
    [{}, {"hex": ""}, {"hex": "", "fields": {}}, {"value": 1}, {"hex": "", "java": "ok", "kind": "other"}],
    ids=str,
)
def test_foreign_format_is_not_claimed(case: dict[str, object]) -> None:
    assert wire_kind("leader.jsonl", case) is None
