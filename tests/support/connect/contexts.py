"""A worker's contexts for tasks, in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from streams_py.connect.api import SinkRecord, SourceRecord, SourceTask, TopicPartition


class Offsets:
    """An offset reader for the offsets committed here."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}

    def offset(self, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        return self._known.get(json.dumps(partition, sort_keys=True))

    def offsets(self, partitions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
        return [self.offset(partition) for partition in partitions]

    def commit(self, record: SourceRecord) -> None:
        # as through the offset topic
        self._known[json.dumps(record.source_partition, sort_keys=True)] = json.loads(json.dumps(record.source_offset))


class SourceContext:
    def __init__(self, offset_reader: Offsets) -> None:
        self.offset_reader = offset_reader

    def configs(self) -> Mapping[str, str]:
        return {}


def started(task: SourceTask, offsets: Offsets, props: Mapping[str, str]) -> Any:
    task.initialize(SourceContext(offsets))
    task.start(props)
    return task


def record(offset: int, value: Any, key: Any = None, topic: str = "t", partition: int = 0) -> SinkRecord:
    return SinkRecord(topic, partition, offset, key, value)


P0 = TopicPartition("t", 0)
