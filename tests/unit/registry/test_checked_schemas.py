"""Schemas of a registry that parse alone and not with their references are the registry's fault, never the record's."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry.common import json_schema as common
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.serde import RuleExecutor
from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.wrappers_pb2 import StringValue  # type: ignore[import-untyped]

from streams_py.errors import RegistryUnavailableError
from streams_py.registry import SchemaRegistry, checked_schemas
from streams_py.serdes import Serde
from streams_py.serdes.round_trips import UnfitError
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
            make(stub.registry()).deserializer("t", is_key=False)(RECORD)


@KINDS
def test_references_that_double_at_each_level_take_no_time(kind: str, make: Make, schema: Any) -> None:
    with running(RegistryStub()) as stub:
        register(stub, 7, "s0", kind, schema, "s1", "s1")
        for level in range(1, 40):
            register(stub, 7 + level, f"s{level}", kind, schema, f"s{level + 1}", f"s{level + 1}")
        register(stub, 47, "s40", kind, {"type": "record", "name": "Other", "fields": []})
        with pytest.raises(RegistryUnavailableError, match="more than 1000 references"):
            make(stub.registry()).deserializer("t", is_key=False)(RECORD)


@KINDS
def test_reference_that_does_not_exist_is_an_outage(kind: str, make: Make, schema: Any) -> None:
    with running(RegistryStub()) as stub:
        register(stub, 7, "a", kind, schema, "gone")
        with pytest.raises(RegistryUnavailableError, match="a reference does not exist"):
            make(stub.registry()).deserializer("t", is_key=False)(RECORD)


def test_schema_that_was_corrected_is_read_at_the_next_attempt() -> None:
    with running(RegistryStub()) as stub:
        register(stub, 7, "a", "AVRO", AVRO, "b")
        register(stub, 8, "b", "AVRO", {"type": "record", "name": "Wrong", "fields": []})
        read = stub.registry().avro(json.dumps({**AVRO, "fields": []})).deserializer("t", is_key=False)
        with pytest.raises(RegistryUnavailableError):
            read(RECORD)
        register(stub, 8, "b", "AVRO", {"type": "record", "name": "Other", "fields": []})
        assert read(RECORD) == {}


@pytest.mark.parametrize("is_written", [False, True])
def test_schema_of_the_registry_cannot_make_this_process_request_an_address(
    is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[str] = []
    monkeypatch.setattr(common, "_guard_external_uri", requested.append)  # the library calls it before a request
    monkeypatch.setattr(
        "confluent_kafka.schema_registry.common.json_schema.httpx.get", lambda uri, **_: requested.append(uri)
    )
    latest = {"use.latest.version": True, "auto.register.schemas": False}
    with running(RegistryStub()) as stub:
        register(stub, 7, "t-value", "JSON", {"title": "t", "$ref": "https://registry.example/evil.json"})
        registry = stub.registry(serializer=latest, deserializer={"use.latest.version": True})
        serde = registry.json_schema('{"title": "t", "type": "string"}')
        write, read = serde.serializer("t", is_key=False), serde.deserializer("t", is_key=False)
        with pytest.raises(RegistryUnavailableError, match="a schema in the registry cannot be used"):
            write("a") if is_written else read(RECORD[:5] + b'"a"')
    assert requested == []


def file_of(name: str) -> str:
    return base64.b64encode(FileDescriptorProto(name=name, package=name).SerializeToString()).decode()


def with_references(stub: RegistryStub, count: int, *, fields: int = 1) -> bytes:
    """Register a schema that refers to files, and return a record of it."""
    for number in range(count):
        stub.add({"schemaType": "PROTOBUF", "schema": file_of(f"f{number}")}, f"f{number}")
    main = FileDescriptorProto(name="default", package="google.protobuf2")
    main.message_type.add(name="StringValue")
    text = base64.b64encode(main.SerializeToString()).decode()
    references = [reference(f"f{number}") for number in range(count)] * fields
    number = stub.add({"schemaType": "PROTOBUF", "schema": text, "references": references}, "t-value")
    return b"\x00" + number.to_bytes(4, "big") + b"\x00"


def test_protobuf_references_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_schemas, "_REFERENCES_MAX", 20)
    with running(RegistryStub()) as stub:
        record = with_references(stub, 21)
        with pytest.raises(RegistryUnavailableError, match="more than 20 references"):
            stub.registry().protobuf(StringValue).deserializer("t", is_key=False)(record)
        assert len(stub.requests) <= 22


def test_protobuf_references_within_the_limit_are_requested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_schemas, "_REFERENCES_MAX", 20)
    with running(RegistryStub()) as stub:
        record = with_references(stub, 20, fields=3)
        with pytest.raises(UnfitError, match=r"is a google\.protobuf2\.StringValue"):
            stub.registry().protobuf(StringValue).deserializer("t", is_key=False)(record)
        assert len(stub.requests) == 21


def test_protobuf_reference_that_does_not_exist_is_an_outage() -> None:
    with running(RegistryStub()) as stub:
        number = stub.add(
            {"schemaType": "PROTOBUF", "schema": file_of("a"), "references": [reference("no")]}, "t-value"
        )
        with pytest.raises(RegistryUnavailableError, match="a reference does not exist"):
            stub.registry().protobuf(StringValue).deserializer("t", is_key=False)(
                b"\x00" + number.to_bytes(4, "big") + b"\x00"
            )


RULE: dict[str, Any] = {
    "name": "x", "kind": "TRANSFORM", "mode": "READ", "type": "NOPE", "tags": ["PII"], "params": {"a": "b"}
}  # fmt: skip


@pytest.mark.parametrize("phase", ["encodingRules", "domainRules"])
@KINDS
def test_rule_without_an_executor_is_no_fault_of_the_record(kind: str, make: Make, schema: Any, phase: str) -> None:
    with running(RegistryStub()) as stub:
        register(stub, 7, "t-value", kind, {"type": "string", "title": "t"})
        stub.schemas[7]["ruleSet"] = {phase: [RULE]}
        latest = {"use.latest.version": True}
        read = make(stub.registry(deserializer=latest)).deserializer("t", is_key=False)
        with pytest.raises(RegistryUnavailableError, match="a rule whose type has no executor here"):
            read(RECORD if kind == "AVRO" else RECORD[:5] + b'"a"')


@pytest.mark.parametrize("action", ["onFailure", "onSuccess"])
@KINDS
def test_rule_with_an_unknown_action_is_no_fault_of_the_record(
    kind: str, make: Make, schema: Any, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(RegistryStub()) as stub:
        register(stub, 7, "t-value", kind, {"type": "string", "title": "t"})
        executor = "NOPE" if action == "onFailure" else "PASS"
        rule = {**RULE, "type": executor, action: "NO_ACTION"}
        stub.schemas[7]["ruleSet"] = {"domainRules": [rule]}
        # nothing public unregisters it after the test
        monkeypatch.setitem(RuleRegistry.get_global_instance()._rule_executors, "PASS", Passing())
        latest = {"use.latest.version": True}
        read = make(stub.registry(deserializer=latest)).deserializer("t", is_key=False)
        with pytest.raises(RegistryUnavailableError, match="a rule whose action does not exist here"):
            read(RECORD if kind == "AVRO" else RECORD[:5] + b'"a"')


class Passing(RuleExecutor):
    """An executor that changes nothing."""

    def type(self) -> str:
        return "PASS"

    def transform(self, ctx: Any, message: Any) -> Any:
        return message


@KINDS
def test_references_are_limited_in_length(kind: str, make: Make, schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_schemas, "_TEXT_MAX", 1_000)
    with running(RegistryStub()) as stub:
        register(stub, 7, "t-value", kind, schema, "a")
        register(stub, 8, "a", kind, {"type": "record", "name": "Other", "fields": [], "doc": "x" * 1_000})
        with pytest.raises(RegistryUnavailableError, match="longer than 1000 characters with its references"):
            make(stub.registry()).deserializer("t", is_key=False)(RECORD)


@KINDS
def test_rules_that_are_not_executed_and_metadata_are_accepted(kind: str, make: Make, schema: Any) -> None:
    rules = [{**RULE, "disabled": True}, {**RULE, "mode": "WRITE"}, {**RULE, "onFailure": "NONE"}]
    metadata = {"tags": {"a": ["PII"]}, "properties": {"owner": "me"}, "sensitive": ["owner"]}
    with running(RegistryStub()) as stub:
        register(stub, 7, "t-value", kind, {"type": "string", "title": "t"})
        stub.schemas[7] |= {"ruleSet": {"encodingRules": rules, "migrationRules": None}, "metadata": metadata}
        read = make(stub.registry()).deserializer("t", is_key=False)
        assert read(RECORD if kind == "AVRO" else RECORD[:5] + b'"a"') == "a"
