"""The root of ``streams-py``: its options. :mod:`streams_py.cli.panels` lists the commands."""

from __future__ import annotations

from typing import Annotated

import typer

from streams_py.cli.panels import ByPanel

app = typer.Typer(
    name="streams-py",
    cls=ByPanel,
    help="Kafka Streams for Python: run applications, inspect groups, check a change before you deploy it.",
    epilog="Help for a command: streams-py COMMAND --help",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        typer.echo(f"kafka-streams-py {metadata.version('kafka-streams-py')}")
        raise typer.Exit


@app.callback()
def _common(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that come before a command's name."""
