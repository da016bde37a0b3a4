"""``streams-py topology``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from streams_py import StreamsBuilder, Topology
from streams_py.cli.usage import refuse
from streams_py.errors import StreamsError

__all__ = ["describe_topology"]


def describe_topology(what: str, *, optimize: bool) -> int:
    """Print the description of ``module:name``; the exit status."""
    module_name, colon, name = what.partition(":")
    if not colon or not module_name or not name:
        return refuse(f"{what!r} is not of the form module:name, for example my_app.main:build_topology")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:  # importing runs user code
        return refuse(f"module {module_name} cannot be imported: {type(error).__name__}: {error}")
    finally:
        sys.path.pop(0)
    for part in name.split("."):
        if not hasattr(found, part):
            return refuse(f"module {module_name} has no {name}")
        found = getattr(found, part)
    try:
        topology = _topology(found, optimize=optimize)
    except StreamsError as error:
        return refuse(f"{what}: {error}")
    except Exception as error:  # building runs user code
        return refuse(f"{what} cannot be built: {type(error).__name__}: {error}")
    if topology is None:
        return refuse(
            f"{what} is of type {type(found).__name__}; give a StreamsBuilder, a Topology, or a function without "
            "arguments that returns one"
        )
    print(topology.describe())
    return 0


def _topology(found: object, *, optimize: bool) -> Topology | None:
    if callable(found) and not isinstance(found, StreamsBuilder | Topology):
        found = found()
    if isinstance(found, StreamsBuilder):
        return found.build({"topology.optimization": "all"} if optimize else None)
    return found if isinstance(found, Topology) else None
