"""The page of the command line. Typer writes it from the commands themselves, as ``typer MODULE utils docs`` does."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import textwrap
from typing import Final

_INTRO: Final = """# Command line

`streams-py` comes with the extra `cli`. `python -m streams_py` is the same. `streams-py COMMAND --help` explains each
command.

A command that could not do its work prints the reason in one sentence, and its exit status is 2. Examples are wrong
usage, an unknown group, and a cluster that does not answer or rejects the request. With exit status 1 the command did
its work and found something bad.

"""
_EXAMPLE: Final = re.compile(r"^Example: (?=streams-py )")
_LIST: Final = re.compile(r"^\*\*Commands\*\*:\n\n(?:\* .*\n)+\n", re.MULTILINE)
"""Typer's lists of commands, whose texts are cut. The page's table of contents has the commands, too."""

_PROGRAM: Final = ("--name", "streams-py", "--title", "Command line")


def page() -> str:
    """Return the whole page."""
    command = [sys.executable, "-m", "typer", "streams_py.cli.commands", "utils", "docs", *_PROGRAM]
    written = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    commands = _LIST.sub("", written[written.index("**Usage**:") :])
    text = "\n\n".join(_paragraph(paragraph) for paragraph in commands.split("\n\n"))
    return _INTRO + text.replace("\n```\n\n```text\n", "\n")


def _paragraph(text: str) -> str:
    """Show examples, which are indented by two spaces or follow ``Example:``, as blocks of code."""
    example = _EXAMPLE.sub("  ", text)
    if not example.startswith("  "):
        return text
    return f"```text\n{html.unescape(textwrap.dedent(example)).strip()}\n```"
