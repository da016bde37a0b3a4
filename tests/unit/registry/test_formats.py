"""The bytes of serdes with a registry, against the wire format that Confluent's serializers for Java write and read.

Recorded bytes are written out by hand from its description: magic byte, schema id, message indexes as zigzag varints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from streams_py.errors import ConfigError, RegistryUnavailableError
from streams_py.registry import SchemaRegistry
from streams_py.serdes import Serde

pytest.importorskip("fastavro")

from tests.support.registry import messages
from tests.support.registry.stub import RegistryStub, running

FIRST_ID = 0x01020304
HEAD = b"\x00\x01\x02\x03\x04"

ORDER_AVRO = json.dumps({
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [{"name": "id", "type": "int"}, {"name": "item", "type": "string"}],
})  # fmt: skip


@dataclass
class Order:
    id: int
    item: str


class Visit(BaseModel):
    at: datetime
    page: str | None = None


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    with running(RegistryStub(first_id=FIRST_ID)) as stub:
        yield stub


@pytest.fixture
def registry(stub: RegistryStub) -> SchemaRegistry:
    return stub.registry()


def encode(serde: Serde[Any], value: Any, topic: str = "orders", *, is_key: bool = False) -> bytes:
    return serde.serializer(topic, is_key=is_key)(value)


def decode(serde: Serde[Any], data: bytes, topic: str = "orders") -> Any:
    return serde.deserializer(topic, is_key=False)(data)


def serdes_of(registry: SchemaRegistry) -> dict[str, tuple[Serde[Any], Any, bytes]]:
    """Name -> serde, value, its bytes."""
    return {
        "avro": (registry.avro(ORDER_AVRO), {"id": -1, "item": "tea"}, HEAD + b"\x01\x06tea"),
        "avro, dataclass": (registry.avro(ORDER_AVRO, Order), Order(-1, "tea"), HEAD + b"\x01\x06tea"),
        "avro, string": (registry.avro('"string"'), "tea", HEAD + b"\x06tea"),
        "protobuf, first message": (
            registry.protobuf(messages.Order),
            messages.Order(id=1, item="tea"),
            HEAD + b"\x00" + b"\x08\x01\x12\x03tea",
        ),
        "protobuf, second within the second": (
            registry.protobuf(messages.Line),
            messages.Line(amount=7),
            HEAD + b"\x04\x02\x02" + b"\x08\x07",
        ),
        "json schema, dataclass": (registry.json_schema(Order), Order(1, "tea"), HEAD + b'{"id":1,"item":"tea"}'),
        "json schema, text": (registry.json_schema('{"type":"object"}'), {"id": 1}, HEAD + b'{"id":1}'),
    }


NAMES = sorted(serdes_of(SchemaRegistry("http://127.0.0.1:1")))


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_those_of_the_wire_format_both_ways(name: str, registry: SchemaRegistry) -> None:
    serde, value, data = serdes_of(registry)[name]
    assert encode(serde, value) == data
    assert decode(serde, data) == value


@pytest.mark.parametrize("name", NAMES)
def test_schema_is_registered_once_per_subject_and_asked_for_once(
    name: str, registry: SchemaRegistry, stub: RegistryStub
) -> None:
    serde, value, data = serdes_of(registry)[name]
    write, read = serde.serializer("orders", is_key=False), serde.deserializer("orders", is_key=False)
    for _ in range(3):
        assert write(value) == data
        assert read(data) == value
    methods = [method for method, _ in stub.requests]
    assert methods.count("POST") == 1
    assert methods.count("GET") <= 1
    assert stub.subjects == {"orders-value": [FIRST_ID]}


def test_subjects_are_named_after_topic_and_part(registry: SchemaRegistry, stub: RegistryStub) -> None:
    serde = registry.avro('"string"')
    encode(serde, "a", "orders", is_key=True)
    encode(serde, "a", "orders")
    encode(serde, "a", "app-counts-changelog")
    assert list(stub.subjects) == ["orders-key", "orders-value", "app-counts-changelog-value"]


def test_naming_of_subjects_can_be_chosen(stub: RegistryStub) -> None:
    registry = stub.registry(serializer={"subject.name.strategy.type": "RECORD"})
    encode(registry.avro(ORDER_AVRO), {"id": 1, "item": "x"})
    assert list(stub.subjects) == ["shop.Order"]


def test_schema_is_only_looked_up_when_registering_is_off(stub: RegistryStub) -> None:
    registry = stub.registry(serializer={"auto.register.schemas": False})
    serde, order = registry.avro(ORDER_AVRO), {"id": 1, "item": "a"}
    with pytest.raises(ValueError, match=r"the schema registry responded: Schema not found \(error code 40403\)"):
        encode(serde, order)
    stub.add({"schemaType": "AVRO", "schema": ORDER_AVRO}, "orders-value")
    assert encode(serde, order) == HEAD + b"\x02\x02a"


def test_avro_of_another_version_is_read_into_the_schema_given(registry: SchemaRegistry, stub: RegistryStub) -> None:
    old = {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "int"}]}
    new = {**old, "fields": [*old["fields"], {"name": "item", "type": "string", "default": "unknown"}]}  # type: ignore[misc]
    stub.add({"schemaType": "AVRO", "schema": json.dumps(old)}, "orders-value")
    assert decode(registry.avro(json.dumps(new), Order), HEAD + b"\x02") == Order(1, "unknown")


WRITTEN = {"type": "record", "name": "E", "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}]}
COLOR = {"type": "enum", "name": "C", "symbols": ["RED", "secret"]}


def fields(*given: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "E", "fields": list(given)})


@pytest.mark.parametrize(
    ("written", "value", "reader", "read"),
    [
        (WRITTEN, {"id": 5, "gone": "x"}, fields({"name": "key", "type": "long", "aliases": ["id"]}), {"key": 5}),
        (WRITTEN, {"id": 5, "gone": "x"}, fields({"name": "id", "type": ["null", "double"]}), {"id": 5.0}),
        (COLOR, "secret", json.dumps({**COLOR, "symbols": ["RED"], "default": "RED"}), "RED"),
    ],
)
def test_avro_resolves_what_was_written_with_another_schema(
    written: dict[str, Any], value: Any, reader: str, read: Any, registry: SchemaRegistry
) -> None:
    data = encode(registry.avro(json.dumps(written)), value)
    assert decode(registry.avro(reader), data) == read


@pytest.mark.parametrize(
    ("written", "value", "reader"),
    [
        (WRITTEN, {"id": 5, "gone": "secret"}, fields({"name": "must", "type": "int"})),
        (WRITTEN, {"id": 5, "gone": "secret"}, fields({"name": "gone", "type": "int"})),
        (COLOR, "secret", json.dumps({**COLOR, "symbols": ["RED"]})),
    ],
)
def test_avro_that_cannot_be_read_into_the_schema_is_the_records_fault(
    written: dict[str, Any], value: Any, reader: str, registry: SchemaRegistry
) -> None:
    data = encode(registry.avro(json.dumps(written)), value)
    with pytest.raises(ValueError, match="the data does not fit the schema") as caught:
        decode(registry.avro(reader), data)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("value", [None, 3, "s", {"a": 1}, {"b": 2}])
def test_avro_finds_the_type_of_a_union(value: Any, registry: SchemaRegistry) -> None:
    a, b = (json.loads(fields({"name": name, "type": "int"})) | {"name": name.upper()} for name in "ab")
    serde = registry.avro(json.dumps(["null", "int", "string", a, b]))
    assert decode(serde, encode(serde, value)) == value


@pytest.mark.parametrize(
    ("schema", "fits", "wrong", "where"),
    [
        ('"int"', -(2**31), 2**31, "the value"),
        (fields({"name": "at", "type": "int"}), {"at": 1}, {"at": 1_700_000_000_000}, "E.at"),
        (fields({"name": "l", "type": {"type": "array", "items": "int"}}), {"l": [1]}, {"l": [1, 2**40]}, "E.l"),
        (fields({"name": "m", "type": {"type": "map", "values": "int"}}), {"m": {"k": 1}}, {"m": {"k": 2**31}}, "E.m"),
        (fields({"name": "next", "type": ["null", "E"]}, {"name": "n", "type": "int"}),
         {"n": 1, "next": {"n": 2, "next": None}}, {"n": -(2**31) - 1, "next": None}, "E.n"),
    ],
)  # fmt: skip
def test_avro_writes_no_int_that_java_could_not_read(
    schema: str, fits: Any, wrong: Any, where: str, registry: SchemaRegistry
) -> None:
    serde = registry.avro(schema)
    assert decode(serde, encode(serde, fits)) == fits
    with pytest.raises(ValueError, match=rf"{where} exceeds the 32 bits of an int; declare a long"):
        encode(serde, wrong)


def test_schema_of_a_registry_may_refer_to_others(registry: SchemaRegistry, stub: RegistryStub) -> None:
    item = {"type": "record", "name": "shop.Item", "fields": [{"name": "n", "type": "string"}]}
    order = {"type": "record", "name": "shop.Order", "fields": [{"name": "item", "type": "shop.Item"}]}
    written = {
        "schemaType": "AVRO",
        "schema": json.dumps(order),
        "references": [{"name": "shop.Item", "subject": "item", "version": 1}],
    }
    assert stub.add(written, "orders-value") == FIRST_ID
    reader = registry.avro(json.dumps({**order, "fields": [{"name": "item", "type": item}]}))
    with pytest.raises(RegistryUnavailableError, match=r"a reference does not exist \(error code 40401\)"):
        decode(reader, HEAD + b"\x06tea")
    stub.add({"schemaType": "AVRO", "schema": json.dumps(item)}, "item")
    assert decode(reader, HEAD + b"\x06tea") == {"item": {"n": "tea"}}


def test_file_that_a_protobuf_file_imports_is_registered_first(registry: SchemaRegistry, stub: RegistryStub) -> None:
    serde = registry.protobuf(messages.Shipment)
    shipment = messages.Shipment(order=messages.Order(id=3))
    data = encode(serde, shipment)
    assert data == b"\x00\x01\x02\x03\x05" + b"\x00" + b"\x0a\x02\x08\x03"
    assert stub.subjects == {"shop/orders.proto": [FIRST_ID], "orders-value": [FIRST_ID + 1]}
    assert stub.schemas[FIRST_ID + 1]["references"] == [
        {"name": "shop/orders.proto", "subject": "shop/orders.proto", "version": 1}
    ]
    assert decode(stub.registry().protobuf(messages.Shipment), data) == shipment


@pytest.mark.parametrize(
    "indexes",
    [b"\x02\xc8\x01", b"\xfe\xff\xff\xff\x0f", b"\x03", b"\xff" * 20, b""],
    ids=["of no message", "endless", "less than none", "no number", "missing"],
)
def test_protobuf_with_wrong_message_indexes_is_the_records_fault(indexes: bytes, registry: SchemaRegistry) -> None:
    serde = registry.protobuf(messages.Order)
    data = encode(serde, messages.Order(id=1))
    assert decode(serde, data[:5] + b"\x02\x00" + data[6:]) == messages.Order(id=1)  # the long form of the first
    with pytest.raises(ValueError, match=r"out of range|array length|ends too early"):
        decode(serde, data[:5] + indexes)


def test_models_with_dates_come_back(registry: SchemaRegistry) -> None:
    schema = {"type": "record", "name": "Visit", "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "page", "type": ["null", "string"]},
    ]}  # fmt: skip
    visit = Visit(at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), page="/")
    for serde in (registry.avro(json.dumps(schema), Visit), registry.json_schema(Visit)):
        assert decode(serde, encode(serde, visit)) == visit


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends too early|data framing"),
        (b"\x00\x01\x02", "ends too early|data framing"),
        (b"\x07" + HEAD[1:] + b"\x06tea", "[Mm]agic|framing|schema"),
        (b"\x00\x00\x00\x00\x63\x06tea", "Schema 99 not found"),
        (b"\x01" + bytes(16) + b"\x06tea", "error code 404"),  # an unknown GUID
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_bytes_that_are_no_such_record_are_the_records_fault(
    name: str, data: bytes, reason: str, registry: SchemaRegistry
) -> None:
    with pytest.raises(ValueError, match=reason):
        decode(serdes_of(registry)[name][0], data)


@pytest.mark.parametrize(
    ("make", "value", "message"),
    [
        (lambda r: r.avro(ORDER_AVRO), {"id": "secret", "item": "x"}, "shop.Order.id is a str"),
        (lambda r: r.avro(ORDER_AVRO), {"item": "secret"}, "shop.Order.id is a NoneType"),
        (lambda r: r.avro(ORDER_AVRO, Order), Order("secret", "x"), "id: expected int"),  # type: ignore[arg-type]
        (lambda r: r.json_schema(Order), Order("secret", "x"), "id: expected int"),  # type: ignore[arg-type]
        (lambda r: r.json_schema('{"properties":{"id":{"type":"number"}}}'), {"id": "secret"}, r"\$.id fails 'type'"),
    ],
)
def test_values_that_do_not_fit_the_schema_are_told_without_showing_them(
    make: Any, value: Any, message: str, registry: SchemaRegistry
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        encode(make(registry), value)
    assert "secret" not in str(caught.value)


def test_object_of_another_class_is_a_mistake_in_the_program(registry: SchemaRegistry) -> None:
    for serde in (registry.avro(ORDER_AVRO, Order), registry.json_schema(Order), registry.protobuf(messages.Order)):
        with pytest.raises(TypeError, match=r"expected (Order|shop\.Order), got dict"):
            encode(serde, {"id": 1, "item": "x"})


def test_json_that_does_not_fit_its_schema_is_refused_when_read(registry: SchemaRegistry) -> None:
    serde = registry.json_schema(Order)
    encode(serde, Order(1, "x"))
    with pytest.raises(ValueError, match=r"\$.id fails 'type'"):
        decode(serde, HEAD + b'{"id":"secret","item":"x"}')


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SchemaRegistry("localhost:8081"), "must have the form http://host:8081"),
        (lambda: SchemaRegistry("http://r:8081", {"basic.auth.user": "me"}), "Unrecognized properties: basic.auth"),
        (lambda: SchemaRegistry("http://r:8081", timeout_ms=0), "timeout_ms .* must be positive"),
        (lambda: SchemaRegistry("http://a:b@r:8081", {"basic.auth.user.info": "a:b"}), "remove one of them"),
        (lambda: SchemaRegistry("http://r:8081").avro('{"type":"recrod"}'), "avro: "),
        (lambda: SchemaRegistry("http://r:8081").avro("{"), "avro: "),
        (lambda: SchemaRegistry("http://r:8081").json_schema("{"), "json schema: "),
        (
            lambda: SchemaRegistry("http://r:8081", serializer={"subject.name.strategy.type": "RECORD"}).json_schema(
                '{"type":"object"}'
            ),
            "a subject that is named after the record requires a schema with a title",
        ),
        (lambda: SchemaRegistry("http://r:8081", serializer={"auto.register": 1}).avro('"int"'), "auto.register"),
    ],
)
def test_wrong_settings_and_schemas_are_told_where_they_are_given(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_example_of_the_page_works() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/serdes.md").read_text(encoding="utf-8")
    first, second = re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(first, "docs/serdes.md", "exec", dont_inherit=True), names)
    assert names["registry"].avro(names["ORDER"], names["Order"]).name == "avro (Order)"
    assert "basic.auth.user.info" in second
