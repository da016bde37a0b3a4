"""Text that others can choose, made safe for terminals and logs.

Control characters move the cursor, change colours or begin a new line of a log. Bidirectional marks make a line read
in another order than it is stored. Topics, groups, connectors, members, tags and records of others may have them.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["json_printable", "printable"]

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


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _json_escape(found: re.Match[str]) -> str:
    if found[0] == "\n":
        return "\n"  # JSON has none inside of strings
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
