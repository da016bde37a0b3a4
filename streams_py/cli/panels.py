"""The commands of ``streams-py`` and their headings. A command's module is loaded when the command is used."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import typer.core
import typer.main

from streams_py.cli.usage import FAILED, refuse, say


class Listed(NamedTuple):
    """A command in the list of commands."""

    place: str
    """``module:name`` below ``streams_py.cli`` of a function, or of a Typer application with commands of its own."""
    summary: str
    """The first sentence of the command's help, known without loading the module."""


PANELS: Final = {
    "Start and run": {
        "new": Listed("development.new_app:app", "Create a starter project."),
        "run": Listed(
            "running:run", "Run a topology until Ctrl-C or SIGTERM, in [bold]one or several processes[/bold]."
        ),
        "connect": Listed("connect.commands:app", "Run and inspect a group of workers that run connectors."),
    },
    "Topics and records": {
        "topics": Listed("records.topics:topics", "List the topics of a cluster, or create one."),
        "produce": Listed(
            "records.producing:produce", "Write records to a topic: one per argument, or per line of standard input."
        ),
        "consume": Listed(
            "records.consuming:consume",
            "Print the records of a topic from the beginning: key, tab, value. Joins no consumer group.",
        ),
    },
    "Inspect a group, Java or Python": {
        "inspect": Listed(
            "groups.inspecting:inspect", "Show the members, tasks and lags of a group, [bold]Java or Python[/bold]."
        ),
        "dashboard": Listed(
            "groups.watching:dashboard", "Serve a page that shows a group live, [bold]Java or Python[/bold]."
        ),
        "explain": Listed("groups.explain:explain", "Explain why a task is where it is."),
        "reset": Listed(
            "groups.resetting:reset", "Reset an application, Java or Python, [bold]to its beginning[/bold]."
        ),
    },
    "Before you deploy a change": {
        "topology": Listed("development.topologies:app", "Print or draw a topology: streams-py topology app.py."),
        "check-upgrade": Listed(
            "development.upgrades:check_upgrade",
            "Check whether a new version can be deployed over the state of the old version.",
        ),
        "diff": Listed(
            "spark.diff:diff", "Run two versions of a topology over the same history, and compare their outputs."
        ),
        "simulate": Listed(
            "development.simulating:simulate",
            "Test whole groups of real leaders and members in virtual time, with faults of every kind.",
        ),
        "torture": Listed("development.torturing:torture", "Run an application on a real cluster and inject faults."),
    },
    "Months of history, on Spark": {
        "bootstrap": Listed(
            "spark.bootstrap:bootstrap_app", "Start an application warm: build its state from its history on Spark."
        ),
        "backfill": Listed(
            "spark.backfill:backfill", "Run a topology over its whole history and write its outputs to files or topics."
        ),
        "telemetry": Listed("spark.telemetry:app", "Show what the rebalances of a group did and cost."),
        "backtest": Listed(
            "spark.backtest:app", "Show what another assignor or setting would have done in the recorded rebalances."
        ),
    },
    "About": {"version": Listed("versions:version", "Print the versions that a bug report needs.")},
}
"""Commands by heading, in the order in which ``--help`` shows them."""
_UsageError: Final[Any] = typer.BadParameter.__base__
"""Click's class.

Newer releases of typer contain a copy of click, so this takes the class that typer uses.
"""


class _Commands(Mapping[str, Any]):
    """Name -> command, loaded on access."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            place, summary = ChainMap(*PANELS.values())[name]
            self._loaded[name] = _load(name, place, summary)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return (name for listed in PANELS.values() for name in listed)

    def __len__(self) -> int:
        return sum(map(len, PANELS.values()))


class ByPanel(typer.core.TyperGroup):
    """The commands of :data:`PANELS`, in their order and under their headings."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.commands: Any = _Commands()
        self._only_lists = False

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
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None. A list of commands gets its name and summary alone, which loads nothing."""
        if not self._only_lists:
            return self.commands.get(cmd_name)
        panel, listed = next((panel, listed) for panel, listed in PANELS.items() if cmd_name in listed)
        return typer.core.TyperCommand(cmd_name, help=listed[cmd_name].summary, rich_help_panel=panel)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextlib.contextmanager
    def _listing(self) -> Iterator[None]:
        self._only_lists = True
        try:
            yield
        finally:
            self._only_lists = False


def _load(name: str, place: str, summary: str) -> Any:
    """Import the module of a command and return the command."""
    module, _, attribute = place.partition(":")
    found = getattr(importlib.import_module(f"streams_py.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
        command.help = command.help or summary
    else:
        alone = typer.Typer(rich_markup_mode="rich", add_completion=False)
        alone.command(name)(found)
        command = typer.main.get_command(alone)
    command.name = name
    _let_flow(command)
    return command


def _let_flow(command: Any) -> None:
    """Join the lines of each paragraph in a command's help, so that the terminal wraps them.

    Keeps indented text.
    """
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(text if text.startswith(" ") else " ".join(text.split()) for text in paragraphs)
    for below in getattr(command, "commands", {}).values():
        _let_flow(below)
