"""How a topology is sent to the process that runs it: as a name, or as the object itself.

A name is better: the worker imports it as the application does. An object, as in a notebook, is sent by value with
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

GivenTopology: TypeAlias = "Topology | StreamsBuilder | Callable[[], Topology | StreamsBuilder] | str"
"""A topology, a builder, a function that returns one of these, or ``module:name``."""


@dataclass(frozen=True, slots=True)
class TopologySource:
    """A topology as the user passed it, and the settings. ``topology.optimization`` matters when it is built."""

    given: Any
    config: Mapping[str, object]

    def build(self) -> Topology:
        """Build the topology in this process. Raises TopologyError when that is not possible."""
        return built(self.given, self.config)


def built(given: Any, config: Mapping[str, object]) -> Topology:
    """Return the topology that ``given`` refers to. Raises TopologyError when it does not refer to one."""
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
