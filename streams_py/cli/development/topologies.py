"""``streams-py topology``: prints topologies of user code."""

from __future__ import annotations

from typing import Annotated, Any

import typer
import typer.core

from streams_py.cli.usage import refusing
from streams_py.history.loading import load_topology


class _DescribeByDefault(typer.core.TyperGroup):
    """Read ``streams-py topology app.py`` as ``streams-py topology describe app.py``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["describe", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", cls=_DescribeByDefault)


@app.command()
@refusing
def describe(
    what: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME|FILE.PY[:NAME]", help="A StreamsBuilder, a Topology, or a function that returns one."
        ),
    ],
    optimize: Annotated[bool, typer.Option(help="Build with topology.optimization=all.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="Print an SVG picture instead.")] = False,
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print a Mermaid flowchart instead, for Markdown.")
    ] = False,
    dot: Annotated[bool, typer.Option("--dot", help="Print a Graphviz graph instead.")] = False,
) -> int:
    """Print a topology in the format of Kafka Streams' Topology.describe().

    The output lists sub-topologies, processors, stores and topics.

    Examples:

      streams-py topology describe my_app.main:build_topology

      streams-py topology app.py --svg > topology.svg
    """
    if svg + mermaid + dot > 1:
        raise typer.BadParameter("give only one of --svg, --mermaid and --dot")
    topology = load_topology(what, building(optimize=optimize))
    if svg:
        print(topology.to_svg(), end="")
    elif mermaid:
        print(topology.to_mermaid(), end="")
    elif dot:
        print(topology.to_dot(), end="")
    else:
        print(topology.describe())
    return 0


def building(*, optimize: bool) -> dict[str, object]:
    """Return the settings with which a builder is built, for ``--optimize``."""
    return {"topology.optimization": "all"} if optimize else {}
