"""Text of others has no power over terminals and logs."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.connect.errors import BadRequestError
from streams_py.connect.rest.requests import checked_name
from streams_py.foreign_json import loads
from streams_py.printable import json_printable, printable

UNSAFE = [
    "\x1b",
    "\x00",
    "\n",
    "\r",
    "\x7f",
    "\x9b",
    "\x85",
    "\u2028",
    "\u202e",
    "\u2066",
    "\u200f",
    "\ufeff",
    "\ud800",
    "\U000e0041",
]


@pytest.mark.parametrize("letter", UNSAFE)
def test_letters_that_a_terminal_or_a_log_obeys_become_escapes(letter: str) -> None:
    shown = printable(f"a{letter}b")
    assert shown.startswith("a\\")
    assert letter not in shown
    text = json.dumps(f"a{letter}b", ensure_ascii=False)
    assert letter not in json_printable(text)
    assert json.loads(json_printable(text)) == f"a{letter}b"


def test_other_letters_stay_and_long_text_is_cut() -> None:
    assert printable("é\t\u4e2d \U0001f468\u200d\U0001f469") == "é\t\u4e2d \U0001f468\u200d\U0001f469"
    assert printable("abcdef", 3) == "abc..."


@given(st.text())
def test_any_text_is_one_line_and_comes_back_from_json(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert printable(shown) == shown
    shown.encode()
    assert json.loads(json_printable(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", *(f"a{letter}" for letter in UNSAFE)])
def test_connector_names_that_cannot_stand_in_paths_and_logs_are_refused(name: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        checked_name(name)
    assert printable(str(caught.value)) == str(caught.value)


@pytest.mark.parametrize("name", ["a", "...", "orders sink", "ключ"])
def test_other_connector_names_are_taken(name: str) -> None:
    assert checked_name(name) == name


@given(st.binary() | st.text(st.sampled_from('{}[]":,0123456789.eE+-NaInfity \\ud8')).map(str.encode))
def test_foreign_json_is_read_or_refused_with_one_error(data: bytes) -> None:
    try:
        value = loads(data)
    except ValueError as error:
        assert len(str(error)) < 150  # noqa: PT017
    else:
        json.dumps(value, allow_nan=False)


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b"1" * 5000, b"NaN", b"-Infinity", b"1e999", b"\xff", b"", '{"secret"']
)
def test_texts_that_the_standard_library_stumbles_over_are_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match="it is not JSON") as caught:
        loads(text)
    assert "secret" not in str(caught.value)
