"""Obstacles for a preview of a topology as a stream, in addition to the obstacles of every history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from streams_py.history.refuse import NOTHING_ALLOWED, Allowances, Finding, findings
from streams_py.topology.declare.nodes import ProcessorNode
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.operators import stateless
from streams_py.topology.operators.aggregates import StreamAggregate, StreamReduce
from streams_py.topology.operators.sessions import SessionAggregate
from streams_py.topology.operators.tables import TableFilter, TableMapValues, TableToStream
from streams_py.topology.operators.windowed import TimeWindowAggregate
from streams_py.topology.topology import Topology

_AGGREGATES: Final = (StreamAggregate, StreamReduce, TimeWindowAggregate, SessionAggregate)
_TABLES: Final = (TableFilter, TableMapValues, TableToStream)
_LIVE: Final = "run it live, or over its history with streams_py.spark.run"


def preview_findings(
    topology: Topology, application_id: str, config: Mapping[str, Any], allowed: Allowances = NOTHING_ALLOWED
) -> list[Finding]:
    """Return all obstacles of a preview, including the obstacles of every history (see ``findings``).

    A preview supports one input topic, no repartition, and only stores of aggregates.
    """
    found = findings(topology, application_id, config, allowed, global_remedy=_LIVE)
    return found if topology.has_patterns else found + _of_preview(topology, application_id, config)


def _of_preview(topology: Topology, application_id: str, config: Mapping[str, Any]) -> list[Finding]:
    subs = [sub for sub in topology.subtopologies() if not sub.is_global]
    topics = sorted({topic for sub in subs for source in sub.sources for topic in source.topics})
    metadata = topology.metadata(application_id, config)
    between = sorted(topic for sub in metadata.subtopologies.values() for topic in sub.repartition_sources)
    found = [
        Finding(f"topic {topic}", "records would pass through another topic first", f"group by the key, or {_LIVE}")
        for topic in between
    ]
    if not between and len(topics) != 1:
        found.append(Finding("the topology", f"it reads {len(topics)} topics ({', '.join(topics)})", _LIVE))
    for sub in subs:
        for node in sub.nodes:
            if isinstance(node, ProcessorNode):
                found += _of_operator(node)
        for store in sub.stores:
            found += _of_store(store)
    return found


def _of_operator(node: ProcessorNode) -> Iterator[Finding]:
    operator: Any = node.operator
    if type(operator).__module__ != stateless.__name__ and not isinstance(operator, (*_AGGREGATES, *_TABLES)):
        yield Finding(node.name, f"a preview does not support {type(operator).__name__}", _LIVE)


def _of_store(store: StoreBuilder) -> Iterator[Finding]:
    name = f"store {store.name}"
    if store.windows is not None and store.windows.holds_back:
        yield Finding(name, "its windows are emitted when they close", _LIVE)
    if store.ttl_ms is not None or store.history_ms is not None:
        yield Finding(name, "it has a time to live, or a history", _LIVE)
    if store.supplier is not None:
        yield Finding(
            name, "it is a custom store, whose changelog does not show which entries it drops, and when", _LIVE
        )
    if not store.logging:
        yield Finding(name, "it has no changelog, so its state would be lost", "enable logging")
