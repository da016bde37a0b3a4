"""Blocks of code on a page, and instructions for its test in comments that a reader does not see.

A comment stands alone, between two blank lines:

* ``<!-- not run: reason -->``: the next block cannot run here.
* ``<!-- test`` ... ``-->``: Python for the test only: preconditions of the page, or checks at this point.
* ``<!-- fails -->``: the next block of shell commands must exit with a status other than 0.
* ``<!-- output -->``: the next block is the output of the commands before it; ``...`` matches anything.
* ``<!-- terminal 1 shows TEXT -->``: wait until that terminal shows the text.
* ``<!-- terminal 1 ctrl-c -->``, ``<!-- terminal 1 kill -->``: actions of the reader there (``kill``: SIGKILL).

A block with ``title="app.py"`` is a file in the reader's folder. One with ``title="Terminal 1"`` keeps running there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CODE: Final = {"python", "sh", "toml", "properties", "yaml", "json", "java", "dockerfile"}
"""Languages that are checked; ``text`` and blocks without a language are pictures."""

_PART: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w+-]*)(?P<info>[^\n]*)\n(?P<code>.*?)^ *```$"
    r"|^<!--(?P<comment>.*?)-->$",
    re.DOTALL | re.MULTILINE,
)
_TITLE: Final = re.compile(r'title="([^"]*)"')


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    line: int  # of its first line of code
    language: str
    title: str
    code: str
    not_run: str = ""  # why


@dataclass(frozen=True)
class Comment:
    """An instruction of the page for its test."""

    line: int
    text: str


def parts_of(page: Path) -> Iterator[Block | Comment]:
    """Blocks and comments of a page, from top to bottom."""
    text = page.read_text(encoding="utf-8")
    reason = ""
    for match in _PART.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["comment"] is not None:
            comment = match["comment"].strip()
            if comment.startswith("not run"):
                reason = comment.removeprefix("not run").lstrip(": ") or "?"
            else:
                yield Comment(line, comment)
            continue
        indent = match["indent"]
        code = "".join(row.removeprefix(indent) for row in match["code"].splitlines(keepends=True))
        title = _TITLE.search(match["info"])
        yield Block(line + 1, match["language"], title[1] if title else "", code, reason)
        reason = ""
