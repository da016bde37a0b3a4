"""Missing topics: a warning for sinks, and created on an embedded cluster.

A missing source topic is an error (:mod:`streams_py.runtime.group.missing_sources`), because its name may be misspelt.
A missing sink topic is not, because some brokers create a topic at the first write.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from streams_py.errors import StreamsError
from streams_py.ports import Admin, TopicSpec
from streams_py.runtime.group.missing_sources import is_unknown
from streams_py.topology.declare.nodes import SinkNode
from streams_py.topology.physical.metadata import TopologyMetadata
from streams_py.topology.topology import Topology

_log = logging.getLogger("streams_py")

_EMBEDDED_PARTITIONS = 4
"""Number of partitions of each topic that is created on the embedded cluster."""


def create_missing_topics(metadata: TopologyMetadata, global_topics: Iterable[str], admin: Admin) -> None:
    """Create the application's topics that do not exist on the embedded cluster, which starts without topics."""
    subtopologies = metadata.subtopologies.values()
    internal = {topic for sub in subtopologies for topic in sub.repartition_sources}
    wanted = {topic for sub in subtopologies for topic in sub.source_topics | sub.sink_topics} - internal
    wanted.update(global_topics)
    existing = admin.describe_topics(None)
    missing = [TopicSpec(topic, _EMBEDDED_PARTITIONS) for topic in sorted(wanted - existing.keys())]
    if missing:
        names = ", ".join(spec.name for spec in missing)
        _log.info("creating %s with %d partitions each on the embedded cluster", names, _EMBEDDED_PARTITIONS)
        admin.create_topics(missing)


def warn_of_missing_sinks(topology: Topology, admin: Admin) -> threading.Thread | None:
    """Log missing sink topics from a background thread, because the broker may be down for long. None without sinks."""
    sinks = {
        node.topic: node
        for node in topology.nodes
        if isinstance(node, SinkNode) and node.topic is not None and not node.is_internal
    }
    if not sinks:
        return None

    def check() -> None:
        try:
            found = admin.describe_topics(sorted(sinks))
        except StreamsError:
            return  # the stream threads report an unreachable broker
        for topic, node in sinks.items():
            if is_unknown(found.get(topic)):
                line = topology.where(node.name)
                _log.warning(
                    "topic %s, which %s writes to%s, does not exist: create it, unless the broker creates topics "
                    "automatically",
                    topic,
                    node.name,
                    "" if line is None else f" ({line})",
                )

    thread = threading.Thread(target=check, name="missing-sinks", daemon=True)
    thread.start()
    return thread
