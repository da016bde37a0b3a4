"""Writers choose the schema ids in records, so caches of schemas must not grow with them."""

from __future__ import annotations

import base64
import gc
import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("fastavro")

from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.common.schema_registry_client import (
    RegisteredSchema,
    _SchemaCache,  # BoundedClientCache must do what it does, and it has no public name
)
from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]

from streams_py.registry import SchemaRegistry, caches
from streams_py.registry.caches import BoundedClientCache, SchemaCache
from tests.support.registry import messages
from tests.support.registry.stub import RegistryStub, running

ENTRIES = 10


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "ENTRIES_MAX", ENTRIES)


def avro_schema(number: int) -> dict[str, Any]:
    return {"schemaType": "AVRO", "schema": json.dumps({"type": "string", "doc": f"of {number}"})}


def json_schema(number: int) -> dict[str, Any]:
    return {"schemaType": "JSON", "schema": json.dumps({"type": "string", "description": f"of {number}"})}


def protobuf_schema(number: int) -> dict[str, Any]:
    file = FileDescriptorProto()
    messages.Order.DESCRIPTOR.file.CopyToProto(file)
    file.options.java_package = f"of{number}"
    return {"schemaType": "PROTOBUF", "schema": base64.b64encode(file.SerializeToString()).decode()}


INDEX = list(messages.Order.DESCRIPTOR.file.message_types_by_name).index("Order")
FORMATS: dict[str, tuple[Callable[[int], dict[str, Any]], Callable[[SchemaRegistry], Any], bytes]] = {
    "avro": (avro_schema, lambda registry: registry.avro('"string"'), b"\x02a"),
    "json": (json_schema, lambda registry: registry.json_schema('{"type": "string"}'), b'"a"'),
    "protobuf": (protobuf_schema, lambda registry: registry.protobuf(messages.Order), bytes((2, INDEX * 2))),
}


def in_memory(texts: set[str]) -> int:
    gc.collect()
    return sum(isinstance(found, Schema) and found.schema_str in texts for found in gc.get_objects())


@pytest.mark.parametrize("format", FORMATS)
def test_schemas_of_a_writer_do_not_stay_in_memory(format: str) -> None:
    schema_of, serde_of, data = FORMATS[format]
    texts: set[str] = set()
    with running(RegistryStub()) as stub:
        registry = stub.registry()
        read = serde_of(registry).deserializer("t", is_key=False)
        for number in range(8 * ENTRIES):
            schema = schema_of(number)
            texts.add(schema["schema"])
            schema_id = stub.add(schema, "t-value")
            assert read(b"\x00" + schema_id.to_bytes(4, "big") + data) is not None
    assert 0 < in_memory(texts) < 4 * ENTRIES


def test_schema_that_is_in_use_stays() -> None:
    """Schemas that were not used for the longest time are removed first."""
    with running(RegistryStub()) as stub:
        read = stub.registry().avro('"string"').deserializer("t", is_key=False)
        ids = [stub.add(avro_schema(number), "t-value") for number in range(4 * ENTRIES)]
        for schema_id in ids:
            assert read(b"\x00" + schema_id.to_bytes(4, "big") + b"\x02a") == "a"
            assert read(b"\x00" + ids[0].to_bytes(4, "big") + b"\x02b") == "b"
        asked = [path for _, path in stub.requests]
    assert len(asked) == len(set(asked)) == len(ids)


def test_schema_that_was_removed_is_requested_again() -> None:
    with running(RegistryStub()) as stub:
        read = stub.registry().avro('"string"').deserializer("t", is_key=False)
        ids = [stub.add(avro_schema(number), "t-value") for number in range(2 * ENTRIES)]
        for schema_id in [*ids, ids[0]]:
            assert read(b"\x00" + schema_id.to_bytes(4, "big") + b"\x02a") == "a"


def cache(size: int = 1) -> SchemaCache:
    return SchemaCache(lambda _key, _value: size)


def test_entry_that_was_not_used_for_the_longest_time_is_removed() -> None:
    entries = cache()
    for number in range(ENTRIES):
        entries[number] = number
    assert entries.get(0) == 0
    entries[ENTRIES] = ENTRIES
    assert (entries.get(0), entries.get(1), len(entries)) == (0, None, ENTRIES)


def test_texts_of_all_schemas_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "TEXT_CHARS_MAX", 100)
    entries = SchemaCache(lambda key, _value: len(key))
    for letter in "abcd":
        entries[letter * 30] = letter
    assert [value for _, value in entries.items()] == ["b", "c", "d"]
    entries["e" * 1000] = "e"
    assert [value for _, value in entries.items()] == ["e"]
    entries["f"] = "f"
    entries["f"] = "g"
    assert [value for _, value in entries.items()] == ["g"]
    for letter in "hij":
        entries[letter * 33] = letter
    assert [value for _, value in entries.items()] == ["g", "h", "i", "j"]
    entries.clear()
    entries["k" * 100] = "k"
    assert len(entries) == 1


def test_parsed_schemas_count_with_their_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "PARSED_CHARS_MAX", 100)
    entries = SchemaCache(lambda key, _value: len(key), is_parsed=True)
    for letter in "abc":
        entries[letter * 20] = letter
    entries.resize("c" * 20, 60)
    assert [value for _, value in entries.items()] == ["a", "b", "c"]
    entries["c" * 20] = "d"  # with the same references
    entries.resize("b" * 20, 21)
    assert [value for _, value in entries.items()] == ["b", "d"]
    entries.resize("no", 1000)
    assert (entries.pop("c" * 20), entries.pop("no")) == ("d", None)
    entries["e" * 79] = "e"
    assert [value for _, value in entries.items()] == ["b", "e"]


def parsed_caches() -> list[SchemaCache]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, SchemaCache) and each.is_parsed]


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_references_of_a_schema_leave_no_room_for_others(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "PARSED_CHARS_MAX", 10_000)
    before = parsed_caches()
    schema_of, serde_of, data = FORMATS[kind]
    with running(RegistryStub()) as stub:
        text = json.dumps({"type": "fixed", "name": "F", "size": 1, "doc": "x" * 4_000})
        stub.add({"schemaType": schema_of(0)["schemaType"], "schema": text}, "F")
        read = serde_of(stub.registry()).deserializer("t", is_key=False)
        for number in range(5):
            references = [{"name": "F", "subject": "F", "version": 1}]
            schema_id = stub.add({**schema_of(number), "references": references}, "t-value")
            assert read(b"\x00" + schema_id.to_bytes(4, "big") + data) == "a"
    new = [each for each in parsed_caches() if not any(each is other for other in before)]
    assert max(map(len, new)) == 2
    assert read is not None


def test_nothing_is_removed_while_it_must_be_kept() -> None:
    entries = cache()
    with entries.keep():
        with entries.keep():
            for number in range(3 * ENTRIES):
                entries[number] = number
        assert len(entries) == 3 * ENTRIES
    assert [key for key, _ in entries.items()] == list(range(2 * ENTRIES, 3 * ENTRIES))


def test_cache_of_the_client_replaces_all_methods_of_the_original() -> None:
    assert {name for name in vars(_SchemaCache) if not name.startswith("__")} <= vars(BoundedClientCache).keys()


def test_cache_of_the_client_answers_like_the_original() -> None:
    original: Any = _SchemaCache()  # type: ignore[no-untyped-call]
    bounded: Any = BoundedClientCache()
    schema = Schema('"string"', "AVRO")
    registered = RegisteredSchema(schema_id=7, guid="guid", subject="s", version=3, schema=schema)
    for found in (original, bounded):
        found.set_schema("s", 7, "guid", schema)
        found.set_registered_schema(schema, registered)
    asks: list[Callable[[Any], Any]] = [
        lambda found: found.get_schema_by_id("s", 7),
        lambda found: found.get_schema_by_id("t", 7),
        lambda found: found.get_schema_by_guid("guid"),
        lambda found: found.get_schema_by_guid("other"),
        lambda found: found.get_id_by_schema("s", schema),
        lambda found: found.get_registered_by_subject_schema("s", schema),
        lambda found: found.get_registered_by_subject_id("s", 7),
        lambda found: found.get_registered_by_subject_version("s", 3),
        lambda found: found.get_registered_by_subject_version("s", 4),
        lambda found: found.schema_index,
    ]
    for ask in asks:
        assert ask(original) == ask(bounded)
    bounded.remove_by_subject_version("s", 3)
    assert [ask(bounded) for ask in asks] == [None] * 9 + [{}]
