"""Commands of ``streams-py``, run in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from streams_py.cli.commands import app

WIDE = {"TERM": "dumb", "NO_COLOR": "1"}


def run(*arguments: str, columns: int = 200) -> Result:
    return CliRunner().invoke(app, list(arguments), env=WIDE | {"COLUMNS": str(columns)})


def one_sentence(result: Result) -> str:
    """Return the error message of a command that was used wrongly."""
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    return line
