"""Bytes of the basic serdes, and what they refuse."""

from __future__ import annotations

import math
import pickle
import uuid
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.serdes import (
    BOOL,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    VOID,
    Serde,
    serde,
    string,
)

SOME_UUID = uuid.UUID("0F0E0D0C-0b0a-0908-0706-050403020100")


class Colour(IntEnum):
    RED = 7


def encode(serde: Serde[Any], value: Any) -> bytes:
    return serde.serializer("topic", is_key=False)(value)


def decode(serde: Serde[Any], data: bytes) -> Any:
    return serde.deserializer("topic", is_key=False)(data)


GOLDEN = [
    (STRING, "añ€", "61c3b1e282ac"),
    (STRING, "", ""),
    (string("utf-16-be"), "ab", "00610062"),
    (INT16, -2, "fffe"),
    (INT32, 1, "00000001"),
    (INT32, -(2**31), "80000000"),
    (INT64, 2**63 - 1, "7fffffffffffffff"),
    (INT64, 0, "0000000000000000"),
    (FLOAT32, 1.5, "3fc00000"),
    (FLOAT64, -2.0, "c000000000000000"),
    (BYTES, b"\x00\xff", "00ff"),
    (BOOL, True, "01"),
    (BOOL, False, "00"),
    (UUID, SOME_UUID, b"0f0e0d0c-0b0a-0908-0706-050403020100".hex()),
]


@pytest.mark.parametrize(("serde", "value", "hex"), GOLDEN)
def test_serde_writes_and_reads_kafkas_bytes(serde: Serde[Any], value: Any, hex: str) -> None:
    assert encode(serde, value).hex() == hex
    back = decode(serde, bytes.fromhex(hex))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (STRING, b"bytes"),
        (STRING, 1),
        (STRING, "\ud800"),
        (string("latin-1"), "€"),
        (INT16, 2**15),
        (INT32, -(2**31) - 1),
        (INT64, 2**63),
        (INT64, True),
        (INT32, False),
        (INT64, 1.0),
        (INT64, "1"),
        (FLOAT64, True),
        (FLOAT64, "1.0"),
        (FLOAT32, 1e300),
        (BYTES, "text"),
        (BYTES, 5),
        (BOOL, 1),
        (BOOL, None),
        (UUID, str(SOME_UUID)),
        (VOID, b""),
    ],
)
def test_serde_refuses_value_when_it_does_not_fit(serde: Serde[Any], value: Any) -> None:
    with pytest.raises(Exception):  # noqa: B017  # any error: the runtime words it
        encode(serde, value)


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (STRING, b"\xff"),
        (INT16, b"\x00"),
        (INT32, b"\x00" * 5),
        (INT64, b""),
        (INT64, b"\x00" * 4),
        (FLOAT32, b"\x00" * 8),
        (FLOAT64, b"\x00" * 4),
        (BOOL, b"\x02"),
        (BOOL, b""),
        (BOOL, b"\x00\x00"),
        (UUID, b"not a uuid"),
        (UUID, b"{0f0e0d0c0b0a09080706050403020100}"),
        (UUID, b"g" * 36),
        (VOID, b""),
    ],
)
def test_serde_refuses_bytes_when_they_do_not_fit(serde: Serde[Any], data: bytes) -> None:
    with pytest.raises(Exception):  # noqa: B017  # any error: the runtime words it
        decode(serde, data)


def test_string_serde_replaces_like_java_when_asked_to() -> None:
    lenient = string(errors="replace")
    assert encode(lenient, "a\ud800b") == b"a?b"
    assert decode(lenient, b"a\xff") == "a\ufffd"


def test_int_serde_takes_int_enums_and_gives_back_plain_ints() -> None:
    assert decode(INT32, encode(INT32, Colour.RED)) == 7
    assert type(decode(INT32, encode(INT32, Colour.RED))) is int


def test_float_serde_takes_ints() -> None:
    assert decode(FLOAT64, encode(FLOAT64, 3)) == 3.0


def test_float_serde_keeps_the_special_numbers() -> None:
    assert math.isnan(decode(FLOAT64, encode(FLOAT64, math.nan)))
    assert decode(FLOAT64, encode(FLOAT64, -math.inf)) == -math.inf
    assert math.copysign(1, decode(FLOAT64, encode(FLOAT64, -0.0))) == -1


@given(st.integers(-(2**63), 2**63 - 1))
def test_round_trip(value: int) -> None:
    assert decode(INT64, encode(INT64, value)) == value
    assert encode(INT64, value) == value.to_bytes(8, "big", signed=True)


@given(st.text())
def test_string_round_trip(value: str) -> None:
    assert decode(STRING, encode(STRING, value)) == value


@pytest.mark.parametrize("serde", [STRING, BYTES, INT16, INT32, INT64, FLOAT64, BOOL, UUID])
def test_plain_type_is_promised_only_by_serdes_that_give_the_same_value_back(serde: Serde[Any]) -> None:
    sample = {str: "x", bytes: b"x", int: 7, float: 0.1, bool: True, uuid.UUID: SOME_UUID}[serde.plain_type]
    assert decode(serde, encode(serde, sample)) == sample


def test_float32_promises_nothing_because_it_rounds() -> None:
    assert FLOAT32.plain_type is None
    assert decode(FLOAT32, encode(FLOAT32, 0.1)) != 0.1


def test_serde_of_two_functions_uses_them() -> None:
    upper = serde(serialize=lambda text: text.upper().encode(), deserialize=bytes.decode, name="upper")
    assert upper.name == "upper"
    assert encode(upper, "ab") == b"AB"
    assert decode(upper, b"AB") == "AB"
    assert upper.plain_type is None


def test_serde_of_two_functions_is_named_after_them_when_no_name_is_given() -> None:
    assert "encode" in serde(serialize=str.encode, deserialize=bytes.decode).name


@pytest.mark.parametrize("given", [BOOL, BYTES, FLOAT32, FLOAT64, INT16, INT32, INT64, STRING, UUID, VOID])
def test_serde_is_the_same_after_a_journey_to_another_process(given: Serde[Any]) -> None:
    arrived = pickle.loads(pickle.dumps(given))
    assert (arrived.name, arrived.plain_type, arrived.struct_format, arrived.fixed_size) == (
        given.name,
        given.plain_type,
        given.struct_format,
        given.fixed_size,
    )
