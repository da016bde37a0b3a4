"""Detection of internal topics whose names contain a counter of operators (KIP-1111).

An operator added before another one changes the number in its name. Then the topic is new and empty, and the content of
the old topic is no longer used.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from streams_py.errors import TopologyError
from streams_py.topology.declare.names import changelog_topic
from streams_py.topology.declare.nodes import SourceNode
from streams_py.topology.topology import Topology

_GENERATED: Final = re.compile(r"(?:KSTREAM|KTABLE|COGROUPKSTREAM)-.*[0-9]{10}|.*-STATE-STORE-[0-9]{10}")
_log = logging.getLogger("streams_py")


def generated_names(topology: Topology) -> dict[str, str | None]:
    """Return internal topics (short names) with a generated name, each with its line or None.

    Optimised source tables and stores without logging have no such topic.
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
    """Log a warning that lists them all; if they are ``forbidden``, raise TopologyError."""
    found = generated_names(topology)
    if not found:
        return
    told = "; ".join(topic if line is None else f"{topic} ({line})" for topic, line in found.items())
    message = (
        "internal topics with generated names, which change when operators are added or removed above them, so that "
        f"a new version does not find their state and records: {told}. Set store= there, or name= for operations "
        "without store="
    )
    if forbidden:
        raise TopologyError(f"{message}, or set ensure.explicit.internal.resource.naming to false")
    _log.warning("%s", message)
