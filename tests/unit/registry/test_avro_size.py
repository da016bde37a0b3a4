"""Avro schemas from the registry are limited in size, and the decoder does not parse them again per record."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

pytest.importorskip("fastavro")

from fastavro import parse_schema

from streams_py.errors import RegistryUnavailableError
from streams_py.registry.avro_size import (
    NAMED_TYPES_MAX,
    NESTING_MAX,
    NESTING_SUM_MAX,
    VALUES_MAX,
    SchemaSizeError,
    check_size,
)
from tests.support.registry.stub import RegistryStub, running

decoder: Any = importlib.import_module("confluent_kafka.schema_registry._sync.avro")
OWN = {"type": "record", "name": "a0", "fields": []}


def records(count: int) -> list[dict[str, Any]]:
    return [{"type": "record", "name": f"a{number}", "fields": []} for number in range(count)]


def record_of(*types: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{at}", "type": each} for at, each in enumerate(types)],
    }


def nested(levels: int) -> Any:
    schema: Any = "int"
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def registered(stub: RegistryStub, schema: Any, **more: Any) -> bytes:
    return b"\x00" + stub.add({"schema": json.dumps(schema), **more}, "t-value").to_bytes(4, "big")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (records(NAMED_TYPES_MAX + 1), "a union of more than"),
        (["int"] * (NAMED_TYPES_MAX + 1), "a union of more than"),
        (record_of(*records(NAMED_TYPES_MAX)), "named types"),
        (record_of(*["int"] * (VALUES_MAX // 3)), "values"),
        ({"type": "enum", "name": "E", "symbols": [f"s{at}" for at in range(VALUES_MAX)]}, "values"),
        ({"type": "string", "other": [0] * VALUES_MAX}, "values"),
        (nested(NESTING_MAX), "nested too deeply"),
        ({"type": "string", "doc": "x" * (2 << 20)}, "longer than"),
    ],
    ids=["union", "branches", "types", "fields", "symbols", "other members", "nesting", "text"],
)
def test_large_schema_of_a_writer_is_an_outage(schema: Any, said: str) -> None:
    with running(RegistryStub()) as stub:
        read = stub.registry().avro(json.dumps(OWN)).deserializer("t", is_key=False)
        with pytest.raises(RegistryUnavailableError, match=said):
            read(registered(stub, schema) + b"\x00")


def test_references_count_together() -> None:
    half = json.dumps(record_of(*records(NAMED_TYPES_MAX // 2)))
    check_size([half])
    with pytest.raises(SchemaSizeError, match="named types"):
        check_size([half, half])
    deep = json.dumps(nested(NESTING_MAX - 1))
    check_size([deep] * (NESTING_SUM_MAX // NESTING_MAX))
    with pytest.raises(SchemaSizeError, match="nested"):
        check_size([deep] * (NESTING_SUM_MAX // NESTING_MAX + 1))
    wide = json.dumps({"type": "string", "other": [0] * (VALUES_MAX // 2)})
    check_size([wide, *['"int"'] * 100])
    with pytest.raises(SchemaSizeError, match="too many references"):
        check_size([wide, *['"int"'] * 999])


def test_own_schema_may_be_large() -> None:
    schema = records(NAMED_TYPES_MAX + 1)
    with running(RegistryStub()) as stub:
        read = stub.registry().avro(json.dumps(schema)).deserializer("t", is_key=False)
        assert read(registered(stub, schema) + b"\x00") == {}


@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize(
    ("schema", "names"),
    [
        (records(100), 100),
        ({"type": "array", "items": record_of(*records(50), "a3")}, 51),
        ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, 1),
        (["null", {"type": "map", "values": records(2)[1]}, "a1", *records(1)], 2),
    ],
    ids=["union", "array", "enum", "mixed"],
)
def test_schemas_are_not_parsed_again_for_a_record(
    schema: Any, names: int, is_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []
    original = decoder.schemaless_reader

    def noted(data: Any, *schemas: Any) -> Any:
        used.extend(schemas[:2] if is_own else schemas[:1])
        return original(data, *schemas)

    monkeypatch.setattr(decoder, "schemaless_reader", noted)
    with running(RegistryStub()) as stub:
        own = schema if is_own else "null"
        read = stub.registry().avro(json.dumps(own)).deserializer("t", is_key=False)
        try:
            read(registered(stub, schema) + b"\x00")
        except ValueError:
            assert not is_own
    assert len(used) == (2 if is_own else 1)
    for each in used:
        again = parse_schema(each)
        branches = list(zip(again, each, strict=True)) if isinstance(each, list) else [(again, each)]
        assert all(new is old for new, old in branches)
        assert sum(len(old["__named_schemas"]) for _, old in branches if isinstance(old, dict)) == names


def test_types_within_types_do_not_make_errors_longer() -> None:
    """The decoder's error shows the schema. Without the limit, it would show each type once per type around it."""
    schema: Any = "null"
    for level in range(100):
        schema = {"type": "record", "name": f"level{level}", "fields": [{"name": "f", "type": schema}]}
    with running(RegistryStub()) as stub:
        read = stub.registry().avro(json.dumps(OWN)).deserializer("t", is_key=False)
        with pytest.raises(ValueError, match="SchemaResolutionError") as caught:
            read(registered(stub, schema) + b"\x00")
    shown: BaseException | None = caught.value
    lengths = []
    while shown is not None:
        lengths.append(len(str(shown)))
        shown = shown.__context__
    assert max(lengths) < 3 * len(json.dumps(schema))
