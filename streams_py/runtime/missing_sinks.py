"""Looks, once and beside everything else, whether the topics exist that an application writes to.

A missing one is a warning and not an error: some brokers create a topic when it is written to first.
"""

from __future__ import annotations

import logging
import threading

from streams_py.errors import StreamsError
from streams_py.ports import Admin, AdminError, AdminErrorKind
from streams_py.topology.nodes import SinkNode
from streams_py.topology.topology import Topology

__all__ = ["warn_of_missing_sinks"]

_log = logging.getLogger("streams_py")


def warn_of_missing_sinks(topology: Topology, admin: Admin) -> threading.Thread | None:
    """Ask on a thread of its own, because a broker may be away for long; the thread, None without such topics."""
    sinks = {
        node.topic: node
        for node in topology.nodes
        if isinstance(node, SinkNode) and node.topic is not None and not node.is_internal
    }
    if not sinks:
        return None

    def look() -> None:
        try:
            found = admin.describe_topics(sorted(sinks))
        except StreamsError:
            return  # others report a broker that is away
        for topic, node in sinks.items():
            answer = found.get(topic)
            if isinstance(answer, AdminError) and answer.kind is AdminErrorKind.UNKNOWN_TOPIC:
                line = topology.where(node.name)
                _log.warning(
                    "topic %s, which %s writes to%s, does not exist: create it, unless the broker creates topics by "
                    "itself",
                    topic,
                    node.name,
                    "" if line is None else f" ({line})",
                )

    thread = threading.Thread(target=look, name="missing-sinks", daemon=True)
    thread.start()
    return thread
