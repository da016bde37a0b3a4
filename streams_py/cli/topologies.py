"""``streams-py topology``."""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

from streams_py import StreamsBuilder, Topology
from streams_py.cli.usage import refuse
from streams_py.errors import StreamsError

__all__ = ["describe_topology"]


def describe_topology(what: str, *, optimize: bool, form: str = "text") -> int:
    """Print ``module:name`` or ``file.py[:name]`` as text, or as a picture (svg, mermaid, dot); the exit status."""
    module_name, _, name = what.partition(":")
    is_file = module_name.endswith(".py")
    if not module_name or not (name or is_file):
        return refuse(f"{what!r} is neither module:name, for example my_app.main:build_topology, nor a file app.py")
    sys.path.insert(0, str(Path(module_name).parent if is_file else Path.cwd()))
    try:
        found: object = runpy.run_path(module_name) if is_file else vars(importlib.import_module(module_name))
    except Exception as error:  # importing runs user code
        return refuse(f"module {module_name} cannot be imported: {type(error).__name__}: {error}")
    finally:
        sys.path.pop(0)
    assert isinstance(found, dict)
    names = name.split(".") if name else _candidates(found)
    if not name and len(names) != 1:
        choice = ", ".join(names) or "no topology, and no function build_topology"
        return refuse(f"{module_name} has {choice}: say which with {module_name}:name")
    for part in names:
        members = found if isinstance(found, dict) else vars(found)
        if not (part in members or hasattr(found, part)):
            return refuse(f"module {module_name} has no {name}")
        found = members[part] if part in members else getattr(found, part)
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
    match form:
        case "svg":
            print(topology.to_svg(), end="")
        case "mermaid":
            print(topology.to_mermaid(), end="")
        case "dot":
            print(topology.to_dot(), end="")
        case _:
            print(topology.describe())
    return 0


def _candidates(module: Mapping[str, object]) -> list[str]:
    """What a file without a name can only mean: its topology, else its builder, else a function of a usual name."""
    for kind in (Topology, StreamsBuilder):
        found = [name for name, value in module.items() if isinstance(value, kind)]
        if found:
            return found
    return [name for name in ("build_topology", "topology", "build") if callable(module.get(name))]


def _topology(found: object, *, optimize: bool) -> Topology | None:
    if callable(found) and not isinstance(found, StreamsBuilder | Topology):
        found = found()
    if isinstance(found, StreamsBuilder):
        return found.build({"topology.optimization": "all"} if optimize else None)
    return found if isinstance(found, Topology) else None
