"""Values of classes come back as they were, or are refused when the serde is made or when they are written."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import re
import uuid
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import msgspec
import pytest
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    RootModel,
    SecretStr,
    computed_field,
    create_model,
    field_serializer,
    model_validator,
)
from typing_extensions import TypedDict

from streams_py.serdes import json, msgpack
from tests.support.serdes.classes import Bag, Event, Loose, Row, Struct, round_trip


class Click(Event):
    url: str


@dataclass
class LongRow(Row):
    url: str


@dataclass
class Rows:
    rows: list[Row]


class LongStruct(Struct):
    url: str


class Structs(msgspec.Struct):
    items: list[Struct] = []


class Hidden(BaseModel):
    n: int = 0
    seen: int = Field(default=0, exclude=True)


class Private(BaseModel):
    n: int = 0
    _seen: int = 0


def with_private() -> Private:
    value = Private(n=1)
    value._seen = 5
    return value


@dataclass
class NoInit:
    n: int = 0
    seen: int = field(default=0, init=False)


def with_seen() -> NoInit:
    value = NoInit(1)
    value.seen = 5
    return value


@dataclass(eq=False)
class ByIdentity:
    n: int
    seen: int = field(default=0, compare=False, init=False)


def by_identity() -> ByIdentity:
    value = ByIdentity(1)
    value.seen = 5
    return value


class Keys(TypedDict):
    a: int


@dataclass
class WithKeys:
    keys: Keys


class Open(BaseModel, extra="allow"):
    n: int


class Kind(enum.Enum):
    A = "a"


class Limited(BaseModel):
    n: int = Field(ge=0)


def negative() -> Limited:
    value = Limited(n=1)
    value.n = -1
    return value


@dataclass
class Choice:
    x: Literal["a", "b"]


@dataclass
class ByNumber:
    x: dict[int, str]


LOST: dict[str, tuple[Any, Any, str]] = {
    "subclass of a model": (Event, Click(id=1, url="secret"), "url"),
    "subclass in a list": (Bag, Bag(events=[Click(id=1, url="secret")]), r"events\.0.*url"),
    "subclass in an optional": (Bag, Bag(first=Click(id=1, url="secret")), "first.*url"),
    "subclass in a dict": (Bag, Bag(named={"secret": Click(id=1, url="secret")}), r"named\.\*.*url"),
    "subclass in a tuple": (Bag, Bag(pair=(1, Click(id=1, url="secret"))), r"pair\.1.*url"),
    "subclass of a dataclass": (Row, LongRow(1, "secret"), "url"),
    "dataclass subclass in a list": (Rows, Rows([Row(1), LongRow(1, "secret")]), r"rows\.1.*url"),
    "subclass of a struct": (Struct, LongStruct(1, "secret"), "url"),
    "struct subclass in a list": (Structs, Structs([LongStruct(1, "secret")]), r"items\.0.*url"),
    "excluded": (Hidden, Hidden(n=1, seen=5), "seen"),
    "private": (Private, with_private(), "_seen"),
    "not in __init__": (NoInit, with_seen(), "seen"),
    "compared by identity": (ByIdentity, by_identity(), "seen"),
    "extra key of a typed dict": (WithKeys, WithKeys({"a": 1, "secret": 2}), "keys"),  # type: ignore[typeddict-unknown-key]
    "never given": (Event, Event.model_construct(), "id"),
    "against a constraint": (Limited, negative(), "n"),
    "no such literal": (Choice, Choice("secret"), "x"),  # type: ignore[arg-type]
    "tuple where anything goes": (Loose, Loose(("secret",)), "x is a tuple, and comes back as a list"),
    "set where anything goes": (Loose, Loose({"secret"}), "x is a set"),
    "date where anything goes": (Loose, Loose(dt.date(2020, 1, 1)), "x is a date"),
    "number as a key where anything goes": (Loose, Loose({1: 2}), "x"),
    "object where anything goes": (Loose, Loose(Row(1)), "x is a Row"),
    "bool as a number's key": (ByNumber, ByNumber({True: "secret"}), "x"),
    "extra of an open model": (Open, Open(n=1, more=("secret",)), "more"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("name", sorted(LOST))
def test_value_that_would_not_come_back_is_refused_when_it_is_written(name: str) -> None:
    cls, value, where = LOST[name]
    with pytest.raises(ValueError, match=where) as caught:
        json(cls).serializer("t", is_key=False)(value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("value", [LongStruct(1, "u"), Structs([LongStruct(1, "u")])])
def test_messagepack_refuses_them_too(value: Any) -> None:
    with pytest.raises(ValueError, match="url"):
        msgpack(type(value).__mro__[1] if isinstance(value, Struct) else Structs).serializer("t", is_key=False)(value)


def test_struct_with_a_member_of_another_type_is_refused_when_it_is_written() -> None:
    for serde in (json(Struct), msgpack(Struct)):
        with pytest.raises(ValueError, match=r"Expected `int`, got `str` - at `\$.id`"):
            serde.serializer("t", is_key=False)(Struct("secret"))  # type: ignore[arg-type]


def model(annotation: Any) -> Any:
    return create_model("M", x=(annotation, ...))


class Named(BaseModel):
    n: int = Field(default=0, serialization_alias="N")


class ReadAs(BaseModel):
    n: int = Field(validation_alias="N")


class ReadAsOneOf(BaseModel):
    n: int = Field(validation_alias=AliasChoices("a", "b"))


class Custom(BaseModel):
    x: int

    @field_serializer("x")
    def written(self, value: int) -> str:
        return f"<{value}>"


class Password(BaseModel):
    x: SecretStr


class Required(BaseModel):
    x: int = Field(exclude=True)


class Growing(BaseModel):
    x: str

    @model_validator(mode="after")
    def grow(self) -> Growing:
        object.__setattr__(self, "x", f"{self.x}!")
        return self


class Encoded(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64")
    x: bytes


class Odd(enum.Enum):
    A = (1, 2)


@dataclass
class NeedsMore:
    x: int
    more: dataclasses.InitVar[int]


class Nested(BaseModel):
    inner: list[Named] = []


HOPELESS: dict[str, Any] = {
    "written under another name": Named,
    "written under another name, nested": Nested,
    "read under another name": ReadAs,
    "read under other names": ReadAsOneOf,
    "serializer of its own": Custom,
    "secret": Password,
    "required and excluded": Required,
    "validator that changes": Growing,
    "bytes written in base64": Encoded,
    "argument of __init__ without a field": NeedsMore,
    "tuple as key": model(dict[tuple[int, str], int]),
    "None as key": model(dict[str | None, int]),
    "number or text as key": model(dict[int | str, int]),
    "list or set": model(list[int] | set[int]),
    "bytes or text": model(bytes | str),
    "enum of tuples": model(Odd),
    "enum of tuples as key": model(dict[Odd, int]),
}


@pytest.mark.parametrize("name", sorted(HOPELESS))
def test_class_whose_values_never_come_back_is_refused_when_the_serde_is_made(name: str) -> None:
    with pytest.raises(
        TypeError, match=rf"values of {HOPELESS[name].__qualname__} do not survive a round trip: .{{10}}"
    ):
        json(HOPELESS[name])


def test_struct_that_msgspec_cannot_read_is_refused_when_the_serde_is_made() -> None:
    both = msgspec.defstruct("Both", [("x", set[int] | list[int])])
    for make in (json, msgpack):
        with pytest.raises(TypeError):
            make(both)


class Total(BaseModel, extra="forbid"):
    n: int = 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.n


class OpenTotal(Total, extra="allow"): ...


class LooseTotal(Total, extra="ignore"): ...


class Holder(BaseModel):
    total: Total


class Inside(BaseModel):
    x: Json[int]


class Aliased(BaseModel):
    n: int = Field(alias="N")


@dataclass
class AliasedRow:
    n: int = Field(alias="N")


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


class Pet(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")
    other: Cat | Dog


class Tree(BaseModel):
    kids: list[Tree] = []
    weight: float = 1.0


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Computed:
    n: int
    double: int = field(init=False)

    def __post_init__(self) -> None:
        self.double = 2 * self.n


class Derived(BaseModel):
    n: int
    _double: int = 0

    def model_post_init(self, context: Any) -> None:
        self._double = 2 * self.n


@dataclass
class Many:
    at: dt.datetime
    day: dt.date
    time: dt.time
    span: dt.timedelta
    money: Decimal
    id: uuid.UUID
    kind: Kind
    tags: frozenset[str]
    counts: Counter[str]
    by_kind: dict[Kind, int]
    point: Point
    keys: Keys
    raw: bytes


MANY = Many(
    dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
    dt.date(2026, 1, 2),
    dt.time(1, 2, 3),
    dt.timedelta(days=-1, microseconds=3),
    Decimal("1.10"),
    uuid.UUID(int=5),
    Kind.A,
    frozenset("ab"),
    Counter("aab"),
    {Kind.A: 2},
    Point(1, 2),
    {"a": 1},
    b"abc",
)

KEPT: dict[str, Any] = {
    "computed, extra forbidden": Total(n=2),
    "computed, extra kept": OpenTotal(n=2),
    "computed, extra ignored": LooseTotal(n=2),
    "computed, nested": Holder(total=Total(n=2)),
    "computed by __post_init__": Computed(2),
    "private, computed again": Derived(n=2),
    "private, never set": Private(n=1),
    "excluded, never set": Hidden(n=1),
    "JSON in JSON": Inside(x="5"),  # type: ignore[arg-type]
    "alias": Aliased(N=1),
    "alias of a dataclass": AliasedRow(1),
    "extra": Open(n=1, more={"a": [1]}),  # type: ignore[call-arg]
    "tagged union": Pet(pet=Dog(), other=Cat(lives=3)),
    "class within itself": Tree(kids=[Tree(kids=[Tree()])]),
    "root model": RootModel[list[int]]([1, 2]),
    "many types": MANY,
    "anything": Loose({"a": [1, "b", None, 1.5, True]}),
    "one for a float": create_model("F", x=(float, ...)).model_construct(x=1),
}


@pytest.mark.parametrize("name", sorted(KEPT))
def test_other_values_come_back(name: str) -> None:
    value = KEPT[name]
    back = round_trip(json(type(value)), value)
    assert type(back) is type(value)
    assert back == value


def test_computed_members_are_written_where_they_can_be_read_again() -> None:
    assert json(LooseTotal).serializer("t", is_key=False)(LooseTotal(n=2)) == b'{"n":2,"double":4}'
    assert json(Total).serializer("t", is_key=False)(Total(n=2)) == b'{"n":2}'


class _WithSet(BaseModel):
    names: frozenset[str]


@dataclasses.dataclass(frozen=True)
class _WithNestedSet:
    inner: tuple[_WithSet | None, ...]


@pytest.mark.parametrize("cls", [_WithSet, _WithNestedSet])
def test_a_class_with_a_set_is_a_value_but_not_a_key(cls: type[Any]) -> None:
    serde = json(cls)
    serde.serializer("t", is_key=False)
    with pytest.raises(TypeError, match="cannot be a key, because it has a set"):
        serde.serializer("t", is_key=True)


def test_sets_in_keys_of_msgspec_are_written_in_one_order() -> None:
    class Names(msgspec.Struct):
        names: set[str]

    names = [f"n{number}" for number in range(100)]
    for form in (json, msgpack):
        encode = form(Names).serializer("t", is_key=True)
        assert b"".join(re.findall(rb"n\d+", encode(Names(set(names))))) == "".join(sorted(names)).encode()


def test_a_class_that_names_one_that_is_never_defined_is_refused_when_a_task_starts() -> None:
    serde = json(create_model("Holder", inner=("Nowhere", ...)))
    for make in (serde.serializer, serde.deserializer):
        with pytest.raises(TypeError, match=r"Holder cannot be serialized: .* is not defined"):
            make("t", is_key=False)
