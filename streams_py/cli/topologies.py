"""``streams-py topology``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import typer

from streams_py import StreamsBuilder, Topology
from streams_py.errors import StreamsError

__all__ = ["describe_topology"]

_USAGE = 2


def describe_topology(what: str, *, optimize: bool) -> int:
    """Print the description of ``module:name``; the exit status."""
    module_name, colon, name = what.partition(":")
    if not colon or not module_name or not name:
        typer.echo(f"{what!r} is not of the form module:name, for example my_app.main:build_topology", err=True)
        return _USAGE
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:  # importing runs user code
        typer.echo(f"module {module_name} cannot be imported: {type(error).__name__}: {error}", err=True)
        return _USAGE
    finally:
        sys.path.pop(0)
    for part in name.split("."):
        if not hasattr(found, part):
            typer.echo(f"module {module_name} has no {name}", err=True)
            return _USAGE
        found = getattr(found, part)
    try:
        topology = _topology(found, optimize=optimize)
    except StreamsError as error:
        typer.echo(f"{what}: {error}", err=True)
        return 1
    if topology is None:
        typer.echo(
            f"{what} is a {type(found).__name__}; give a StreamsBuilder, a Topology, or a function without arguments "
            "that returns one",
            err=True,
        )
        return _USAGE
    typer.echo(topology.describe())
    return 0


def _topology(found: object, *, optimize: bool) -> Topology | None:
    if callable(found) and not isinstance(found, StreamsBuilder | Topology):
        found = found()
    if isinstance(found, StreamsBuilder):
        return found.build({"topology.optimization": "all"} if optimize else None)
    return found if isinstance(found, Topology) else None
