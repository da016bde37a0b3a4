"""The command as a whole: ``--help`` shows what it can do under headings, in the order in which people meet it; and
wrong usage is one sentence, as all else is that it cannot do."""

from __future__ import annotations

import sys
from typing import Any, Final

import typer.core

from streams_py.cli.usage import FAILED, refuse, say

__all__ = ["PANELS", "ByPanel"]

PANELS: Final = {
    "Begin and run": ("new", "run", "connect"),
    "Topics and records": ("topics", "produce", "consume"),
    "Look at a group, Java or Python": ("inspect", "dashboard", "explain", "reset"),
    "Before a change goes out": ("topology", "check-upgrade", "diff", "simulate", "torture", "fuzz"),
    "Months of history, on Spark": ("bootstrap", "backfill", "telemetry", "backtest"),
    "About": ("version",),
}
"""The commands as ``--help`` shows them."""
_UsageError: Final[Any] = typer.BadParameter.__base__
"""Click's, or that of the copy of click which newer releases of typer carry."""


class ByPanel(typer.core.TyperGroup):
    """Commands in the order and under the headings of :data:`PANELS`."""

    def main(self, *args: Any, **options: Any) -> Any:
        """As typer's, without its boxes round complaints."""
        try:
            sys.exit(super().main(*args, **(options | {"standalone_mode": False})))
        except typer.Abort:
            say("a question was not answered: nothing was done")
            sys.exit(FAILED)
        except _UsageError as wrong:
            message = wrong.format_message()  # empty: it has shown the help that was missing
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
    """Lines of a docstring end where the editor wanted it; its paragraphs end where the terminal does. What is indented
    stays as it is."""
    if command is None:
        return
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(text if text.startswith(" ") else " ".join(text.split()) for text in paragraphs)
    for below in getattr(command, "commands", {}).values():
        _let_flow(below)
