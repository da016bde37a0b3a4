"""What of a topology cannot be sent to workers: serdes and functions that hold a client, a lock or a file of this
process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streams_py.errors import StreamsError
from streams_py.history.travel import TopologySource
from streams_py.spark.failures import sentence_of
from streams_py.topology.declare.nodes import SinkNode, SourceNode
from streams_py.topology.topology import Topology

__all__ = ["cannot_travel", "serdes_that_stay"]


def cannot_travel(
    error: Exception, where: str, source: TopologySource, config: Mapping[str, Any]
) -> StreamsError | None:
    """What to raise for an error that comes of sending ``source`` to workers; None for any other. ``where`` begins."""
    if not type(error).__name__.endswith("PicklingError"):
        return None
    culprits = serdes_that_stay(source.build(), config)
    what = f"the {culprits[0]}" if culprits else f"the topology cannot travel ({sentence_of(error)})"
    return StreamsError(
        f"{where}: {what} to Spark's workers; name it as module:name, so that they make their own, or let it refer to "
        "nothing that belongs to this process"
    )


def serdes_that_stay(topology: Topology, config: Mapping[str, Any]) -> list[str]:
    """A clause for each: whose serde it is, its class, and what cannot be pickled."""
    from pyspark import cloudpickle

    found = []
    for whose, serde in _serdes(topology, config):
        try:
            cloudpickle.dumps(serde)  # type: ignore[no-untyped-call]  # PySpark's copy has no stubs
        except Exception as error:  # whatever its parts raise
            found.append(f"{whose} ({type(serde).__qualname__}) cannot travel: {error}")
    return found


def _serdes(topology: Topology, config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for role in ("key", "value"):
        given = config.get(f"default.{role}.serde")
        if given is not None:
            yield f"default.{role}.serde", given
        for sub in topology.subtopologies():
            for node in sub.nodes:
                if isinstance(node, SourceNode | SinkNode):
                    yield f"{role} serde of node {node.name}", getattr(node, f"{role}_serde")
            for store in sub.stores:
                yield f"{role} serde of store {store.name}", getattr(store, f"{role}_serde")
