"""Bytes of a table's changes in repartition topics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.errors import ConfigError, SerializationError
from streams_py.serdes import INT64, STRING, SerdeDefaults, serde_or_default
from streams_py.topology.declare.nodes import Change
from streams_py.topology.formats.change_serde import ChangeSerde

DEFAULTS = SerdeDefaults(INT64, STRING)
SERIALIZE = ChangeSerde(STRING).serializer("t", is_key=False)
DESERIALIZE = ChangeSerde(STRING).deserializer("t", is_key=False)


@pytest.mark.parametrize(
    ("change", "data"),
    [
        (Change("k", None), "6b01"),
        (Change(None, "k"), "6b00"),
        (Change("k", "k"), "026b6b02"),
        (Change("", ""), "0002"),
        (Change("", None), "01"),
        (Change("a" * 63, "b"), "7e" + "61" * 63 + "6202"),
        (Change("a" * 64, "b"), "8001" + "61" * 64 + "6202"),
        (Change("a" * 8192, "b"), "808001" + "61" * 8192 + "6202"),
    ],
)
def test_change_has_the_bytes_of_kafka_streams(change: Change, data: str) -> None:
    assert SERIALIZE(change).hex() == data
    assert DESERIALIZE(bytes.fromhex(data)) == change


@pytest.mark.parametrize("latest", ["00", "01"])
@pytest.mark.parametrize(
    ("data", "change"), [("6b{}03", Change(None, "k")), ("6b{}04", Change("k", None)), ("026b6c{}05", Change("k", "l"))]
)
def test_change_that_says_whether_it_is_the_latest_is_read(data: str, change: Change, latest: str) -> None:
    assert DESERIALIZE(bytes.fromhex(data.format(latest))) == change


@pytest.mark.parametrize(
    "data", ["", "02", "6b06", "6bff", "046b02", "80", "8002", "ffffffffff02", "03", "05", "01" * 9 + "02" + "07"]
)
def test_bytes_that_are_no_change_are_refused(data: str) -> None:
    with pytest.raises(SerializationError, match="not a change of a table"):
        DESERIALIZE(bytes.fromhex(data))


def test_change_of_nothing_cannot_be_written() -> None:
    with pytest.raises(SerializationError, match="without an old and a new value"):
        SERIALIZE(Change(None, None))


@given(st.one_of(st.none(), st.text(max_size=200)), st.one_of(st.none(), st.text(max_size=200)))
def test_change_survives_the_round_trip(new: str | None, old: str | None) -> None:
    if new is not None or old is not None:
        assert DESERIALIZE(SERIALIZE(Change(new, old))) == Change(new, old)


@given(st.binary(max_size=12))
def test_any_bytes_give_a_change_or_an_error_of_ours(data: bytes) -> None:
    try:
        change = DESERIALIZE(data)
    except (SerializationError, UnicodeDecodeError):
        return
    assert isinstance(change, Change)


def test_default_serde_is_filled_in_where_none_was_given() -> None:
    assert serde_or_default(None, DEFAULTS, is_key=False) is STRING
    assert serde_or_default(INT64, DEFAULTS, is_key=False) is INT64
    filled = serde_or_default(ChangeSerde(None), DEFAULTS, is_key=False)
    assert isinstance(filled, ChangeSerde)
    assert filled.inner is STRING
    given_inner = ChangeSerde(INT64)
    filled = serde_or_default(given_inner, DEFAULTS, is_key=False)
    assert isinstance(filled, ChangeSerde)
    assert filled.inner is INT64


def test_change_serde_without_any_inner_serde_names_the_setting() -> None:
    for make in (ChangeSerde(None).serializer, ChangeSerde(None).deserializer):
        with pytest.raises(ConfigError, match=r"default\.value\.serde"):
            make("topic-x", is_key=False)
