"""Event records as bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_protocol import DecodeError
from streams_py.events.codec import VALUE_BYTES_READ_MAX, OtherVersion, decode_event, encode_event, encode_value
from streams_py.events.model import Event
from tests.support.events.golden import EVENTS, FOLDER

SLICE = json.loads((FOLDER / "rebalance-tasks.json").read_bytes())["subs"][0]


def test_every_golden_file_has_its_event() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(EVENTS)


@pytest.mark.parametrize("name", EVENTS)
def test_golden_bytes_are_written_and_read(name: str) -> None:
    golden = (FOLDER / f"{name}.json").read_bytes()
    assert encode_value(EVENTS[name]) == golden
    assert decode_event(golden) == EVENTS[name]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("rebalance", b"r/00112233445566aa-000000000012-0"),
        ("rebalance-client", b"r/00112233445566aa-000000000012-0"),
        ("task-running", b"t/0_3"),
        ("sample", b"m/6f1c2f0e-2a35-4b35-9d5f-0d6a4d1f7a01"),
        ("eviction", b"m/6f1c2f0e-2a35-4b35-9d5f-0d6a4d1f7a01"),
        ("client-started", b"m/6f1c2f0e-2a35-4b35-9d5f-0d6a4d1f7a01"),
    ],
)
def test_key_keeps_together_what_belongs_together(name: str, key: bytes) -> None:
    record = encode_event(EVENTS[name])
    assert record.key == key
    assert record.headers == (("v", b"1"), ("kind", EVENTS[name].kind.encode()))


def test_unknown_field_is_kept() -> None:
    fields = json.loads((FOLDER / "sample.json").read_bytes()) | {"mood": ["good", 1]}
    value = json.dumps(fields, separators=(",", ":")).encode()
    event = decode_event(value)
    assert isinstance(event, Event)
    assert json.loads(event.extra) == {"mood": ["good", 1]}
    assert encode_value(event) == value


@pytest.mark.parametrize(
    ("change", "expected"), [({"v": 2}, OtherVersion(2, "sample")), ({"kind": "x"}, OtherVersion(1, "x"))]
)
def test_other_version_or_kind_is_no_error(change: dict[str, object], expected: OtherVersion) -> None:
    fields = json.loads((FOLDER / "sample.json").read_bytes()) | change
    assert decode_event(json.dumps(fields).encode()) == expected


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"{", b"[]", b"{}", b"\xff\xfe", b"null", b'{"v":1}', b'{"v":true,"kind":"task"}', b'{"v":NaN}',
        b'{"v":1,"kind":"task","seq":' + b"9" * 9000 + b"}", b"[" * 200_000, b'{"a":' * 200_000,
        b"\x00" * (VALUE_BYTES_READ_MAX + 1), bytes(range(256)) * 4096,
    ],
)  # fmt: skip
def test_damaged_value_is_refused(value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        decode_event(value)


@pytest.mark.parametrize("name", EVENTS)
def test_each_field_is_checked_when_its_type_is_wrong(name: str) -> None:
    golden = json.loads((FOLDER / f"{name}.json").read_bytes())
    for field in golden.keys() - {"v", "kind"}:
        with pytest.raises(DecodeError):
            decode_event(json.dumps(golden | {field: {"x": [{}]}}).encode())


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("sample", {"busy_us": [1]}),
        ("sample", {"input_lag": []}),
        ("sample", {"at_ms": 2**62}),
        ("rebalance", {"generation": 2**40}),
        ("rebalance-client", {"sums": {"tasks": "0:0-1", "v": [5]}}),
        *(
            ("rebalance-tasks", {"subs": [SLICE | change]})
            for change in (
                {"sub": "one"},
                {"count": 2**40, "end": None, "weight": None, "racks": None},
                {"first": -1},
                {"end": [1, 2, 3]},
                {"weight": [0.5]},
                {"racks": {"names": ["a"], "p": {"in": [[0]]}}},
                {"racks": {"names": ["a"], "p": {"in": [[0], [1]]}}},
            )
        ),
    ],
)
def test_fields_that_contradict_each_other_are_refused(name: str, change: dict[str, object]) -> None:
    golden = json.loads((FOLDER / f"{name}.json").read_bytes())
    with pytest.raises(DecodeError):
        decode_event(json.dumps(golden | change).encode())


@given(st.sampled_from(sorted(EVENTS)), st.data())
def test_changed_bytes_are_an_event_or_refused(name: str, data: st.DataObject) -> None:
    """No other error leaves the decoder, and what it returns can be written."""
    golden = bytearray((FOLDER / f"{name}.json").read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(golden) - 1))
        golden[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        event = decode_event(bytes(golden))
    except DecodeError:
        return
    if isinstance(event, Event):
        assert decode_event(encode_value(event)) == event


_NUMBERS = ("1e999", "-1e999", "1" + "0" * 400, "-1" + "0" * 400, "1e308", "9223372036854775808")


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("number", _NUMBERS)
def test_number_of_any_size_in_any_place_is_read_or_refused(name: str, number: str) -> None:
    """One record that raises another error would stop each reader of the topic for good."""
    golden = json.loads((FOLDER / f"{name}.json").read_bytes())
    for changed in [*_with_mark_in_each_place(golden), {**golden, "unknown": _MARK}]:
        try:
            decode_event(json.dumps(changed).replace(f'"{_MARK}"', number).encode())
        except DecodeError:
            continue


_MARK = "the-number"


def _with_mark_in_each_place(value: object) -> Iterator[Any]:
    yield _MARK
    if isinstance(value, dict):
        for key, item in value.items():
            yield from ({**value, key: changed} for changed in _with_mark_in_each_place(item))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from ([*value[:at], changed, *value[at + 1 :]] for changed in _with_mark_in_each_place(item))
