"""Make untrusted text safe for terminals and logs.

Control characters move the cursor, change colours or start a new line in a log. Bidirectional marks change the order in
which a line is displayed. Names of topics, groups, connectors and members, tags, and records may contain them.
"""

from __future__ import annotations

import json
import logging
import re
import textwrap
from collections.abc import Callable
from typing import Any, Final

# C0 without tab, DEL and C1; directional marks and isolates; line and paragraph separators; surrogates; the byte order
# mark; invisible tags. Joiners are allowed, because scripts and emoji need them.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def printable(text: str, chars_max: int | None = None) -> str:
    """Return ``text`` on one line, with unsafe characters escaped, such as ``\\x1b``; truncated to ``chars_max``."""
    if chars_max is not None and len(text) > chars_max:
        text = f"{text[:chars_max]}..."
    return text if text.isprintable() else _UNSAFE.sub(_escape, text)


def json_printable(text: str) -> str:
    """Return JSON text with unsafe characters in strings as JSON escapes. Line breaks between members are kept."""
    return _UNSAFE.sub(_json_escape, text)


def printable_lines(text: str) -> str:
    """As :func:`printable`, for text whose line breaks are trusted."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(value: Any) -> str:
    """Return indented JSON text of ``value``, for a terminal. A program that parses it gets the unchanged value."""
    return json_printable(json.dumps(value, indent=2))


def printable_values(value: Any, show: Callable[[str], str] = printable) -> Any:
    """Return a JSON value with ``show`` applied to every text in it, including member names."""
    if isinstance(value, str):
        return show(value)
    if isinstance(value, list | tuple):
        return [printable_values(each, show) for each in value]
    if isinstance(value, dict):
        return {printable_values(name, show): printable_values(each, show) for name, each in value.items()}
    return value


def text_of(error: BaseException) -> str:
    """Return the message of an error, or the name of its type if the message is empty (MemoryError, TimeoutError)."""
    return _own_text(error) or type(error).__name__


def named(error: BaseException) -> str:
    """Return the type and message of an error, or only its type if the message is empty."""
    name, text = type(error).__name__, _own_text(error)
    return f"{name}: {text}" if text else name


def _own_text(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception:  # an error of user code whose __str__ is broken
        return ""


class Lines(str):
    """Text with several lines, such as a traceback, as an argument of a log call."""

    __slots__ = ()

    def __str__(self) -> str:
        # Indented, so that a line break in untrusted text cannot forge a log line.
        return textwrap.indent(printable_lines(self), "  ", lambda _: True)


class PrintableArguments(logging.Filter):
    """A log filter that makes arguments and tracebacks printable. The constant text of a log call is not changed."""

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
        return "\n"  # JSON strings contain no line breaks
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
