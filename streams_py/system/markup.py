"""Untrusted text within markup of rich.

Escaping markup is not enough: control characters would still reach the terminal.
"""

from __future__ import annotations

from rich.markup import escape

from streams_py.system.printable import printable


def plain_text(text: str) -> str:
    """Return markup that shows ``text`` on one line, with control characters escaped."""
    return escape(printable(text))
