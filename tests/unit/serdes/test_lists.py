"""Kafka's list layout."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.serdes import FLOAT64, INT16, INT32, INT64, STRING, UUID, Serde, list_of


def encode(serde: Serde[Any], value: Any, *, is_key: bool = False) -> bytes:
    return serde.serializer("topic", is_key=is_key)(value)


def decode(serde: Serde[Any], data: bytes) -> Any:
    return serde.deserializer("topic", is_key=False)(data)


@pytest.mark.parametrize(
    ("inner", "value", "hex"),
    [
        (STRING, [], "0100000000"),
        (STRING, ["a", None, "bc"], "010000000300000001" + "61" + "ffffffff" + "00000002" + "6263"),
        (INT32, [], "000000000000000000"),
        (INT32, [1, 2], "0000000000" + "00000002" + "00000001" + "00000002"),
        (INT16, [None, 5, None], "00" + "00000002" + "00000000" + "00000002" + "00000003" + "0005"),
        (list_of(STRING), [["a"]], "01" + "00000001" + "0000000a" + "01" + "00000001" + "00000001" + "61"),
    ],
)
def test_list_serde_writes_and_reads_kafkas_bytes(inner: Serde[Any], value: list[Any], hex: str) -> None:
    assert encode(list_of(inner), value).hex() == hex
    assert decode(list_of(inner), bytes.fromhex(hex)) == value


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_list_of_int64_round_trip(value: list[int | None]) -> None:
    assert decode(list_of(INT64), encode(list_of(INT64), value)) == value


@given(st.lists(st.none() | st.text()))
def test_list_of_strings_round_trip(value: list[str | None]) -> None:
    assert decode(list_of(STRING), encode(list_of(STRING), value)) == value


@given(st.binary(max_size=40), st.sampled_from([STRING, INT32, FLOAT64, UUID]))
def test_list_serde_refuses_or_reads_whatever_bytes_come(data: bytes, inner: Serde[Any]) -> None:
    try:
        value = decode(list_of(inner), data)
    except (ValueError, struct.error):
        return
    again = encode(list_of(inner), value)
    assert encode(list_of(inner), decode(list_of(inner), again)) == again


@pytest.mark.parametrize(
    "hex", ["", "00", "02", "017fffffff", "01ffffffff", "0100000001", "010000000100000005" + "61", "010000000000"]
)
def test_list_serde_refuses_malformed_bytes_before_it_allocates(hex: str) -> None:
    with pytest.raises((ValueError, struct.error)):
        decode(list_of(STRING), bytes.fromhex(hex))


@pytest.mark.parametrize(
    "hex",
    ["007fffffff", "0000000000" + "7fffffff", "0000000000" + "00000001", "00" + "00000001" + "00000009" + "00000001"],
)
def test_list_serde_refuses_malformed_fixed_size_bytes(hex: str) -> None:
    with pytest.raises(ValueError):
        decode(list_of(INT32), bytes.fromhex(hex))


def test_list_serde_refuses_a_string() -> None:
    with pytest.raises(TypeError):
        encode(list_of(STRING), "abc")
