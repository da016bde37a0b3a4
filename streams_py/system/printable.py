"""Text that others can choose, made safe for terminals and logs.

Control characters move the cursor, change colours or begin a new line of a log. Bidirectional marks make a line read
in another order than it is stored. Topics, groups, connectors, members, tags and records of others may have them.
"""

from __future__ import annotations

import json
import logging
import re
import textwrap
from collections.abc import Callable
from typing import Any, Final

__all__ = [
    "Lines",
    "PrintableArguments",
    "json_printable",
    "named",
    "printable",
    "printable_json",
    "printable_lines",
    "printable_values",
    "text_of",
]

# C0 without tab, DEL and C1; marks and isolates of direction; line and paragraph separators; surrogates; the byte order
# mark; invisible tags. Joiners stay: scripts and emoji need them.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def printable(text: str, chars_max: int | None = None) -> str:
    """``text`` on one line, with unsafe characters as escapes such as ``\\x1b``; cut after ``chars_max`` characters."""
    if chars_max is not None and len(text) > chars_max:
        text = f"{text[:chars_max]}..."
    return text if text.isprintable() else _UNSAFE.sub(_escape, text)


def json_printable(text: str) -> str:
    """A JSON text with unsafe characters inside of its strings as JSON escapes. Line breaks between members stay."""
    return _UNSAFE.sub(_json_escape, text)


def printable_lines(text: str) -> str:
    """As :func:`printable`, for text whose line breaks are our own."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(value: Any) -> str:
    """Indented JSON text of ``value``, for a terminal. A program that parses it gets the value unchanged."""
    return json_printable(json.dumps(value, indent=2))


def printable_values(value: Any, show: Callable[[str], str] = printable) -> Any:
    """A JSON value with ``show`` applied to every text in it, names of members included."""
    if isinstance(value, str):
        return show(value)
    if isinstance(value, list | tuple):
        return [printable_values(each, show) for each in value]
    if isinstance(value, dict):
        return {printable_values(name, show): printable_values(each, show) for name, each in value.items()}
    return value


def text_of(error: BaseException) -> str:
    """The error's own text; the name of its type when it has none, as MemoryError and TimeoutError often have."""
    return _own_text(error) or type(error).__name__


def named(error: BaseException) -> str:
    """Type and text of an error, or its type alone when it has no text."""
    name, text = type(error).__name__, _own_text(error)
    return f"{name}: {text}" if text else name


def _own_text(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception:  # an error of user code whose __str__ is broken
        return ""


class Lines(str):
    """Text of several lines, such as a traceback, as an argument of a log call."""

    __slots__ = ()

    def __str__(self) -> str:
        # Indented, so that text of others that has line breaks cannot look like a log line.
        return textwrap.indent(printable_lines(self), "  ", lambda _: True)


class PrintableArguments(logging.Filter):
    """Makes arguments and tracebacks of a logger's records printable. The constant text of a log call stays."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(arg if isinstance(arg, int | float | Lines) else _Shown(arg) for arg in record.args)
        if record.exc_info and not record.exc_text:
            record.exc_text = str(Lines(logging.Formatter().formatException(record.exc_info)))
        return True


class _Shown:
    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return printable(str(self._value))

    def __repr__(self) -> str:
        return printable(repr(self._value))


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _json_escape(found: re.Match[str]) -> str:
    if found[0] == "\n":
        return "\n"  # JSON has none inside of strings
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
