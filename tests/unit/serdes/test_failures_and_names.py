"""Error texts, and serdes by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_py.errors import ConfigError, SerializationError
from streams_py.serdes import INT64, STRING, Serde, cannot_decode, cannot_encode, resolve_serde, serde


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


def test_decode_error_names_serde_length_and_first_bytes() -> None:
    error = cannot_decode(ValueError("too short"), INT64, bytes(range(20)), topic="orders", is_key=True)
    for part in ("key", "orders", "int64", "20 bytes", "000102030405060708090a0b0c0d0e0f...", "too short"):
        assert part in str(error)


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
