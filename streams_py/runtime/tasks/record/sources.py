"""Which source node reads which topic, with which serdes and timestamp extractor."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from streams_py.errors import TopologyError
from streams_py.runtime.tasks.record.binding import Node
from streams_py.runtime.tasks.record.queue import SourceReader
from streams_py.runtime.tasks.record.sinks import known_serde
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.runtime.tasks.settings.timestamps import fail_on_invalid_timestamp
from streams_py.topology.declare.in_context import WithContext
from streams_py.topology.declare.names import topic_on_broker
from streams_py.topology.declare.nodes import Process, SourceNode


def source_readers(
    nodes: Sequence[Node], settings: TaskSettings, topics: Collection[str], functions: Mapping[str, Process]
) -> dict[str, SourceReader]:
    """Return the reader of each topic (full names). ``functions``: the function behind each source node."""
    sources = [node for node in nodes if isinstance(node, SourceNode)]
    exact = {
        topic_on_broker(settings.application_id, topic, is_internal=source.is_internal): source
        for source in sources
        for topic in source.topics
    }
    readers: dict[str, SourceReader] = {}
    for topic in topics:
        source = exact.get(topic) or next((s for s in sources if s.pattern and s.pattern.fullmatch(topic)), None)
        if source is None:
            raise TopologyError(f"no source of the sub-topology reads topic {topic}")
        readers[topic] = _reader(source, topic, settings, functions[source.name])
    return readers


def _reader(source: SourceNode, topic: str, settings: TaskSettings, process: Process) -> SourceReader:
    key_serde = known_serde(source.key_serde, settings, source.name, is_key=True)
    value_serde = known_serde(source.value_serde, settings, source.name, is_key=False)
    extract: Any = source.timestamp_extractor or settings.default_timestamp_extractor
    # Repartition topics were written by this application, so their timestamps are already the extracted ones. Global
    # tables are restored without an extractor, so they are also updated without one. Without an extractor, the record
    # loop itself reads and checks the timestamp, which is faster.
    if source.is_internal or source.is_global or extract is fail_on_invalid_timestamp:
        extract = None
    return SourceReader(
        source.name,
        key_serde,
        value_serde,
        key_serde.deserializer(topic, is_key=True),
        value_serde.deserializer(topic, is_key=False),
        extract.function if isinstance(extract, WithContext) else extract,
        process,
        isinstance(extract, WithContext),
    )
