"""Error texts, and serdes by name."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest
from pydantic import AfterValidator

from streams_py import serdes
from streams_py.errors import ConfigError, SerializationError
from streams_py.serdes import INT64, STRING, UUID, Serde, cannot_decode, cannot_encode, resolve_serde, serde
from streams_py.serdes.reasons import is_without_values, reason_of
from streams_py.serdes.round_trips import UnfitError


class UserSerde(Serde[str]):
    def serializer(self, topic: str, *, is_key: bool) -> Callable[[str], bytes]:
        return str.encode

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], str]:
        return bytes.decode


class NeedsArgument(UserSerde):
    def __init__(self, registry: str) -> None:
        self.registry = registry


MY_SERDE = serde(serialize=str.encode, deserialize=bytes.decode, name="mine")


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
    assert re.fullmatch(r"ValueError \(test_failures_and_names\.py, line \d+\)", reason_of(caught.value))
    assert not is_without_values(caught.value)
    assert is_without_values(UnfitError("too short"))


def test_decode_error_has_a_text_when_the_cause_has_none() -> None:
    assert "ValueError" in str(cannot_decode(ValueError(), STRING, b"", topic="t", is_key=True))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("string", STRING),
        ("int64", INT64),
        ("org.apache.kafka.common.serialization.Serdes$LongSerde", INT64),
        (STRING, STRING),
        (f"{__name__}:MY_SERDE", MY_SERDE),
    ],
)
def test_resolve_serde_finds_it_by_any_way_of_naming(given: object, expected: Serde[Any], monkeypatch: Any) -> None:
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this_module())
    assert resolve_serde(given, setting="default.key.serde") is expected


def _this_module() -> Any:
    import types

    module = types.ModuleType(__name__)
    module.__dict__.update(globals())
    return module


def test_resolve_serde_makes_an_object_of_a_class() -> None:
    assert isinstance(resolve_serde(UserSerde, setting="default.key.serde"), UserSerde)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("strin", "did you mean 'string'"),
        ("no.such.module:SERDE", "cannot import"),
        ("streams_py.serdes:NO_SUCH", "cannot import"),
        ("streams_py.serdes:serde", "not a serde"),
        (42, "not a serde"),
        (NeedsArgument, "cannot create"),
    ],
)
def test_resolve_serde_names_the_setting_when_it_finds_none(given: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        resolve_serde(given, setting="default.key.serde")
    assert "default.key.serde" in str(raised.value)
    assert raised.value.key == "default.key.serde"
