"""JSON text is the same with and without the optional libraries, both ways."""

from __future__ import annotations

import datetime as dt
import enum
import math
import struct
import uuid
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.serdes.json_text import decoder, encoder

WITH, WITHOUT = encoder(sort_keys=False, use_orjson=True), encoder(sort_keys=False, use_orjson=False)
SORTED = [encoder(sort_keys=True, use_orjson=each) for each in (True, False)]
READ_WITH, READ_WITHOUT = decoder(use_msgspec=True), decoder(use_msgspec=False)

TEXT = st.text() | st.text(st.sampled_from('"\\e-07.1\ud800é\u2028\n'))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=12,
)


def outcome(function: Any, value: Any) -> Any:
    try:
        return function(value)
    except (ValueError, TypeError):
        return "refused"


@given(PLAIN)
def test_both_write_the_same_text_or_refuse(value: Any) -> None:
    assert outcome(WITH, value) == outcome(WITHOUT, value)
    assert outcome(SORTED[0], value) == outcome(SORTED[1], value)


@given(PLAIN)
def test_what_is_written_comes_back_the_same_from_both(value: Any) -> None:
    data = outcome(WITH, value)
    if data != "refused":
        for read in (READ_WITH, READ_WITHOUT):
            back = read(data)
            assert back == value
            assert repr(back) == repr(value)  # 1 is not 1.0, and -0.0 is not 0.0


@given(st.binary(min_size=8, max_size=8))
def test_floats_have_one_text(data: bytes) -> None:
    (number,) = struct.unpack("d", data)
    if math.isfinite(number):
        assert WITH([number, "1e-07"]) == WITHOUT([number, "1e-07"])


@given(st.binary() | st.text(st.sampled_from('{}[]":,0123456789.eE+-ulnatrfsNI\\d8 ')).map(str.encode))
def test_both_read_the_same_or_refuse(data: bytes) -> None:
    with_it, without_it = outcome(READ_WITH, data), outcome(READ_WITHOUT, data)
    if "refused" in (repr(with_it), repr(without_it)) and with_it != without_it:
        assert b"e" in data.lower()  # a number beyond a float: one parser refuses it, the other reads infinity
    else:
        assert repr(with_it) == repr(without_it)


@pytest.mark.parametrize("write", [WITH, WITHOUT])
@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        [-math.inf],
        {"a": {"b": (1, math.nan)}},
        "\ud800",
        {"\udfff": 1},
        {1: 2},
        {None: 1},
        object(),
        b"",
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_without_a_json_form_are_refused(write: Any, value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        write(value)


def test_value_within_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    for write in (WITH, WITHOUT):
        with pytest.raises(ValueError):
            write(value)


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, 10**30, -(2**63) - 1])
def test_integers_of_any_size_are_exact(number: int) -> None:
    for write in (WITH, WITHOUT, *SORTED):
        for read in (READ_WITH, READ_WITHOUT):
            assert read(write({"n": number})) == {"n": number}


@pytest.mark.parametrize(
    "text", [b"NaN", b'{"x":Infinity}', b"[-Infinity]", b"\xef\xbb\xbf1", b'"\\ud800"', b"", b"1 2", b"[" * 5000]
)
def test_texts_that_are_not_json_are_refused(text: bytes) -> None:
    for read in (READ_WITH, READ_WITHOUT):
        with pytest.raises((ValueError, RecursionError)):
            read(text)


class Color(enum.Enum):
    RED = 1.5


class Pair(NamedTuple):
    a: int
    b: str


@dataclass
class Row:
    _id: int
    at: dt.datetime
    more: Any = None


def test_other_types_have_one_text_and_no_field_vanishes() -> None:
    value = {"row": Row(1, dt.datetime(2026, 1, 2, tzinfo=dt.UTC), (Pair(1, "x"), Color.RED, uuid.UUID(int=1)))}
    expected = (
        b'{"row":{"_id":1,"at":"2026-01-02T00:00:00+00:00",'
        b'"more":[[1,"x"],1.5,"00000000-0000-0000-0000-000000000001"]}}'
    )
    assert WITH(value) == expected
    assert WITHOUT(value) == expected
    for write in (WITH, WITHOUT):
        with pytest.raises(ValueError):
            write([Row(1, dt.datetime(2026, 1, 2, tzinfo=dt.UTC), math.nan)])


def test_null_is_written_where_it_is_meant() -> None:
    assert WITH({"a": None, "b": "null", "c": (None, 1)}) == b'{"a":null,"b":"null","c":[null,1]}'
