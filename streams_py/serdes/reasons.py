"""The reason why a serde refused a value or bytes, as text without the value.

Messages of this package's errors contain no values. Messages of other libraries and of users' serdes may quote data,
such as ``invalid literal for int(): '4111 1111 ...'``. For those, the reason has only the type of the error, the
position if the error has one, and the line that raised it.
"""

from __future__ import annotations

import re
import struct
from pathlib import PurePath
from types import TracebackType
from typing import Final

from streams_py.errors import StreamsError
from streams_py.serdes.round_trips import UnfitError
from streams_py.system.printable import printable

_OURS: Final = "streams_py."
_QUOTED: Final = re.compile(r"'.*'", re.DOTALL)
_NAMED: Final = re.compile(r"(unknown field) `.*`", re.DOTALL)
_CHARS_MAX: Final = 300


def reason_of(error: BaseException) -> str:
    """Return the reason as one phrase, without a trailing period."""
    return printable(_reason(error), _CHARS_MAX).rstrip(".") or type(error).__name__


def is_without_values(error: BaseException) -> bool:
    """Whether the error's message shows no part of a record, so that the error may be chained to another error."""
    return _own_text(error) is not None


def cause_of(error: Exception) -> Exception | None:
    """Return the error to chain to a reported error. None if its message, in a traceback, may show record contents."""
    return error if is_without_values(error) else None


def _reason(error: BaseException) -> str:
    own = _own_text(error)
    if own is not None:
        return own
    if isinstance(error, UnicodeError):
        return _encoding_reason(error)
    if type(error).__module__.partition(".")[0] == "msgspec":
        return _NAMED.sub(r"\1", _QUOTED.sub("...", str(error)))
    position = getattr(error, "pos", None)
    at = f" at position {position}" if isinstance(position, int) else ""
    line = _line(error)
    return f"{type(error).__name__}{at}{'' if line is None else f' ({line})'}"


def _own_text(error: BaseException) -> str | None:
    """Return the message of an error that this package, or a built-in function that it called, raised. Else None."""
    if isinstance(error, UnfitError | StreamsError | struct.error):
        return str(error)
    if isinstance(error, UnicodeError) or type(error).__module__ != "builtins":
        return None
    last = _last(error)
    if last is None or str(last.tb_frame.f_globals.get("__name__", "")).startswith(_OURS):
        return str(error)
    return None


def _encoding_reason(error: UnicodeError) -> str:
    if isinstance(error, UnicodeDecodeError | UnicodeEncodeError):
        what = "bytes" if isinstance(error, UnicodeDecodeError) else "text"
        how = "decoded" if isinstance(error, UnicodeDecodeError) else "encoded"
        return f"{what} at position {error.start} cannot be {how} as {error.encoding}"
    return type(error).__name__


def _last(error: BaseException) -> TracebackType | None:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at


def _line(error: BaseException) -> str | None:
    last = _last(error)
    return None if last is None else f"{PurePath(last.tb_frame.f_code.co_filename).name}, line {last.tb_lineno}"
