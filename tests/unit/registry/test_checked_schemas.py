"""Schemas of a registry that parse alone and not with their references are the registry's fault, never the record's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry.common import json_schema as common

from streams_py.errors import RegistryUnavailableError
from streams_py.registry import SchemaRegistry
from streams_py.serdes import Serde
from tests.support.registry.stub import RegistryStub, running

RECORD = b"\x00\x00\x00\x00\x07\x02a"
AVRO = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "Other"}]}


def avro(registry: SchemaRegistry) -> Serde[Any]:
    return registry.avro('"string"')


def json_schema(registry: SchemaRegistry) -> Serde[Any]:
    return registry.json_schema('{"type": "string"}')


def reference(subject: str) -> dict[str, Any]:
    return {"name": subject, "subject": subject, "version": 1}


def register(stub: RegistryStub, number: int, subject: str, kind: str, schema: Any, *references: str) -> None:
    stub.schemas[number] = {
        "schemaType": kind, "schema": json.dumps(schema), "references": [reference(name) for name in references]
    }  # fmt: skip
    stub.subjects[subject] = [number]


KINDS = pytest.mark.parametrize(
    ("kind", "make", "schema"), [("AVRO", avro, AVRO), ("JSON", json_schema, {"type": "string"})], ids=["avro", "json"]
)
Make = Callable[[SchemaRegistry], Serde[Any]]


@KINDS
def test_references_in_a_circle_are_an_outage(kind: str, make: Make, schema: Any) -> None:
    with running(RegistryStub()) as stub:
        register(stub, 7, "a", kind, schema, "b")
        register(stub, 8, "b", kind, schema, "a")
        with pytest.raises(RegistryUnavailableError, match="circular references"):
            make(SchemaRegistry(stub.url)).deserializer("t", is_key=False)(RECORD)


@KINDS
def test_references_that_double_at_each_level_take_no_time(kind: str, make: Make, schema: Any) -> None:
    with running(RegistryStub()) as stub:
        register(stub, 7, "s0", kind, schema, "s1", "s1")
        for level in range(1, 40):
            register(stub, 7 + level, f"s{level}", kind, schema, f"s{level + 1}", f"s{level + 1}")
        register(stub, 47, "s40", kind, {"type": "record", "name": "Other", "fields": []})
        with pytest.raises(RegistryUnavailableError, match="more than 1000 references"):
            make(SchemaRegistry(stub.url)).deserializer("t", is_key=False)(RECORD)


@KINDS
def test_reference_that_does_not_exist_is_an_outage(kind: str, make: Make, schema: Any) -> None:
    with running(RegistryStub()) as stub:
        register(stub, 7, "a", kind, schema, "gone")
        with pytest.raises(RegistryUnavailableError, match="a reference does not exist"):
            make(SchemaRegistry(stub.url)).deserializer("t", is_key=False)(RECORD)


def test_schema_that_was_corrected_is_read_at_the_next_attempt() -> None:
    with running(RegistryStub()) as stub:
        register(stub, 7, "a", "AVRO", AVRO, "b")
        register(stub, 8, "b", "AVRO", {"type": "record", "name": "Wrong", "fields": []})
        read = SchemaRegistry(stub.url).avro(json.dumps({**AVRO, "fields": []})).deserializer("t", is_key=False)
        with pytest.raises(RegistryUnavailableError):
            read(RECORD)
        register(stub, 8, "b", "AVRO", {"type": "record", "name": "Other", "fields": []})
        assert read(RECORD) == {}


@pytest.mark.parametrize("is_written", [False, True])
def test_schema_of_the_registry_cannot_make_this_process_request_an_address(
    is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[str] = []
    monkeypatch.setattr(common, "_guard_external_uri", requested.append)
    monkeypatch.setattr(
        "confluent_kafka.schema_registry.common.json_schema.httpx.get", lambda uri, **_: requested.append(uri)
    )
    latest = {"use.latest.version": True, "auto.register.schemas": False}
    with running(RegistryStub()) as stub:
        register(stub, 7, "t-value", "JSON", {"title": "t", "$ref": "https://registry.example/evil.json"})
        registry = SchemaRegistry(stub.url, serializer=latest, deserializer={"use.latest.version": True})
        serde = registry.json_schema('{"title": "t", "type": "string"}')
        write, read = serde.serializer("t", is_key=False), serde.deserializer("t", is_key=False)
        with pytest.raises(RegistryUnavailableError, match="a schema in the registry cannot be used"):
            write("a") if is_written else read(RECORD[:5] + b'"a"')
    assert requested == []
