"""Finds topics whose names were made by counting operators: an operator added above another one gives it a new number,
and then a new, empty topic, while what is in the old one is forgotten (KIP-1111).
"""

from __future__ import annotations

import logging
import re
from typing import Final

from streams_py.errors import TopologyError
from streams_py.topology.declare.names import changelog_topic
from streams_py.topology.declare.nodes import SourceNode
from streams_py.topology.topology import Topology

__all__ = ["check_generated_names", "generated_names"]

_GENERATED: Final = re.compile(r"(?:KSTREAM|KTABLE|COGROUPKSTREAM)-.*[0-9]{10}|.*-STATE-STORE-[0-9]{10}")
_log = logging.getLogger("streams_py")


def generated_names(topology: Topology) -> dict[str, str | None]:
    """Internal topics (short names) that are called after a generated name, each with the line that describes it.

    Those of optimised source tables and of stores that are not logged have none.
    """
    found: dict[str, str | None] = {}
    for node in topology.nodes:
        if isinstance(node, SourceNode) and node.is_internal:
            found |= {topic: topology.where(node.name) for topic in node.topics if _GENERATED.match(topic)}
    for name, store in topology.stores.items():
        if store.logging and store.source_topic is None and _GENERATED.match(name):
            lines = (topology.where(user) for user in topology.processors_of(name))
            found[changelog_topic(name)] = next(lines, None)
    return found


def check_generated_names(topology: Topology, *, forbidden: bool) -> None:
    """A warning that names them all, or, if they are ``forbidden``, a TopologyError."""
    found = generated_names(topology)
    if not found:
        return
    told = "; ".join(topic if line is None else f"{topic} ({line})" for topic, line in found.items())
    message = (
        "internal topics with generated names, which change when operators are added or removed above them, so that "
        f"state and records in them are lost to a new version: {told}. Give store= there, or name= where it has no "
        "store="
    )
    if forbidden:
        raise TopologyError(f"{message}, or set ensure.explicit.internal.resource.naming to false")
    _log.warning("%s", message)
