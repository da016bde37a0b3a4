"""The built-in converters of connectors."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest

from streams_py.connect.policy.classes import converter_of

JSON = converter_of("value.converter", "json")


class _Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"a": 1, "b": [True, None, 1.5]}, b'{"a":1,"b":[true,null,1.5]}'),
        ({"city": "Zürich"}, '{"city":"Zürich"}'.encode()),
        ({"n": 2**70}, b'{"n":1180591620717411303424}'),
        ({"n": -(2**63) - 1}, b'{"n":-9223372036854775809}'),
        (_Text("x"), b'"x"'),
        (False, b"false"),
    ],
)
def test_json_is_written_compact_and_comes_back_whole(value: Any, data: bytes) -> None:
    assert JSON.encode("t", value) == data
    assert JSON.decode("t", data) == value


def test_integers_beyond_64_bits_are_not_rounded() -> None:
    decoded = JSON.decode("t", b'{"n":18446744073709551617}')["n"]
    assert isinstance(decoded, int)
    assert decoded == 2**64 + 1


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("more", [None, 2**70])
def test_numbers_that_json_does_not_have_are_refused(number: float, more: int | None) -> None:
    with pytest.raises(ValueError, match="NaN and Infinity have no JSON form"):
        JSON.encode("t", {"n": [number], "more": more})


@pytest.mark.parametrize("data", [b"NaN", b'{"n":-Infinity}', b"1e999", b"[" * 100_000, b"\xff", b"1" * 5000, b""])
def test_text_that_is_not_json_is_refused_with_one_error(data: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        JSON.decode("t", data)


@pytest.mark.parametrize("value", [{"t": "\ud800"}, {"\ud800": 2**70}])
def test_half_a_character_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="lone surrogate"):
        JSON.encode("t", value)


@pytest.mark.parametrize("value", [{1: "a"}, [{None: 1}], {"a": {1, 2}}, {"a": frozenset("ab")}])
def test_names_that_are_not_text_and_sets_are_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        JSON.encode("t", value)


@pytest.mark.parametrize("value", [{"day": dt.date(2026, 1, 1)}, {"x": object()}, {"x": b"bytes"}])
def test_what_json_does_not_have_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="is not JSON serializable"):
        JSON.encode("t", value)


def test_nothing_stays_nothing() -> None:
    assert JSON.encode("t", None) is None
    assert JSON.decode("t", None) is None
