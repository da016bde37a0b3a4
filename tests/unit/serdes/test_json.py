"""JSON with both libraries, and MessagePack."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from streams_py.serdes import JSON, Serde, json, msgpack
from streams_py.serdes.json import _Json  # the choice of library is not public


def encode(serde: Serde[Any], value: Any, *, is_key: bool = False) -> bytes:
    return serde.serializer("topic", is_key=is_key)(value)


def decode(serde: Serde[Any], data: bytes) -> Any:
    return serde.deserializer("topic", is_key=False)(data)


BOTH = [_Json(use_orjson=True, use_msgspec=True), _Json(use_orjson=False, use_msgspec=False)]


@pytest.mark.parametrize("serde", BOTH)
def test_json_writes_the_same_compact_text_with_either_library(serde: Serde[Any]) -> None:
    value = {"b": [1, 2.5, None, True], "a": "ä€"}
    assert encode(serde, value) == '{"b":[1,2.5,null,true],"a":"ä€"}'.encode()
    assert decode(serde, encode(serde, value)) == value


@pytest.mark.parametrize("serde", BOTH)
def test_json_keys_have_sorted_members_so_that_equal_keys_are_equal_bytes(serde: Serde[Any]) -> None:
    assert encode(serde, {"b": 1, "a": 2}, is_key=True) == encode(serde, {"a": 2, "b": 1}, is_key=True)
    assert encode(serde, {"b": 1, "a": 2}) != encode(serde, {"a": 2, "b": 1})


@pytest.mark.parametrize("serde", BOTH)
def test_json_refuses_what_it_cannot_say(serde: Serde[Any]) -> None:
    with pytest.raises(Exception):  # noqa: B017  # each library has its own
        encode(serde, object())
    with pytest.raises(ValueError):
        decode(serde, b"{")


@dataclass
class Order:
    id: int
    item: str


@dataclass
class Other:
    id: int


@pytest.mark.parametrize("use_orjson", [True, False])
def test_json_of_a_dataclass_gives_objects_back(use_orjson: bool) -> None:
    from streams_py.serdes.json import _JsonModel  # the choice of library is not public

    serde = _JsonModel(Order, _Json(use_orjson=use_orjson))
    assert encode(serde, Order(1, "x")) == b'{"id":1,"item":"x"}'
    assert decode(serde, b'{"id":1,"item":"x"}') == Order(1, "x")


def test_json_of_a_dataclass_refuses_another_class_and_other_members() -> None:
    with pytest.raises(TypeError, match="Order"):
        encode(json(Order), Other(1))
    with pytest.raises(ValueError, match=r"item: Field required"):
        decode(json(Order), b'{"id":1,"colour":2}')
    with pytest.raises(ValueError, match=r"members that Order does not have: colour"):
        decode(json(Order), b'{"id":1,"item":"x","colour":2}')


def test_json_takes_only_models_and_dataclasses() -> None:
    with pytest.raises(TypeError, match="requires a pydantic model, a dataclass"):
        json(int)


@dataclass
class Basket:
    owner: str
    orders: list[Order]
    best: Order | None = None


class Point(BaseModel):
    x: float
    at: datetime
    tags: tuple[str, ...] = ()


class Path(BaseModel):
    points: list[Point]
    order: Order


def test_json_builds_nested_dataclasses_again() -> None:
    serde = json(Basket)
    basket = Basket("me", [Order(1, "x"), Order(2, "y")], Order(3, "z"))
    assert encode(serde, basket).startswith(b'{"owner":"me","orders":[{"id":1,"item":"x"},')
    assert decode(serde, encode(serde, basket)) == basket


def test_json_of_a_model_gives_models_back_with_all_that_is_in_them() -> None:
    serde = json(Path)
    path = Path(points=[Point(x=1.5, at=datetime(2026, 1, 2, tzinfo=UTC), tags=("a",))], order=Order(1, "x"))
    encoded = encode(serde, path)
    assert encoded == (b'{"points":[{"x":1.5,"at":"2026-01-02T00:00:00Z","tags":["a"]}],"order":{"id":1,"item":"x"}}')
    assert decode(serde, encoded) == path


@pytest.mark.parametrize(
    ("cls", "text", "message"),
    [
        (Order, b'{"id":"1","item":"x"}', "id: Input should be a valid integer"),
        (Basket, b'{"owner":"me","orders":[{"id":1,"item":2}]}', "orders.0.item: Input should be a valid string"),
        (Path, b'{"points":[{"x":"far","at":"2026-01-02T00:00:00Z"}]}', "points.0.x: Input should be a valid number"),
        (Order, b"7", "the value: "),
    ],
)
def test_json_checks_types_of_members_when_it_reads_and_shows_no_values(cls: Any, text: bytes, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        decode(json(cls), text)
    assert message in str(caught.value)
    assert "far" not in str(caught.value)


def test_json_checks_types_of_members_when_it_writes() -> None:
    wrong: Any = "1"
    with pytest.raises(ValueError, match="id: expected int"):
        encode(json(Order), Order(wrong, "x"))


def test_json_shows_no_values_of_members_that_it_cannot_write() -> None:
    wrong: Any = "far"
    with pytest.raises(ValueError) as caught:
        encode(json(Path), Path(points=[Point.model_construct(x=wrong, at=wrong)], order=Order(1, "x")))
    assert "far" not in str(caught.value)


def test_json_of_a_model_writes_keys_sorted() -> None:
    assert json(Order).serializer("t", is_key=True)(Order(1, "x")) == b'{"id":1,"item":"x"}'
    assert json(Basket).serializer("t", is_key=True)(Basket("me", [])) == b'{"best":null,"orders":[],"owner":"me"}'


def test_json_promises_no_plain_type_because_its_values_can_change() -> None:
    assert JSON.plain_type is None


class Item(msgspec.Struct):
    name: str
    id: int = 0


@pytest.mark.parametrize(
    ("serde", "data"),
    [(json(Item), b'{"name":"x","id":1}'), (msgpack(Item), b"\x82\xa4name\xa1x\xa2id\x01")],
    ids=["json", "msgpack"],
)
def test_structs_of_msgspec_come_back(serde: Serde[Item], data: bytes) -> None:
    assert encode(serde, Item("x", 1)) == data
    assert decode(serde, data) == Item("x", 1)
    with pytest.raises(TypeError, match="expected Item, got Order"):
        encode(serde, Order(1, "x"))  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        decode(serde, data[:-1])


def test_structs_of_another_type_are_refused_when_read_and_shown_nowhere() -> None:
    with pytest.raises(ValueError, match=r"Expected `int`, got `str` - at `\$.id`") as caught:
        decode(json(Item), b'{"name":"x","id":"far"}')
    assert "far" not in str(caught.value)


def test_msgpack_takes_plain_values_and_writes_keys_sorted() -> None:
    assert decode(msgpack(), encode(msgpack(), {"b": [1, None, b"x"]})) == {"b": [1, None, b"x"]}
    assert msgpack().serializer("t", is_key=True)({"b": 1, "a": 2}) == b"\x82\xa1a\x02\xa1b\x01"
