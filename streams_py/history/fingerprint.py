"""The fingerprint of a topology. It shows whether a topology is the one for which a plan was made."""

from __future__ import annotations

import hashlib

from streams_py.topology.declare.nodes import SinkNode, SourceNode
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.topology import Topology


def fingerprint_of(topology: Topology) -> str:
    """Return a hash of nodes, stores and their serdes.

    Default serdes are not included: :mod:`streams_py.history.result_settings` covers them.
    """
    stores = sorted(
        f"{name} {store.kind.value} {store.windows} {_serdes_of(store)}" for name, store in topology.stores.items()
    )
    ends = sorted(
        f"{node.name} {_serdes_of(node)}"
        for sub in topology.subtopologies()
        for node in sub.nodes
        if isinstance(node, SourceNode | SinkNode)
    )
    return hashlib.sha256("\n".join((topology.describe(), *stores, *ends)).encode()).hexdigest()


def _serdes_of(part: StoreBuilder | SourceNode | SinkNode) -> str:
    return f"{part.key_serde and part.key_serde.name} {part.value_serde and part.value_serde.name}"
