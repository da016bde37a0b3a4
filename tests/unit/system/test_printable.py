"""Text of others has no power over terminals and logs."""

from __future__ import annotations

import json
import logging
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_protocol.types import ProcessId
from streams_py.connect.errors import BadRequestError
from streams_py.connect.rest.requests import checked_name
from streams_py.connect.stores.configs import ConfigTable
from streams_py.dashboard.board import Board
from streams_py.inspection.labels import named
from streams_py.system.foreign_json import loads
from streams_py.system.printable import (
    Lines,
    json_printable,
    printable,
    printable_json,
    printable_lines,
    printable_values,
)

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


def test_json_and_lines_for_terminals_keep_their_shape() -> None:
    value = {"a\x9b": ["x\x7f\u202e", 1, None]}
    assert json.loads(printable_json(value)) == value
    assert printable_json(value).isascii()
    assert "\x7f" not in printable_json(value)
    assert printable_lines("a\x1b\n  b\r") == "a\\x1b\n  b\\r"
    assert printable_values({"a\n": ("b\x9b", 1.5)}) == {"a\\n": ["b\\x9b", 1.5]}


def test_log_lines_of_connect_are_safe_whatever_is_named_in_them(caplog: pytest.LogCaptureFixture) -> None:
    table = ConfigTable()
    table.apply("commit-a\x9b\nERROR forged".encode(), b"{}", 1)
    table.apply("x\u202e".encode(), b"{}", 2)
    assert len(caplog.messages) == 2
    for message in caplog.messages:
        assert printable(message) == message


def test_tracebacks_in_logs_of_connect_cannot_look_like_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("streams_py.connect")
    error = ValueError("bad\nERROR forged\x1b[2J")
    try:
        raise error
    except ValueError:
        log.exception("%s: failed after %d", "c\x1b", 3)
    log.error("%s has failed\n%s", error, Lines("first\nsecond\x9b"))
    for line in caplog.text.splitlines():
        assert not line.startswith("ERROR forged")
        assert printable(line) == line
    assert "c\\x1b: failed after 3" in caplog.text
    assert "  second\\x9b" in caplog.text


def test_names_of_clients_and_texts_of_the_dashboard_are_safe() -> None:
    process = ProcessId(uuid.UUID(int=1))
    assert named(f"on {process}", {process: "a\x1b\nb"}) == "on a\\x1b\\nb"
    board = Board()
    board.publish("trouble", {"text": "one\ntwo\u202e"})
    ((_, _, text),) = board.since({})
    assert json.loads(text) == {"text": "one\ntwo\\u202e"}
