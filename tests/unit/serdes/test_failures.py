"""Texts of serialization errors, and the reasons that they give."""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest
from pydantic import AfterValidator

from streams_py import serdes
from streams_py.errors import SerializationError
from streams_py.serdes import INT64, STRING, UUID, cannot_decode, cannot_encode, serde
from streams_py.serdes.reasons import is_without_values, reason_of
from streams_py.serdes.round_trips import UnfitError


def test_encode_error_names_serde_type_and_topic_but_not_the_value() -> None:
    error = cannot_encode(TypeError("expected int"), INT64, "secret", topic="orders", is_key=False)
    assert isinstance(error, SerializationError)
    for part in ("value", "orders", "int64", "str", "expected int"):
        assert part in str(error)
    assert "secret" not in str(error)


CARD = b"4111111111111111"


def test_decode_error_names_serde_and_length_and_shows_no_bytes() -> None:
    text = str(cannot_decode(ValueError("too short"), INT64, CARD, topic="orders", is_key=True))
    for part in ("key", "orders", "int64", "16 bytes", "too short"):
        assert part in text
    assert CARD.hex()[:8] not in text
    assert CARD.decode()[:4] not in text


def test_setting_shows_bytes() -> None:
    error = cannot_decode(ValueError("too short"), INT64, CARD, topic="orders", is_key=True, shows_bytes=True)
    assert CARD.hex() in str(error)


def as_number(data: bytes) -> int:
    return int(data + b"x")


def as_key(data: bytes) -> int:
    return {b"a": 1}[data]


def own_words(data: bytes) -> int:
    raise ValueError(f"cannot read {data.decode()}")


class Color(enum.Enum):
    RED = "red"


@dataclass
class Paint:
    color: Color
    amount: Annotated[int, AfterValidator(lambda n: own_words(CARD))] = 0


class Coat(msgspec.Struct, forbid_unknown_fields=True):
    color: Color


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (as_number, CARD),
        (as_key, CARD),
        (own_words, CARD),
        (json.loads, CARD + b"}"),
        (STRING.deserializer("t", is_key=False), CARD + b"\xff"),
        (UUID.deserializer("t", is_key=False), CARD + b"-1111-1111-111111111"),
        (serdes.json(Paint).deserializer("t", is_key=False), b'{"color":"' + CARD + b'"}'),
        (serdes.json(Paint).deserializer("t", is_key=False), b'{"color":"red","amount":1}'),
        (serdes.json(Coat).deserializer("t", is_key=False), b'{"color":"' + CARD + b'"}'),
        (serdes.json(Coat).deserializer("t", is_key=False), b'{"color":"red","' + CARD + b'":1}'),
        (serdes.JSON.deserializer("t", is_key=False), CARD + b"}"),
    ],
)  # fmt: skip
def test_texts_of_libraries_that_quote_values_are_not_repeated(read: Any, data: bytes) -> None:
    with pytest.raises(Exception) as caught:  # each library has its own
        read(data)
    text = str(cannot_decode(caught.value, serde(serialize=bytes, deserialize=read, name="mine"), data,
                             topic="t", is_key=False))  # fmt: skip
    assert "4111" not in text
    assert "mine" in text


def test_reason_of_a_foreign_error_has_its_type_and_line() -> None:
    with pytest.raises(ValueError) as caught:
        as_number(CARD)
    assert re.fullmatch(r"ValueError \(test_failures\.py, line \d+\)", reason_of(caught.value))
    assert not is_without_values(caught.value)
    assert is_without_values(UnfitError("too short"))


def test_decode_error_has_a_text_when_the_cause_has_none() -> None:
    assert "ValueError" in str(cannot_decode(ValueError(), STRING, b"", topic="t", is_key=True))
