"""The page of the command line, made from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

_INTRO = """# Command line

`streams-py` comes with the extra `cli`. `python -m streams_py` is the same. `streams-py COMMAND --help` explains each
command.

A command that could not do its work prints the reason in one sentence, and its exit status is 2. Examples are wrong
usage, an unknown group, and a cluster that does not answer or rejects the request. With exit status 1 the command did
its work and found something bad.
"""


def page() -> str:
    """The whole page."""
    import typer.main

    from streams_py.cli.commands import app

    root = typer.main.get_command(app)
    parts = [_INTRO]
    for path, command in _commands(root, "streams-py"):
        parts.append(f"## `{path.removeprefix('streams-py ')}`\n")
        parts.append(_help(command.help or ""))
        parts.append(_parameters(path, command))
    return "\n".join(parts)


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name in sorted(below):
        yield from _commands(below[name], f"{path} {name}")


def _help(text: str) -> str:
    """Markdown of a command's help: bold, and examples as blocks."""
    text = re.sub(r"\[/?bold\]", "**", inspect.cleandoc(text).replace("\\[", "["))
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.lstrip().startswith(("streams-py ", "{")):
            example = inspect.cleandoc(paragraph)
            paragraphs.append(f"```text\n{example}\n```")
        elif match := re.match(r"Example: (streams-py .*)", paragraph, re.DOTALL):
            paragraphs.append(f"Example:\n\n```text\n{match[1]}\n```")
        else:
            paragraphs.append(" ".join(paragraph.split()))
    return "\n\n".join(paragraphs).replace("\n```\n\n```text\n", "\n") + "\n"


def _parameters(path: str, command: Any) -> str:
    arguments, rows = [], []
    for parameter in command.params:
        shown = parameter.metavar or parameter.name.upper()
        text = re.sub(r"\[/?\w+\]", "", parameter.help or "").replace("|", "\\|")
        if parameter.param_type_name == "argument":
            arguments.append(shown if parameter.required else f"[{shown}]")
            rows.append((shown, text))
        elif parameter.name != "help":
            names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
            rows.append((names, text + _default(parameter)))
    usage = " ".join([path, "[OPTIONS]", *arguments])
    table = "".join(f"| {name} | {text} |\n" for name, text in rows)
    return f"```text\n{usage}\n```\n\n" + (f"| option | what it is |\n|---|---|\n{table}" if table else "")


def _default(parameter: Any) -> str:
    if parameter.required:
        return " Required."
    if parameter.is_flag or parameter.default in (None, "", (), []) or callable(parameter.default):
        return ""
    return f" Default: `{parameter.default}`."
