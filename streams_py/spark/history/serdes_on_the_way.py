"""Finds parts of a topology that cannot be sent to workers.

These are serdes and functions that hold a client, a lock or a file of this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streams_py.errors import StreamsError
from streams_py.history.loading import TopologySource
from streams_py.spark.failures import sentence_of
from streams_py.topology.declare.nodes import SinkNode, SourceNode
from streams_py.topology.topology import Topology


def cannot_travel(
    error: Exception, where: str, source: TopologySource, config: Mapping[str, Any]
) -> StreamsError | None:
    """Return the error to raise when ``source`` could not be pickled; None for any other error.

    ``where`` is the beginning of the message.
    """
    if not type(error).__name__.endswith("PicklingError"):
        return None
    culprits = serdes_that_stay(source.build(), config)
    what = f"the {culprits[0]}" if culprits else f"the topology cannot be sent to Spark's workers: {sentence_of(error)}"
    return StreamsError(
        f"{where}: {what}; name the topology as module:name, so that workers import it, or remove references to "
        "objects of this process, such as clients, locks and files"
    )


def serdes_that_stay(topology: Topology, config: Mapping[str, Any]) -> list[str]:
    """Return a clause for each serde that cannot be sent: its owner, its class, and why it cannot be pickled."""
    from pyspark import cloudpickle

    found = []
    for whose, serde in _serdes(topology, config):
        try:
            cloudpickle.dumps(serde)  # type: ignore[no-untyped-call]  # PySpark's copy has no stubs
        except Exception as error:  # pickling runs user code, which raises any type
            found.append(f"{whose} ({type(serde).__qualname__}) cannot be sent to Spark's workers: {error}")
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
