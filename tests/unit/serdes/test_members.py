"""Numbers of classes, what errors show of their values, and classes that are defined late or travel."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, create_model, model_validator

from streams_py.serdes import json
from tests.support.serdes.classes import Bag, Event, Loose, Row, Struct, round_trip


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), Decimal("NaN")])
def test_nan_and_infinity_have_no_form_and_are_refused_when_written(number: Any) -> None:
    annotation: Any = Decimal if isinstance(number, Decimal) else float
    for kind in (annotation, annotation | None, list[annotation], dict[str, annotation], Any):
        value = number
        if kind == list[annotation]:
            value = [number]
        elif kind == dict[str, annotation]:
            value = {"a": number}
        for cls in (create_model("M", x=(kind, ...)), dataclasses.make_dataclass("D", [("x", kind)])):
            made: Any = cls.model_construct(x=value) if issubclass(cls, BaseModel) else cls(value)  # type: ignore[call-arg]
            with pytest.raises(ValueError):
                json(cls).serializer("t", is_key=False)(made)


def test_nan_in_the_text_of_others_is_refused_when_read() -> None:
    point = create_model("P", x=(float, ...), name=(str, ""))
    for text in (b'{"x":NaN}', b'{"x":Infinity}', b'{"x":-Infinity}'):
        with pytest.raises(ValueError):
            json(point).deserializer("t", is_key=False)(text)
    assert json(point).deserializer("t", is_key=False)(b'{"x":1,"name":"NaN Infinity"}').name == "NaN Infinity"  # type: ignore[attr-defined]


def test_integers_of_any_size_come_back() -> None:
    for number in (2**63, 2**64, 2**70, -(2**64)):
        assert round_trip(json(Event), Event(id=number)) == Event(id=number)
        assert round_trip(json(Struct), Struct(number)) == Struct(number)
        assert json(Event).serializer("t", is_key=True)(Event(id=number)) == f'{{"id":{number}}}'.encode()


def test_keys_and_texts_of_validators_are_not_shown() -> None:
    class Strict(BaseModel):
        x: dict[str, int] = {}
        y: str = ""

        @model_validator(mode="before")
        @classmethod
        def look(cls, given: Any) -> Any:
            if given.get("y") == "secret":
                raise ValueError(f"{given['y']} is wrong")
            return given

    read = json(Strict).deserializer("t", is_key=False)
    for text in (b'{"x":{"secret":"a"}}', b'{"y":"secret"}'):
        with pytest.raises(ValueError) as caught:
            read(text)
        assert "secret" not in str(caught.value)


def test_class_that_names_a_later_one_is_looked_at_when_it_is_used() -> None:
    @dataclass
    class Early:
        later: list[Later]  # type: ignore[name-defined]  # noqa: F821

    serde = json(Early)
    globals()["Later"] = Row
    try:
        assert round_trip(serde, Early([Row(1)])) == Early([Row(1)])
    finally:
        del globals()["Later"]


def test_serde_of_a_class_travels() -> None:
    serde = pickle.loads(pickle.dumps(json(Bag)))
    assert round_trip(serde, Bag(events=[Event(id=1)])) == Bag(events=[Event(id=1)])


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8")) | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)


@given(ANY)
def test_whatever_is_written_comes_back_the_same(value: Any) -> None:
    serde = json(Loose)
    try:
        data = serde.serializer("t", is_key=False)(Loose(value))
    except (ValueError, TypeError):
        return
    back = serde.deserializer("t", is_key=False)(data)
    assert back == Loose(value)
    assert type(back.x) is type(value)
