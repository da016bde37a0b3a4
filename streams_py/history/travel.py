"""How a topology gets to the process that runs it: as a name, and where there is none, as the object itself.

A name is better: the worker imports it like the application does. An object goes by value, as notebooks need it, with
everything that its functions refer to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from streams_py.errors import TopologyError
from streams_py.history.loading import load_topology
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology

__all__ = ["GivenTopology", "TopologySource", "built"]

GivenTopology: TypeAlias = "Topology | StreamsBuilder | Callable[[], Topology | StreamsBuilder] | str"
"""A topology, what builds one, or ``module:name``."""


@dataclass(frozen=True, slots=True)
class TopologySource:
    """What is given for a topology; ``config`` has the keys that matter when it is built."""

    given: Any
    config: Mapping[str, object]

    def build(self) -> Topology:
        """The topology, here and now. TopologyError when there is none."""
        return built(self.given, self.config)


def built(given: Any, config: Mapping[str, object]) -> Topology:
    """The topology that ``given`` stands for. TopologyError when it stands for none."""
    wanted = {key: config[key] for key in ("topology.optimization",) if key in config}
    if isinstance(given, str):
        return load_topology(given, wanted)
    if callable(given) and not isinstance(given, StreamsBuilder | Topology):
        given = given()
    if isinstance(given, StreamsBuilder):
        given = given.build(wanted)
    if not isinstance(given, Topology):
        raise TopologyError(
            f"expected a Topology, a StreamsBuilder, a function that returns one, or module:name; got "
            f"{type(given).__name__}"
        )
    return given
