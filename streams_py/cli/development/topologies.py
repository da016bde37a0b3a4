"""``streams-py topology``: prints topologies of user code."""

from __future__ import annotations

from streams_py.cli.usage import refuse
from streams_py.history.loading import TopologyNotFoundError, load_topology


def building(*, optimize: bool) -> dict[str, object]:
    """Return the settings with which a builder is built, for ``--optimize``."""
    return {"topology.optimization": "all"} if optimize else {}


def describe_topology(what: str, *, optimize: bool, form: str = "text") -> int:
    """Print ``module:name`` or ``file.py[:name]`` as text or picture (svg, mermaid, dot).

    Returns the exit status.
    """
    try:
        topology = load_topology(what, building(optimize=optimize))
    except TopologyNotFoundError as error:
        return refuse(error)
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
