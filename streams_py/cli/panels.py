"""The command group: lists commands under headings, and reports wrong usage in one sentence."""

from __future__ import annotations

import sys
from typing import Any, Final

import typer.core

from streams_py.cli.usage import FAILED, refuse, say

PANELS: Final = {
    "Start and run": ("new", "run", "connect"),
    "Topics and records": ("topics", "produce", "consume"),
    "Inspect a group, Java or Python": ("inspect", "dashboard", "explain", "reset"),
    "Before you deploy a change": ("topology", "check-upgrade", "diff", "simulate", "torture", "fuzz"),
    "Months of history, on Spark": ("bootstrap", "backfill", "telemetry", "backtest"),
    "About": ("version",),
}
"""Commands by heading, in the order in which ``--help`` shows them."""
_UsageError: Final[Any] = typer.BadParameter.__base__
"""Click's class.

Newer releases of typer contain a copy of click, so this takes the class that typer uses.
"""


class ByPanel(typer.core.TyperGroup):
    """Commands in the order and under the headings of :data:`PANELS`."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run as typer does, but report errors without boxes."""
        try:
            sys.exit(super().main(*args, **(options | {"standalone_mode": False})))
        except typer.Abort:
            say("a question was not answered; nothing was done")
            sys.exit(FAILED)
        except _UsageError as wrong:
            message = wrong.format_message()  # empty if click has already printed the help
            if not message:
                sys.exit(wrong.exit_code)
            see = " See" if message.endswith("?") else "; see"  # did you mean ...?
            help_ = f"{see} {wrong.ctx.command_path} --help" if wrong.ctx else ""
            sys.exit(refuse(message.rstrip(".") + help_))

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in PANELS.values() for name in names]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        for panel, names in PANELS.items():
            if cmd_name in names:
                command.rich_help_panel = panel  # type: ignore[union-attr]
        _let_flow(command)
        return command


def _let_flow(command: Any) -> None:
    """Join the lines of each paragraph in a command's help, so that the terminal wraps them.

    Keeps indented text.
    """
    if command is None:
        return
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(text if text.startswith(" ") else " ".join(text.split()) for text in paragraphs)
    for below in getattr(command, "commands", {}).values():
        _let_flow(below)
