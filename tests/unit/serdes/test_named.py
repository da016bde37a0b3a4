"""Serdes by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_py.errors import ConfigError
from streams_py.serdes import INT64, STRING, Serde, resolve_serde, serde


class UserSerde(Serde[str]):
    def serializer(self, topic: str, *, is_key: bool) -> Callable[[str], bytes]:
        return str.encode

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], str]:
        return bytes.decode


class NeedsArgument(UserSerde):
    def __init__(self, registry: str) -> None:
        self.registry = registry


MY_SERDE = serde(serialize=str.encode, deserialize=bytes.decode, name="mine")


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
