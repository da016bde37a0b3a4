"""Connectors for tests: a source that counts, a sink that collects. Workers import them by name."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence

from streams_protocol.types import TopicPartition
from streams_py.connect.api import (
    RetriableError,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SourceConnector,
    SourceRecord,
    SourceTask,
)

COLLECTED: dict[str, list[SinkRecord]] = defaultdict(list)
"""The records that sinks received, by connector name."""
BLOCKED = threading.Event()
"""Set it to release tasks that hang."""


class CountingSource(SourceConnector):
    """``tasks.max`` tasks that write numbers from 0 to ``topic``. Each continues after its committed number."""

    def start(self, props: Mapping[str, str]) -> None:
        self._props = dict(props)

    def task_class(self) -> type[SourceTask]:
        return CountingTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{**self._props, "part": str(number)} for number in range(max_tasks)]

    def stop(self) -> None:
        pass

    def validate(self, props: Mapping[str, str]) -> dict[str, list[str]]:
        return {} if "topic" in props else {"topic": ["is required"]}


class CountingTask(SourceTask):
    def start(self, props: Mapping[str, str]) -> None:
        self._props = props
        self._partition = {"part": props["part"]}
        committed = self.context.offset_reader.offset(self._partition)
        self._next = 0 if committed is None else committed["count"]
        self._end = int(props.get("end", "1000000000"))
        self._stopped = threading.Event()

    def poll(self) -> list[SourceRecord] | None:
        self._stopped.wait(0.01)
        if self._stopped.is_set() or self._next >= self._end:
            return None
        if self._props.get("fail.at") == str(self._next):
            raise RuntimeError("the source is broken")
        number, self._next = self._next, self._next + 1
        value: object = number
        if self._props.get("bad.at") == str(number):
            value = object()  # no converter takes it
        key = f"{self._props['name']}-{self._props['part']}"
        return [SourceRecord(self._partition, {"count": self._next}, self._props["topic"], value, key=key)]

    def stop(self) -> None:
        self._stopped.set()


class HangingSource(CountingSource):
    """Its tasks do not stop."""

    def task_class(self) -> type[SourceTask]:
        return HangingTask


class HangingTask(CountingTask):
    def poll(self) -> list[SourceRecord] | None:
        BLOCKED.wait()
        return None

    def stop(self) -> None:
        pass


class CollectingSink(SinkConnector):
    def start(self, props: Mapping[str, str]) -> None:
        self._props = dict(props)

    def task_class(self) -> type[SinkTask]:
        return CollectingTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self._props)] * max_tasks

    def stop(self) -> None:
        pass


class CollectingTask(SinkTask):
    def start(self, props: Mapping[str, str]) -> None:
        self._name = props["name"]
        self._refusals = int(props.get("refuse", "0"))
        self._failing_commits = int(props.get("refuse.commits", "0"))

    def put(self, records: Sequence[SinkRecord]) -> None:
        if self._refusals and records:
            self._refusals -= 1
            self.context.timeout(10)
            raise RetriableError("not now")
        COLLECTED[self._name].extend(records)

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._failing_commits:
            self._failing_commits -= 1
            raise RetriableError("the target is away")

    def stop(self) -> None:
        pass
