"""Values with a schema come back as they were, or are refused: when the serde is made, or when they are written."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel, Field, Json, SecretStr, computed_field

from streams_py.errors import RegistryUnavailableError
from streams_py.registry import SchemaRegistry
from streams_py.serdes import Serde

pytest.importorskip("fastavro")

from tests.support.registry import messages
from tests.support.registry.stub import RegistryStub, running


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running(RegistryStub()) as stub:
        yield stub.registry()


def write(serde: Serde[Any], value: Any) -> bytes:
    return serde.serializer("t", is_key=False)(value)


def round_trip(serde: Serde[Any], value: Any) -> Any:
    return serde.deserializer("t", is_key=False)(write(serde, value))


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


class Event(BaseModel):
    id: int


class Click(Event):
    url: str


class Bag(BaseModel):
    events: list[Event] = []


class Hidden(BaseModel):
    n: int = 0
    seen: int = Field(default=0, exclude=True)


@dataclass
class Row:
    id: int
    seen: int = field(default=0, init=False)


@dataclass
class LongRow(Row):
    url: str = "secret"


EVENT = record("Event", id="int")
BAG = record("Bag", events={"type": "array", "items": EVENT})
ROW = record("Row", id="int", seen="int")


def with_seen() -> Row:
    row = Row(1)
    row.seen = 5
    return row


@pytest.mark.parametrize(
    ("cls", "schema", "value", "where"),
    [
        (Event, EVENT, Click(id=1, url="secret"), "url"),
        (Bag, BAG, Bag(events=[Click(id=1, url="secret")]), r"events\.0.*url"),
        (Hidden, record("Hidden", n="int"), Hidden(n=1, seen=5), "seen"),
        (Row, ROW, with_seen(), "seen"),
        (Row, ROW, LongRow(1), "url"),
    ],
)
def test_object_that_would_not_come_back_is_refused_when_it_is_written(
    cls: Any, schema: Any, value: Any, where: str, registry: SchemaRegistry
) -> None:
    for serde in (registry.avro(json.dumps(schema), cls), registry.json_schema(cls)):
        with pytest.raises(ValueError, match=where) as caught:
            write(serde, value)
        assert "secret" not in str(caught.value)


class Named(BaseModel):
    n: int = Field(default=0, serialization_alias="N")


class Password(BaseModel):
    x: SecretStr


@pytest.mark.parametrize(
    ("cls", "schema"),
    [(Named, record("Named", n="int")), (Named, record("Named", N="int")), (Click, EVENT), (Click, ["null", EVENT])],
)
def test_class_that_does_not_fit_is_refused_when_the_serde_is_made(
    cls: Any, schema: Any, registry: SchemaRegistry
) -> None:
    with pytest.raises(TypeError, match=rf"values of {cls.__name__} do not survive a round trip: .{{10}}"):
        registry.avro(json.dumps(schema), cls)


@pytest.mark.parametrize("cls", [Named, Password])
def test_class_that_never_comes_back_has_no_json_schema_serde(cls: Any, registry: SchemaRegistry) -> None:
    with pytest.raises(TypeError, match=rf"values of {cls.__name__} do not survive a round trip"):
        registry.json_schema(cls)


class Total(BaseModel, extra="forbid"):
    n: int
    text: Json[int] = 1  # type: ignore[assignment]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.n


def test_computed_members_and_json_in_text_come_back(registry: SchemaRegistry) -> None:
    for serde in (
        registry.avro(json.dumps(record("Total", n="int", text="string")), Total),
        registry.json_schema(Total),
    ):
        assert round_trip(serde, Total(n=2, text="5")) == Total(n=2, text="5")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schema", "value", "where"),
    [
        (EVENT, {"id": 1, "url": "secret"}, "Event has no field 'url'"),
        (BAG, {"events": [{"id": 1}, {"id": 1, "url": "secret"}]}, "Event has no field 'url'"),
        (["null", EVENT], {"id": 1, "url": "secret"}, "Event has no field 'url'"),
        ({"type": "map", "values": EVENT}, {"k": {"id": 1, "url": "secret"}}, "Event has no field 'url'"),
        ([EVENT, record("Other", text="string")], {"id": 1, "url": "secret"}, "Event has no field 'url'"),
        (record("B", on="boolean"), {"on": "secret"}, r"B\.on is a str, expected boolean"),
        (record("B", raw="bytes"), {"raw": "secret"}, r"B\.raw is a str, expected bytes"),
        (record("B", text="string"), {"text": b"secret"}, r"B\.text is a bytes, expected string"),
    ],
)
def test_dict_that_avro_would_cut_or_change_is_refused(
    schema: Any, value: Any, where: str, registry: SchemaRegistry
) -> None:
    with pytest.raises(ValueError, match=where) as caught:
        write(registry.avro(json.dumps(schema)), value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (["null", EVENT], None),
        (["null", EVENT], {"id": 1}),
        ([EVENT, record("Other", text="string")], {"text": "x"}),
        ([EVENT, {"type": "map", "values": "string"}], {"any": "x"}),
        (record("B", on="boolean", raw="bytes", text="string", nan="double"),
         {"on": True, "raw": b"\xff", "text": "x", "nan": float("inf")}),
    ],
)  # fmt: skip
def test_dict_that_fits_comes_back(schema: Any, value: Any, registry: SchemaRegistry) -> None:
    assert round_trip(registry.avro(json.dumps(schema)), value) == value


def test_json_schema_refuses_numbers_and_names_that_json_cannot_say(registry: SchemaRegistry) -> None:
    serde = registry.json_schema('{"type":"object"}')
    for value in ({"x": float("nan")}, {"x": [float("inf")]}, {1: 2}, {"x": "\ud800"}):
        with pytest.raises(ValueError):
            write(serde, value)
    assert round_trip(serde, {"x": 2**70}) == {"x": 2**70}


def test_json_schema_refuses_nan_in_the_text_of_others(registry: SchemaRegistry) -> None:
    serde = registry.json_schema('{"type":"object"}')
    head = write(serde, {})[:5]
    with pytest.raises(ValueError):
        serde.deserializer("t", is_key=False)(head + b'{"x":NaN}')


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (messages.Line(amount=7), messages.Order),
        (messages.Order(id=1), messages.Line),
        (messages.Order(id=1), messages.Shipment),
    ],
)
def test_protobuf_message_of_another_type_is_refused(written: Any, read: Any, registry: SchemaRegistry) -> None:
    data = write(registry.protobuf(type(written)), written)
    name = type(written).DESCRIPTOR.full_name
    with pytest.raises(ValueError, match=rf"the record is a {name} .*, expected {read.DESCRIPTOR.full_name}"):
        registry.protobuf(read).deserializer("t", is_key=False)(data)
    assert round_trip(registry.protobuf(type(written)), written) == written


def test_message_type_of_another_schema_under_the_same_id_is_checked() -> None:
    """A registry may return another schema after its client has cleared its caches."""
    with running(RegistryStub()) as stub:
        registry = stub.registry()
        data = write(registry.protobuf(messages.Order), messages.Order(id=1))
        read = registry.protobuf(messages.Order).deserializer("t", is_key=False)
        assert read(data) == messages.Order(id=1)
        (number,) = stub.schemas
        text = base64.b64decode(stub.schemas[number]["schema"]).replace(b"Order", b"Other")
        stub.schemas[number] = {**stub.schemas[number], "schema": base64.b64encode(text).decode()}
        unusable = {"name": "q", "subject": "no", "version": 1}
        other = stub.add({**stub.schemas[number], "references": [unusable]}, "u-value")
        with pytest.raises(RegistryUnavailableError):
            read(b"\x00" + other.to_bytes(4, "big") + data[5:])
        with pytest.raises(ValueError, match=r"the record is a .*Other"):
            read(data)
